//! People who chat: each sends a text of its own, expects exactly that text back, thinks, and goes on.
//!
//! What is received, answered, lost and doubled is judged at the people's end, so that it holds whatever the bots say
//! about themselves.

mod ledger;
mod networks;
mod population;
mod summary;
#[cfg(feature = "whatsapp")]
mod whatsapp;

use std::{ops::RangeInclusive, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use ledger::Outcome;
pub use networks::{SlackApps, TelegramBots};
pub use summary::Summary;
#[cfg(feature = "whatsapp")]
pub use whatsapp::WhatsAppAccounts;

/// Bots on one platform, as people who chat with them need it. Bots and people are known by their numbers.
pub trait Network: Send {
    /// How many bots there are.
    fn bots(&self) -> usize;

    /// A person says something to a bot, in the conversation that is theirs alone.
    fn say(&mut self, bot: usize, person: usize, text: &str);

    /// From now on `heard` is told of each message of a bot to a person. It is quick and calls nothing of the network.
    fn listen(&mut self, heard: Heard);
}

/// Told which bot said what to which person.
pub type Heard = Box<dyn Fn(usize, usize, &str) + Send + Sync>;

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
    /// Lets people chat with the bots of these networks, in their order, and tells of each answer.
    pub fn start(networks: Vec<Box<dyn Network>>, plan: Plan, told: impl FnMut(&Told) + Send + 'static) -> Self {
        let stop = CancellationToken::new();
        let population = population::Population::new(networks, plan, Box::new(told));
        Self { task: tokio::spawn(population.chat(stop.clone())), stop }
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
