//! `shardvisor run`: the daemon.

use crate::{announce::announce, config::Config, exit::Failure};

/// Says what would run.
pub(super) fn run(config: &Config) -> Result<(), Failure> {
    announce(config, config.shard_index.or((config.shard_count == 1).then_some(0)));
    Err(Failure::Internal("this build holds no daemon".to_owned()))
}
