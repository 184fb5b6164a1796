//! Jobs that lie where today's layout does not look for them: the bare queues once there are several shards, the queues of a
//! larger layout of before, and, when the layout has just changed, each shard's own queue. Every queue that is not ours is left
//! alone.
//!
//! Shard 0 forwards what lies in queues that nobody owns. At the start of an epoch each shard whose queues were also queues of the
//! layout before brings what lies in them to its owners, itself included. All of that is older than what producers write by the
//! new layout, which they do once it is published: workers wait until every shard is done with it ([`older_jobs_first`]), and
//! read it before their own queues.

mod moving;
mod waiting;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use waiting::older_jobs_first;

use super::{Context, worker::while_ticking};
use crate::{
    identity::{QueueBase, QueueName},
    progress::Stamp,
    queue::QueueError,
    registry::RegistryError,
};

/// How often queues of another layout are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// A queue that gives nothing for so long is taken to be empty.
const EMPTY_AFTER: Duration = Duration::from_millis(200);
/// The pause before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How many are on their way at a time.
const PREFETCH: u16 = 64;

/// Forwards what another layout left behind.
pub struct Stragglers {
    ctx: Arc<Context>,
    epoch: u64,
    waited: [u64; 3],
    sorted: CancellationToken,
}

impl Stragglers {
    /// For a shard in an epoch of the layout, before whose start `waited` jobs lay in its queues. `sorted` is cancelled when this shard's own queues hold nothing of the epoch before,
    /// and may be worked.
    pub fn new(ctx: Arc<Context>, epoch: u64, waited: [u64; 3], sorted: CancellationToken) -> Self {
        Self { ctx, epoch, waited, sorted }
    }

    /// Whether a queue belongs to no shard of this layout and is not one that producers still write to.
    fn is_left_behind(&self, queue: &QueueName) -> bool {
        let count = self.ctx.shard.count;
        queue.index.is_some_and(|index| count <= 1 || index >= count)
    }

    /// Looks once for queues of a larger layout; how many jobs moved.
    pub async fn sweep(&self, stamp: &Stamp, stop: &CancellationToken) -> Result<u64, QueueError> {
        let mut moved = 0;
        for queue in self.ctx.queue.existing().await? {
            stamp.tick();
            if !self.is_left_behind(&queue) || stop.is_cancelled() {
                continue;
            }
            let depth = self.ctx.queue.depth(queue).await?;
            if depth.ready + depth.parked > 0 {
                moved += self.empty(queue, stop, &mut || stamp.tick()).await?;
            }
        }
        Ok(moved)
    }

    /// At the start of an epoch: what the layout before left in the own queues goes to its owners.
    async fn sort(&self, stamp: &Stamp) -> Result<(), String> {
        let shard = self.ctx.shard;
        let registry = &self.ctx.registry;
        let swept = registry.swept(shard.count).await.map_err(|error| error.to_string())?;
        let before = registry.layout_before().await.map_err(|error| error.to_string())?;
        let was_mine_before = before.is_some_and(|before| shard.count > 1 && before > 1 && shard.index < before);
        if swept < self.epoch && was_mine_before {
            for (base, waited) in QueueBase::ALL.into_iter().zip(self.waited) {
                let sorting = self.sort_queue(shard.queue(base), waited, stamp);
                sorting.await.map_err(|error| error.to_string())?;
            }
        }
        self.sorted.cancel();
        Ok(())
    }

    /// Sorts and sweeps at start, sweeps from time to time and reads the bare queues all the while, until `stop`.
    pub async fn run(self, stamp: Stamp, stop: CancellationToken) {
        let this = Arc::new(self);
        let nobody_owns_them = this.ctx.shard.index == 0;
        let mut readers = JoinSet::new();
        // Each reader of a bare queue says once that it has come to its end; all have when the channel is closed.
        let (reading, mut caught_up) = mpsc::channel::<()>(1);
        if nobody_owns_them && this.ctx.shard.count > 1 {
            for base in QueueBase::ALL {
                let (this, stop, reading) = (this.clone(), stop.clone(), reading.clone());
                readers.spawn(async move { this.read_bare(QueueName::bare(base), reading, stop).await });
            }
        }
        drop(reading);
        let mut told = false;
        while !stop.is_cancelled() {
            let swept = async {
                if !this.sorted.is_cancelled() {
                    this.sort(&stamp).await?;
                }
                if nobody_owns_them {
                    this.sweep(&stamp, &stop).await.map_err(|error| error.to_string())?;
                    while_ticking(&stamp, caught_up.recv()).await;
                }
                if stop.is_cancelled() {
                    return Ok(());
                }
                // Said each time, for a registry may forget it.
                let marked = this.ctx.registry.mark_swept(this.ctx.shard.index, this.epoch).await;
                marked.map_err(|error| error.to_string())
            };
            match swept.await {
                Ok(()) => told = false,
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        warn!(%error, "stragglers could not be looked for; trying again");
                    }
                }
            }
            let until = Instant::now() + if told { AGAIN } else { LOOK_EVERY };
            while Instant::now() < until && !stop.is_cancelled() {
                stamp.tick();
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = sleep(Duration::from_secs(1)) => {}
                }
            }
        }
        readers.join_all().await;
    }

    /// Producers that have not changed their count yet keep writing to the bare queues.
    async fn read_bare(&self, queue: QueueName, reading: mpsc::Sender<()>, stop: CancellationToken) {
        let (mut told, mut reading) = (false, Some(reading));
        while !stop.is_cancelled() {
            match self.forward_all(queue, &mut reading, &stop).await {
                Ok(()) => {}
                Err(error) if !told => {
                    told = true;
                    warn!(queue = %queue, %error, "a bare queue can't be read; trying again");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// Until `stop`. `reading` is dropped when nothing waits any more that was there at the start.
    async fn forward_all(
        &self,
        queue: QueueName,
        reading: &mut Option<mpsc::Sender<()>>,
        stop: &CancellationToken,
    ) -> Result<(), QueueError> {
        self.ctx.queue.declare(queue).await?;
        let mut consumer = self.ctx.queue.consume(queue, PREFETCH).await?;
        let facts = self.ctx.registry.lane_facts(queue).await.map_err(|error| unavailable(queue, &error))?;
        let mut moved = self.left_by_the_dead(queue, facts, consumer.as_mut(), &mut || {}).await?;
        loop {
            let first = tokio::select! {
                () = stop.cancelled() => break,
                first = consumer.next() => first,
                () = sleep(EMPTY_AFTER), if moved > 0 || reading.is_some() => {
                    self.tell(queue, std::mem::take(&mut moved));
                    *reading = None;
                    continue;
                }
            };
            let Some(first) = first else { break };
            moved += self.send_lot(queue, first?, consumer.as_mut(), usize::from(PREFETCH)).await?;
        }
        consumer.stop().await;
        Ok(())
    }
}

fn unavailable(queue: QueueName, error: &RegistryError) -> QueueError {
    QueueError::Unavailable { queue: queue.to_string(), cause: error.to_string() }
}
