//! How workers wait for the jobs of the layout before.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    dispatch::{Context, worker::while_ticking},
    progress::Stamp,
};

/// For how long workers wait for a shard that says nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// How often they ask.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Waits until what lay in the wrong queues at the start of this epoch has been brought to its owners, first here (`sorted`), then
/// by all. A shard that never says so doesn't keep the work from being done for ever; the order between old and new jobs is
/// then not known.
pub async fn older_jobs_first(
    ctx: &Context,
    epoch: u64,
    sorted: &CancellationToken,
    stamp: &Stamp,
    stop: &CancellationToken,
) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = while_ticking(stamp, sorted.cancelled()) => {}
    }
    let began = Instant::now();
    let mut told = false;
    while !stop.is_cancelled() {
        stamp.tick();
        match ctx.registry.swept(ctx.shard.count).await {
            Ok(swept) if swept >= epoch => return,
            Ok(_) => {}
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    warn!(%error, "it can't be read whether older jobs were forwarded; trying again");
                }
            }
        }
        if began.elapsed() > SILENCE {
            warn!(epoch, "not all shards say that the jobs of the layout before were forwarded; going on without");
            return;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(ASK_EVERY) => {}
        }
    }
}
