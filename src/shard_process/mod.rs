//! One shard as a process: its ports opened, its health thread, its signals, and `shard::run` between them.
//!
//! It comes in two shapes on the same code: the child of a primary, which is told over a link what to do and reports
//! there, and the process of its own (one shard, or a static one), which answers and notifies for itself.

mod alone;
mod child;
mod ports;
mod settings;
mod stock;
#[cfg(feature = "whatsapp")]
mod whatsapp;

use std::{sync::Arc, time::Duration};

use shard::{
    identity::{QueueBase, QueueName, ShardId},
    queue::{Depth, Queue, QueueError},
    run,
    standing::Standing,
};
use supervisor::ChildLink;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

pub(crate) use alone::{layout, run as run_alone};
pub(crate) use ports::note_port;
#[cfg(feature = "whatsapp")]
pub(crate) use whatsapp::bucket;

use self::ports::Opened;
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
        .max_blocking_threads(8)
        .build()
        .map_err(|error| Failure::Internal(format!("no runtime: {}", plain(&error))))
}

/// Work of the store that takes longer than this is told of.
const SLOW_STORE: Duration = Duration::from_secs(3);

/// The work itself, with what must go on beside it.
async fn work(
    opened: Opened,
    settings: run::ShardSettings,
    standing: Standing,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let ports = opened.ports.clone();
    let beat = tokio::spawn(beat(opened, settings.roster.shard));
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
async fn beat(opened: Opened, shard: ShardId) {
    let ports = &opened.ports;
    let stamp = ports.progress.register("runtime", Duration::from_secs(2));
    let mut ticks = tokio::time::interval(Duration::from_millis(250));
    let (mut told, mut slow) = (false, false);
    for tick in 0u64.. {
        ticks.tick().await;
        stamp.tick();
        if tick % 8 != 0 {
            continue;
        }
        match opened.store_waits() {
            Some(waits) if waits > SLOW_STORE && !slow => {
                slow = true;
                warn!(seconds = waits.as_secs(), "the store is held up: the disk, or another process of this box");
            }
            waits => slow = waits.is_some_and(|waits| waits > SLOW_STORE),
        }
        for base in QueueBase::ALL {
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

async fn depth(queue: &Arc<dyn Queue>, name: QueueName) -> Result<Depth, QueueError> {
    match queue.depth(name).await {
        // It is about to be declared.
        Err(QueueError::Missing { .. }) => Ok(Depth::default()),
        other => other,
    }
}
