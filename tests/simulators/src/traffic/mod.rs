//! People who chat: each sends a text of its own, expects exactly that text back, thinks, and goes on.
//!
//! What is received, answered, lost and doubled is judged at the people's end, so that it holds whatever the bots say
//! about themselves.

mod ledger;
mod population;
mod summary;
mod telegram;
#[cfg(feature = "whatsapp")]
mod whatsapp;

use std::{ops::RangeInclusive, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use ledger::Outcome;
pub use summary::Summary;

use crate::{
    TimedOut,
    telegram::{BotHandle, Telegram},
};

/// How people chat.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// People for each bot.
    pub users_per_bot: usize,
    /// Messages in a second, over all people; without it only thinking slows them down.
    pub rate: Option<f64>,
    /// How long a person thinks before the next message.
    pub think: RangeInclusive<Duration>,
    /// How many messages a person sends without having heard the answers.
    pub in_flight: usize,
    /// How long the answers under way are awaited at the end.
    pub grace: Duration,
    /// How long a second answer is looked out for after the last one was heard.
    pub settle: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            users_per_bot: 1,
            rate: None,
            think: Duration::from_millis(300)..=Duration::from_millis(1200),
            in_flight: 1,
            grace: Duration::from_secs(10),
            settle: Duration::from_millis(300),
        }
    }
}

impl Plan {
    /// People who keep this rate together and think no longer than it makes them wait.
    pub fn at_rate(users_per_bot: usize, messages_per_second: f64) -> Self {
        Self {
            users_per_bot,
            rate: Some(messages_per_second),
            think: Duration::ZERO..=Duration::ZERO,
            ..Self::default()
        }
    }
}

/// What became of a message, told as it happens.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Which bot, by its place in the list given to [`Traffic::start`].
    pub bot: usize,
    /// The chat.
    pub chat: i64,
    /// What the bot wrote.
    pub text: String,
    /// How that is judged.
    pub outcome: Outcome,
}

/// Traffic that is going on.
#[derive(Debug)]
pub struct Traffic {
    stop: CancellationToken,
    task: JoinHandle<Summary>,
}

impl Traffic {
    /// Lets people chat with these bots, and tells of each answer.
    pub fn start(
        telegram: &Telegram,
        bots: &[BotHandle],
        plan: Plan,
        told: impl FnMut(&Told) + Send + 'static,
    ) -> Self {
        let (chats, answers) = telegram::chats(telegram, bots, plan.users_per_bot);
        Self::among(population::Population::new(chats, answers, plan, Box::new(told)))
    }

    /// Lets people chat with these accounts on WhatsApp, whose devices answer, and tells of each answer.
    #[cfg(feature = "whatsapp")]
    pub fn start_whatsapp(
        whatsapp: &crate::whatsapp::WhatsApp,
        accounts: &[crate::whatsapp::Phone],
        plan: Plan,
        told: impl FnMut(&Told) + Send + 'static,
    ) -> Self {
        let (chats, answers) = whatsapp::chats(whatsapp, accounts, plan.users_per_bot);
        Self::among(population::Population::new(chats, answers, plan, Box::new(told)))
    }

    fn among(population: population::Population) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(population.chat(stop.clone())), stop }
    }

    /// From all bots connected (at most `connect` is waited for that) people chat for so long; then as [`Self::stop`].
    pub async fn run(
        telegram: &Telegram,
        bots: &[BotHandle],
        plan: Plan,
        connect: Duration,
        chat: Duration,
        told: impl FnMut(&Told) + Send + 'static,
    ) -> Result<Summary, TimedOut> {
        telegram.wait_for_polls(bots.len(), connect).await?;
        let traffic = Self::start(telegram, bots, plan, told);
        tokio::time::sleep(chat).await;
        Ok(traffic.stop().await)
    }

    /// Nothing new is sent; what is under way is awaited for the plan's grace.
    ///
    /// # Panics
    /// When `told` panicked.
    pub async fn stop(self) -> Summary {
        self.stop.cancel();
        match self.task.await {
            Ok(summary) => summary,
            Err(failed) => panic!("the traffic ended early: {failed}"),
        }
    }
}
