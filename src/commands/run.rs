//! `shardvisor run`: the daemon, in one of its three shapes.

use supervisor::ChildLink;

use crate::{
    cli::Settings,
    config::Config,
    exit::Failure,
    primary,
    shard_process::{run_alone, run_child},
};

/// A shard of a primary when there is a link to one; else one shard alone (the only one, or a static one), or a primary.
/// Gives the status to end with.
pub(super) fn run(config: &Config, settings: &Settings) -> Result<u8, Failure> {
    let link = ChildLink::from_env().map_err(|error| Failure::Internal(format!("the link to the primary: {error}")))?;
    match (link, config.shard_index, config.shard_count) {
        (Some(link), Some(index), _) => run_child(config, index, link).map(|()| 0),
        (Some(_), None, _) => Err(Failure::Internal("a link to a primary, but no SHARD_INDEX".to_owned())),
        (None, Some(index), _) => run_alone(config, &settings.sources(), index).map(|()| 0),
        (None, None, 1) => run_alone(config, &settings.sources(), 0).map(|()| 0),
        (None, None, _) => primary::run(config, settings.arguments()),
    }
}
