//! Jobs in queues that nobody of today's layout owns: the bare queues once there are several shards, and the queues of a
//! larger layout of before. Shard 0 forwards each to its owner's queue, and leaves alone every queue that is not ours.
//!
//! Parked jobs come first, lane by lane in their order, since they are older than what lies in the work queue.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Context, outcome::note_death, session::forward};
use crate::{
    identity::{QueueBase, QueueName},
    job::Job,
    progress::Stamp,
    queue::{Delivery, QueueError},
};

/// How often queues of another layout are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// A queue that gives nothing for so long is taken to be empty.
const EMPTY_AFTER: Duration = Duration::from_millis(200);
/// How many are on their way at a time.
const PREFETCH: u16 = 64;

/// Forwards what another layout left behind.
pub struct Stragglers {
    ctx: Arc<Context>,
}

impl Stragglers {
    /// For shard 0.
    pub fn new(ctx: Arc<Context>) -> Self {
        Self { ctx }
    }

    /// Whether a queue belongs to no shard of this layout.
    fn is_foreign(&self, queue: &QueueName) -> bool {
        let count = self.ctx.shard.count;
        match queue.index {
            None => count > 1,
            Some(index) => count <= 1 || index >= count,
        }
    }

    /// Looks once for queues of a larger layout, and for parked jobs of bare ones; how many jobs moved.
    pub async fn sweep(&self, stamp: &Stamp, stop: &CancellationToken) -> Result<u64, QueueError> {
        let mut moved = 0;
        for queue in self.ctx.queue.existing().await? {
            stamp.tick();
            if !self.is_foreign(&queue) || stop.is_cancelled() {
                continue;
            }
            let depth = self.ctx.queue.depth(queue).await?;
            let mut of_queue = if depth.parked > 0 { self.empty_parked(queue).await? } else { 0 };
            if queue.index.is_some() && depth.ready > 0 {
                of_queue += self.empty(queue, stamp, stop).await?;
            }
            if of_queue > 0 {
                self.tell(queue, of_queue);
                moved += of_queue;
            }
        }
        Ok(moved)
    }

    fn tell(&self, queue: QueueName, jobs: u64) {
        warn!(
            queue = %queue, jobs, shard_count = self.ctx.shard.count,
            "jobs of another layout were forwarded; check that producers use the same SHARD_COUNT"
        );
    }

    async fn empty(&self, queue: QueueName, stamp: &Stamp, stop: &CancellationToken) -> Result<u64, QueueError> {
        let mut moved = 0;
        let mut consumer = self.ctx.queue.consume(queue, PREFETCH).await?;
        while !stop.is_cancelled() {
            stamp.tick();
            let Ok(Some(delivery)) = timeout(EMPTY_AFTER, consumer.next()).await else { break };
            self.send_home(queue, delivery?).await?;
            moved += 1;
        }
        consumer.stop().await;
        Ok(moved)
    }

    async fn empty_parked(&self, queue: QueueName) -> Result<u64, QueueError> {
        let unavailable = |error: crate::registry::RegistryError| QueueError::Unavailable {
            queue: queue.to_string(),
            cause: error.to_string(),
        };
        let mut moved = 0;
        for fact in self.ctx.registry.lane_facts(queue).await.map_err(unavailable)? {
            loop {
                let lot = self.ctx.queue.unpark(queue, &fact.lane, usize::from(PREFETCH)).await?;
                if lot.is_empty() {
                    break;
                }
                for delivery in lot {
                    self.send_home(queue, delivery).await?;
                    moved += 1;
                }
            }
            self.ctx.registry.clear_lane_fact(queue, &fact.lane).await.map_err(unavailable)?;
        }
        Ok(moved)
    }

    async fn send_home(&self, queue: QueueName, delivery: Delivery) -> Result<(), QueueError> {
        let Delivery { receipt, mut message, .. } = delivery;
        message.headers.lane_seq = None;
        match Job::parse(&message.body) {
            Ok(job) => {
                let home = self.ctx.shard.queue_for_channel(job.base(), job.channel);
                self.ctx.metrics.forwarded.with_label_values(&["other_layout"]).inc();
                forward(&*self.ctx.queue, receipt, home, message).await
            }
            Err(not_a_job) => {
                let now = self.ctx.clock.wall_ms();
                note_death(&mut message.headers, "not_a_job", &not_a_job.to_string(), &queue.to_string(), now);
                self.ctx.queue.bury(receipt, message).await
            }
        }
    }

    /// Sweeps at start and from time to time, and reads the bare queues all the while, until `stop`.
    pub async fn run(self, stamp: Stamp, stop: CancellationToken) {
        let this = Arc::new(self);
        let mut readers = JoinSet::new();
        if this.ctx.shard.count > 1 {
            for base in QueueBase::ALL {
                let (this, stop) = (this.clone(), stop.clone());
                readers.spawn(async move { this.read_bare(QueueName::bare(base), stop).await });
            }
        }
        let mut told = false;
        while !stop.is_cancelled() {
            match this.sweep(&stamp, &stop).await {
                Ok(_) => told = false,
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        warn!(%error, "stragglers could not be looked for; trying again");
                    }
                }
            }
            let until = tokio::time::Instant::now() + LOOK_EVERY;
            while tokio::time::Instant::now() < until && !stop.is_cancelled() {
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
    async fn read_bare(&self, queue: QueueName, stop: CancellationToken) {
        let mut told = false;
        while !stop.is_cancelled() {
            if let Err(error) = self.forward_all(queue, &stop).await
                && !std::mem::replace(&mut told, true)
            {
                warn!(queue = %queue, %error, "a bare queue can't be read; trying again");
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    async fn forward_all(&self, queue: QueueName, stop: &CancellationToken) -> Result<(), QueueError> {
        self.ctx.queue.declare(queue).await?;
        let mut consumer = self.ctx.queue.consume(queue, PREFETCH).await?;
        let mut moved = 0u64;
        loop {
            let delivery = tokio::select! {
                () = stop.cancelled() => break,
                delivery = consumer.next() => delivery,
                () = sleep(EMPTY_AFTER), if moved > 0 => {
                    self.tell(queue, std::mem::take(&mut moved));
                    continue;
                }
            };
            let Some(delivery) = delivery else { break };
            self.send_home(queue, delivery?).await?;
            moved += 1;
        }
        consumer.stop().await;
        Ok(())
    }
}
