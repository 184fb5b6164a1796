//! Jobs in queues that nobody of today's layout owns: the bare queues once there are several shards, and the queues of a
//! larger layout of before. Shard 0 forwards each to its owner's queue, and leaves alone every queue that is not ours.
//!
//! Order within a lane stays: the head of a lane that waits may not have been moved aside when its process died, so that
//! it goes first; then what is parked, lane by lane; then what lies in the work queue, which is newer. All of it is older than
//! what producers write by the new layout: at the start of an epoch the workers wait until it has been forwarded
//! ([`older_jobs_first`]), and read it before their own queues.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, future::try_join_all};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Context, forward::forward_straggler, outcome::note_death, worker::while_ticking};
use crate::{
    identity::{QueueBase, QueueName},
    job::{Job, NotAJob},
    progress::Stamp,
    queue::{Consumer, Delivery, QueueError},
    registry::{LaneFact, RegistryError},
};

/// How often queues of another layout are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// A queue that gives nothing for so long is taken to be empty.
const EMPTY_AFTER: Duration = Duration::from_millis(200);
/// The pause before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How many are on their way at a time.
const PREFETCH: u16 = 64;

/// For how long workers wait for a shard 0 that says nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// How often they ask.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Waits until what other layouts' queues held at the start of this epoch has been forwarded. A shard 0 that never says so
/// doesn't keep the work from being done for ever; the order between old and new jobs is then not known.
pub async fn older_jobs_first(ctx: &Context, epoch: u64, stamp: &Stamp, stop: &CancellationToken) {
    let began = Instant::now();
    let mut told = false;
    while !stop.is_cancelled() {
        stamp.tick();
        match ctx.registry.swept().await {
            Ok(swept) if swept >= epoch => return,
            Ok(_) => {}
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    warn!(%error, "it can't be read whether older jobs were forwarded; trying again");
                }
            }
        }
        if began.elapsed() > SILENCE {
            warn!(epoch, "shard 0 did not say that the jobs of other layouts were forwarded; going on without");
            return;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(ASK_EVERY) => {}
        }
    }
}

/// Forwards what another layout left behind.
pub struct Stragglers {
    ctx: Arc<Context>,
    epoch: u64,
}

impl Stragglers {
    /// For shard 0, in an epoch of the layout.
    pub fn new(ctx: Arc<Context>, epoch: u64) -> Self {
        Self { ctx, epoch }
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

    fn tell(&self, queue: QueueName, jobs: u64) {
        if jobs > 0 {
            warn!(
                queue = %queue, jobs, shard_count = self.ctx.shard.count,
                "jobs of another layout were forwarded; check that producers use the same SHARD_COUNT"
            );
        }
    }

    async fn empty(
        &self,
        queue: QueueName,
        stop: &CancellationToken,
        tick: &mut (dyn FnMut() + Send),
    ) -> Result<u64, QueueError> {
        let mut consumer = self.ctx.queue.consume(queue, PREFETCH).await?;
        let mut moved = self.left_by_the_dead(queue, consumer.as_mut(), tick).await?;
        while !stop.is_cancelled() {
            tick();
            let Ok(Some(first)) = timeout(EMPTY_AFTER, consumer.next()).await else { break };
            moved += self.send_lot(queue, first?, consumer.as_mut()).await?;
        }
        consumer.stop().await;
        self.tell(queue, moved);
        Ok(moved)
    }

    /// Lanes that wait, and what was out when the queue's last process ended.
    async fn left_by_the_dead(
        &self,
        queue: QueueName,
        consumer: &mut dyn Consumer,
        tick: &mut (dyn FnMut() + Send),
    ) -> Result<u64, QueueError> {
        let facts = self.ctx.registry.lane_facts(queue).await.map_err(|error| unavailable(queue, &error))?;
        if facts.is_empty() {
            return Ok(0);
        }
        let (mut heads, mut later) = (Vec::new(), Vec::new());
        let waiting: HashSet<_> = facts.iter().map(|fact| (fact.lane.clone(), fact.head.clone())).collect();
        while heads.len() + later.len() < usize::from(PREFETCH) {
            let Ok(Some(delivery)) = timeout(EMPTY_AFTER, consumer.next()).await else { break };
            let delivery = delivery?;
            let redelivered = delivery.redelivered;
            match Job::parse(&delivery.message.body) {
                Ok(job) if waiting.contains(&(job.lane(queue.base), job.id.clone())) => heads.push(delivery),
                _ => later.push(delivery),
            }
            if !redelivered {
                break;
            }
        }
        let mut moved = self.send_home(queue, heads).await?;
        for fact in facts {
            moved += self.empty_lane(queue, &fact, tick).await?;
        }
        Ok(moved + self.send_home(queue, later).await?)
    }

    async fn empty_lane(
        &self,
        queue: QueueName,
        fact: &LaneFact,
        tick: &mut (dyn FnMut() + Send),
    ) -> Result<u64, QueueError> {
        let mut moved = 0;
        loop {
            tick();
            let lot = self.ctx.queue.unpark(queue, &fact.lane, usize::from(PREFETCH)).await?;
            if lot.is_empty() {
                break;
            }
            moved += self.send_home(queue, lot).await?;
        }
        let cleared = self.ctx.registry.clear_lane_fact(queue, &fact.lane).await;
        cleared.map_err(|error| unavailable(queue, &error))?;
        Ok(moved)
    }

    /// A delivery, and what has come with it.
    async fn send_lot(
        &self,
        queue: QueueName,
        first: Delivery,
        consumer: &mut dyn Consumer,
    ) -> Result<u64, QueueError> {
        let mut lot = vec![first];
        while lot.len() < usize::from(PREFETCH) {
            match consumer.next().now_or_never() {
                Some(Some(delivery)) => lot.push(delivery?),
                Some(None) | None => break,
            }
        }
        self.send_home(queue, lot).await
    }

    /// One channel's one after another, channels side by side.
    async fn send_home(&self, queue: QueueName, lot: Vec<Delivery>) -> Result<u64, QueueError> {
        let moved = lot.len() as u64;
        let mut lines: HashMap<_, Vec<_>> = HashMap::new();
        for delivery in lot {
            let job = Job::parse(&delivery.message.body);
            let channel = job.as_ref().ok().map(|job| job.channel);
            lines.entry(channel).or_default().push((job, delivery));
        }
        let lines = lines.into_values().map(|line| async move {
            for (job, delivery) in line {
                self.send(queue, job, delivery).await?;
            }
            Ok(())
        });
        try_join_all(lines).await?;
        Ok(moved)
    }

    async fn send(&self, queue: QueueName, job: Result<Job, NotAJob>, delivery: Delivery) -> Result<(), QueueError> {
        let Delivery { receipt, mut message, .. } = delivery;
        message.headers.lane_seq = None;
        match job {
            Ok(job) => {
                self.ctx.metrics.forwarded.with_label_values(&["other_layout"]).inc();
                forward_straggler(&*self.ctx.queue, &receipt, self.home(&job), message).await
            }
            Err(not_a_job) => {
                let now = self.ctx.clock.wall_ms();
                note_death(&mut message.headers, "not_a_job", &not_a_job.to_string(), &queue.to_string(), now);
                self.ctx.queue.bury(receipt, message).await
            }
        }
    }

    fn home(&self, job: &Job) -> QueueName {
        self.ctx.shard.queue_for_channel(job.base(), job.channel)
    }

    /// Sweeps at start and from time to time, and reads the bare queues all the while, until `stop`.
    pub async fn run(self, stamp: Stamp, stop: CancellationToken) {
        let this = Arc::new(self);
        let mut readers = JoinSet::new();
        // Each reader of a bare queue says once that it has come to its end; all have when the channel is closed.
        let (reading, mut caught_up) = mpsc::channel::<()>(1);
        if this.ctx.shard.count > 1 {
            for base in QueueBase::ALL {
                let (this, stop, reading) = (this.clone(), stop.clone(), reading.clone());
                readers.spawn(async move { this.read_bare(QueueName::bare(base), reading, stop).await });
            }
        }
        drop(reading);
        let mut told = false;
        while !stop.is_cancelled() {
            let swept = async {
                this.sweep(&stamp, &stop).await.map_err(|error| error.to_string())?;
                while_ticking(&stamp, caught_up.recv()).await;
                if stop.is_cancelled() {
                    return Ok(());
                }
                // Said each time, for a registry may forget it.
                this.ctx.registry.mark_swept(this.epoch).await.map_err(|error| error.to_string())
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
        let mut moved = self.left_by_the_dead(queue, consumer.as_mut(), &mut || {}).await?;
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
            moved += self.send_lot(queue, first?, consumer.as_mut()).await?;
        }
        consumer.stop().await;
        Ok(())
    }
}

fn unavailable(queue: QueueName, error: &RegistryError) -> QueueError {
    QueueError::Unavailable { queue: queue.to_string(), cause: error.to_string() }
}
