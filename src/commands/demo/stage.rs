//! What a demonstration plays on: the simulators, the bots, apps and accounts on each, and the channels that they become.

use std::{collections::BTreeSet, time::Duration};

use shard::{identity::ChannelId, platform::PlatformKind, secret::Secret};
use simulators::{
    TimedOut,
    slack::{AppHandle, Slack},
    telegram::{BotHandle, Telegram},
    traffic::{Network, SlackApps, TelegramBots},
};
#[cfg(feature = "loopback")]
use simulators::{
    traffic::WhatsAppAccounts,
    whatsapp::{Phone, Scanner, WhatsApp},
};
use uuid::Uuid;

/// The platforms that can be shown.
#[cfg(feature = "loopback")]
pub(super) const SHOWN: [PlatformKind; 3] = [PlatformKind::Telegram, PlatformKind::Slack, PlatformKind::Whatsapp];
/// The platforms that can be shown.
#[cfg(not(feature = "loopback"))]
pub(super) const SHOWN: [PlatformKind; 2] = [PlatformKind::Telegram, PlatformKind::Slack];

/// A channel of the daemon.
pub(super) struct Channel {
    pub(super) id: ChannelId,
    pub(super) platform: PlatformKind,
    pub(super) token: Option<Secret>,
}

impl Channel {
    fn new(platform: PlatformKind, token: Option<Secret>) -> Self {
        Self { id: ChannelId::from_uuid(Uuid::new_v4()), platform, token }
    }
}

/// The simulators. The channels are shared out among the platforms.
pub(super) struct Stage {
    telegram: Telegram,
    bots: Vec<BotHandle>,
    slack: Slack,
    apps: Vec<AppHandle>,
    #[cfg(feature = "loopback")]
    linked: Linked,
    channels: Vec<Channel>,
}

impl Stage {
    pub(super) async fn build(channels: usize, wanted: &BTreeSet<PlatformKind>) -> std::io::Result<Self> {
        let (telegram, slack) = (Telegram::start().await?, Slack::start().await?);
        let share = channels / wanted.len();
        // What can't be shared out evenly goes to the first of them.
        let on = |platform| match wanted.first() {
            Some(first) if *first == platform => channels - share * (wanted.len() - 1),
            _ if wanted.contains(&platform) => share,
            _ => 0,
        };
        let bots: Vec<_> = (0..on(PlatformKind::Telegram)).map(|_| telegram.add_bot()).collect();
        let apps: Vec<_> = (0..on(PlatformKind::Slack)).map(|_| slack.add_app()).collect();
        let mut channels: Vec<Channel> =
            bots.iter().map(|bot| Channel::new(PlatformKind::Telegram, Some(Secret::new(bot.token())))).collect();
        let both = |app: &AppHandle| Secret::new(format!("{} {}", app.app_token(), app.bot_token()));
        channels.extend(apps.iter().map(|app| Channel::new(PlatformKind::Slack, Some(both(app)))));
        #[cfg(feature = "loopback")]
        let linked = Linked::build(on(PlatformKind::Whatsapp), &mut channels).await?;
        Ok(Self {
            telegram,
            bots,
            slack,
            apps,
            #[cfg(feature = "loopback")]
            linked,
            channels,
        })
    }

    pub(super) async fn wait_for_all(&self, within: Duration) -> Result<(), TimedOut> {
        self.telegram.wait_for_polls(self.bots.len(), within).await?;
        self.slack.wait_for_apps(self.apps.len(), within).await?;
        #[cfg(feature = "loopback")]
        self.linked.whatsapp.wait_for_devices(self.linked.accounts.len(), within).await?;
        Ok(())
    }

    pub(super) fn networks(&self) -> Vec<Box<dyn Network>> {
        vec![
            Box::new(TelegramBots::new(&self.telegram, &self.bots)),
            Box::new(SlackApps::new(&self.slack, &self.apps)),
            #[cfg(feature = "loopback")]
            Box::new(WhatsAppAccounts::new(&self.linked.whatsapp, &self.linked.accounts)),
        ]
    }

    pub(super) fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// Where the daemon finds the simulators, as its environment.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        #[cfg_attr(not(feature = "loopback"), allow(unused_mut, reason = "there is nothing more"))]
        let mut settings = vec![
            ("SHARDVISOR_TELEGRAM_API_URL", self.telegram.url()),
            ("SHARDVISOR_SLACK_API_URL", self.slack.api_url()),
        ];
        #[cfg(feature = "loopback")]
        if !self.linked.accounts.is_empty() {
            settings.extend([
                ("SHARDVISOR_WHATSAPP_ENDPOINT", self.linked.whatsapp.url()),
                // A demonstration's messages use up few of them.
                ("SHARDVISOR_WHATSAPP_PRE_KEYS", "20".to_owned()),
                ("SHARDVISOR_EVENTS_URL", self.linked.scanner.url().to_owned()),
            ]);
        }
        settings
    }
}

/// Accounts on WhatsApp whose phones scan the codes that the daemon's events tell.
#[cfg(feature = "loopback")]
struct Linked {
    whatsapp: WhatsApp,
    accounts: Vec<Phone>,
    scanner: Scanner,
}

#[cfg(feature = "loopback")]
impl Linked {
    async fn build(accounts: usize, channels: &mut Vec<Channel>) -> std::io::Result<Self> {
        let whatsapp = WhatsApp::start().await?;
        whatsapp.keep(1000);
        let accounts: Vec<_> =
            (0..accounts).map(|n| whatsapp.phone(&(4_915_100_000_000 + n as u64).to_string())).collect();
        let mut phones = std::collections::HashMap::new();
        for phone in &accounts {
            let channel = Channel::new(PlatformKind::Whatsapp, None);
            phones.insert(channel.id.to_string(), phone.clone());
            channels.push(channel);
        }
        let scanner = Scanner::start(phones).await?;
        Ok(Self { whatsapp, accounts, scanner })
    }
}
