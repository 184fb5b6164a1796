//! What each process of the daemon says first: its layout, and what is odd about its configuration.

use supervisor::spec::LINK_FD_ENV;
use tracing::{info, warn};

use crate::{config::Config, logging};

/// Starts logging and writes the layout line of the primary (`None`) or of a shard.
pub(crate) fn announce(config: &Config, shard: Option<u32>) {
    logging::start(config.log, shard);
    match shard {
        None => info!("{}", config.layout_line(None)),
        Some(index) => info!(worker = config.worker_id_of(index), "{}", config.layout_line(Some(index))),
    }
    // The shards of a primary read what it read: said by each, a warning would be noise.
    if std::env::var_os(LINK_FD_ENV).is_none() {
        config.warnings.iter().for_each(|warning| warn!("{warning}"));
    }
}
