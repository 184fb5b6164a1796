//! `shardvisor dead`: what could not be done or delivered, and what becomes of it. Nothing leaves a dead-letter queue by
//! itself.

mod events;
mod jobs;

use crate::{
    cli::{Dead, DeadChoice},
    commands::data::{self, block_on},
    config::Config,
    exit::Failure,
};

/// What happens to chosen dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Back to where the work is done, attempts forgotten.
    Replay,
    /// Gone for good.
    Drop,
}

impl Fate {
    fn done(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Drop => "dropped",
        }
    }
}

/// Lists, replays or drops.
pub(super) fn run(config: &Config, command: &Dead) -> Result<(), Failure> {
    data::enter(config)?;
    block_on(async {
        match command {
            Dead::List { from, json } if from.events => events::list(config, *json).await,
            Dead::List { from, json } => jobs::list(config, from, *json).await,
            Dead::Replay(choice) => settle(config, choice, Fate::Replay).await,
            Dead::Drop(choice) => settle(config, choice, Fate::Drop).await,
        }
    })
}

async fn settle(config: &Config, choice: &DeadChoice, fate: Fate) -> Result<(), Failure> {
    if choice.from.events {
        events::settle(config, choice, fate).await
    } else {
        jobs::settle(config, choice, fate).await
    }
}
