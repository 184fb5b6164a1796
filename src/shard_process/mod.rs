//! One shard as a process: its ports opened, its health thread, its signals, and `shard::run` between them.
//!
//! It comes in two shapes on the same code: the child of a primary, which is told over a link what to do and reports
//! there, and the process of its own (one shard, or a static one), which answers and notifies for itself.

mod alone;
mod child;
mod ports;
mod settings;
mod stock;

use std::{sync::Arc, time::Duration};

use shard::{
    queue::Queue,
    run::{self, ShardPorts, Standing},
};
use supervisor::ChildLink;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

pub(crate) use alone::{layout, run as run_alone};
pub(crate) use ports::note_port;

use crate::{
    config::{Config, plain},
    exit::{Failure, INTERNAL},
};

/// Runs the shard that a primary started.
pub(crate) fn run_child(config: &Config, index: u32, link: ChildLink) -> Result<(), Failure> {
    child::run(config, index, link)
}

/// The runtime of a shard: one thread does all the work, so that a box's shards spread over its cores.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .map_err(|error| Failure::Internal(format!("no runtime: {}", plain(&error))))
}

/// The work itself, with what must go on beside it.
async fn work(
    config: &Config,
    ports: ShardPorts,
    settings: run::ShardSettings,
    standing: Standing,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let beat = tokio::spawn(beat(ports.clone(), config.shard(settings.roster.shard.index)));
    let ended = run::run(settings, ports, standing, stop).await;
    beat.abort();
    if let Err(lost) = ended {
        // Somebody else may own what this process holds: nothing more may be done, not even in good order.
        error!(error = %lost, "ending at once");
        std::process::exit(i32::from(INTERNAL));
    }
    Ok(())
}

/// Shows that the runtime runs at all, and keeps the depths of the queues current.
async fn beat(ports: ShardPorts, shard: shard::identity::ShardId) {
    let stamp = ports.progress.register("runtime", Duration::from_secs(2));
    let mut ticks = tokio::time::interval(Duration::from_millis(250));
    let mut told = false;
    for tick in 0u64.. {
        ticks.tick().await;
        stamp.tick();
        if tick % 8 != 0 {
            continue;
        }
        for base in shard::identity::QueueBase::ALL {
            match depth(&ports.queue, shard.queue(base)).await {
                Ok(depth) => {
                    ports.metrics.queue_depth(base, depth);
                    told = false;
                }
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        warn!(%error, "a queue's depth can't be read");
                    }
                }
            }
        }
    }
}

async fn depth(
    queue: &Arc<dyn Queue>,
    name: shard::identity::QueueName,
) -> Result<shard::queue::Depth, shard::queue::QueueError> {
    match queue.depth(name).await {
        // It is about to be declared.
        Err(shard::queue::QueueError::Missing { .. }) => Ok(shard::queue::Depth::default()),
        other => other,
    }
}
