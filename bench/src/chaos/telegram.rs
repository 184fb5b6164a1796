//! The Telegram simulator behind shards that are the real daemon.

use std::{collections::HashMap, path::Path, process::Command, sync::Arc};

use shard::{
    clock::SystemClock,
    directory::{ChannelSpec, Handler, store::StoreDirectory},
    platform::PlatformKind,
    secret::Secret,
    store::BoxStore,
};
use simulators::telegram::{BotHandle, Telegram};

use super::{SHARDS, Scene, judge::number};
use crate::stand::Failure;

/// How much of each chat the simulator keeps: what is judged is seen as it appears.
const KEPT: usize = 20;

/// The simulator, with a bot for each channel.
pub(super) struct Stage {
    telegram: Telegram,
    /// Held, so that the chats stay.
    _bots: Vec<BotHandle>,
}

impl Stage {
    pub(super) async fn set(scene: &Scene) -> Result<Self, Failure> {
        let telegram = Telegram::start().await?;
        telegram.keep(KEPT);
        let bots: Vec<BotHandle> = (0..scene.spread.channels).map(|_| telegram.add_bot()).collect();
        for bot in &bots {
            for chat in 0..scene.spread.chats {
                bot.user(i64::from(chat) + 1);
            }
        }
        let judge = scene.judge.clone();
        telegram.watch(move |seen| {
            let text = seen.entry.text.as_deref().filter(|_| seen.entry.is_answer());
            if let Some(job) = text.and_then(number) {
                judge.lock().expect("judge").see(job);
            }
        });
        add_channels(scene, &bots).await?;
        Ok(Self { telegram, _bots: bots })
    }

    /// How a shard is started: a static one, with no rate limits that matter.
    pub(super) fn command(&self, daemon: &Path, scene: &Scene, index: u32) -> Command {
        let settings: HashMap<&str, String> = [
            ("SHARDVISOR_DATA_DIR", scene.dir.display().to_string()),
            ("SHARDVISOR_QUEUE_URL", scene.amqp.clone()),
            ("SHARDVISOR_REGISTRY_URL", scene.redis.clone()),
            ("SHARDVISOR_TELEGRAM_API_URL", self.telegram.url()),
            ("SHARDVISOR_TELEGRAM_BOT_MESSAGES_PER_SECOND", "1000".to_owned()),
            ("SHARDVISOR_TELEGRAM_CHAT_MESSAGES_PER_SECOND", "100".to_owned()),
            ("SHARDVISOR_JOBS_RETRY_FIRST", "200ms".to_owned()),
            ("SHARDVISOR_HEALTH_BIND", "127.0.0.1".to_owned()),
            ("HEALTH_PORT", "0".to_owned()),
            ("SHARD_COUNT", SHARDS.to_string()),
            ("SHARD_INDEX", index.to_string()),
            ("WORKER_ID", "chaos".to_owned()),
            ("BOT_WORKER_STARTUP_JITTER_MAX", "0s".to_owned()),
        ]
        .into();
        // Without a primary nothing ties it to this process's life but this.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(daemon).arg("run");
        command.env_clear().env("PATH", std::env::var("PATH").unwrap_or_default()).envs(settings);
        command
    }
}

async fn add_channels(scene: &Scene, bots: &[BotHandle]) -> Result<(), Failure> {
    let shared = BoxStore::open(&scene.dir, Arc::new(SystemClock))?;
    let directory = StoreDirectory::open(shared, &scene.dir.join("secret.key"))?;
    for (number, bot) in (0..).zip(bots) {
        let spec = ChannelSpec {
            id: scene.spread.channel(number),
            platform: PlatformKind::Telegram,
            token: Some(Secret::new(bot.token())),
            handler: Handler::None,
            enabled: true,
            label: None,
        };
        directory.put(&spec).await?;
    }
    Ok(())
}
