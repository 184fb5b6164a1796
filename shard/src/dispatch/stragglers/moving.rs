//! Emptying a queue without losing the order of any lane: the head of a lane that waits may not have been moved aside when its
//! process died, so that it goes first; then what is parked, lane by lane; then what lies in the work queue, which is newer.

use std::collections::{HashMap, HashSet};

use futures_util::{FutureExt, future::try_join_all};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{EMPTY_AFTER, PREFETCH, Stragglers, unavailable};
use crate::{
    dispatch::{forward::forward_straggler, outcome::note_death},
    identity::QueueName,
    job::{Job, NotAJob},
    progress::Stamp,
    queue::{Consumer, Delivery, QueueError},
    registry::LaneFact,
};

impl Stragglers {
    pub(super) fn tell(&self, queue: QueueName, jobs: u64) {
        if jobs > 0 {
            warn!(
                queue = %queue, jobs, shard_count = self.ctx.shard.count,
                "jobs of another layout were forwarded; check that producers use the same SHARD_COUNT"
            );
        }
    }

    pub(super) async fn empty(
        &self,
        queue: QueueName,
        stop: &CancellationToken,
        tick: &mut (dyn FnMut() + Send),
    ) -> Result<u64, QueueError> {
        let mut consumer = self.ctx.queue.consume(queue, PREFETCH).await?;
        let facts = self.ctx.registry.lane_facts(queue).await.map_err(|error| unavailable(queue, &error))?;
        let mut moved = self.left_by_the_dead(queue, facts, consumer.as_mut(), tick).await?;
        while !stop.is_cancelled() {
            tick();
            let Ok(Some(first)) = timeout(EMPTY_AFTER, consumer.next()).await else { break };
            moved += self.send_lot(queue, first?, consumer.as_mut(), usize::from(PREFETCH)).await?;
        }
        consumer.stop().await;
        self.tell(queue, moved);
        Ok(moved)
    }

    /// What lies in a queue of this shard goes, in its order, to where it is read first: here, or at another shard. Lanes that wait
    /// here stay. No more moves than was there before the layout was published.
    pub(super) async fn sort_queue(&self, queue: QueueName, waited: u64, stamp: &Stamp) -> Result<(), QueueError> {
        self.ctx.queue.declare(queue).await?;
        let mut facts = self.ctx.registry.lane_facts(queue).await.map_err(|error| unavailable(queue, &error))?;
        facts.retain(|fact| self.ctx.shard.queue_for_channel(fact.lane.base, fact.lane.channel) != queue);
        let mut left = waited;
        if left == 0 && facts.is_empty() {
            return Ok(());
        }
        let Some(mut consumer) = self.ctx.queue.consume_past_stragglers(queue, PREFETCH).await? else {
            return Ok(());
        };
        let mut moved = self.left_by_the_dead(queue, facts, consumer.as_mut(), &mut || stamp.tick()).await?;
        left = left.saturating_sub(moved);
        while left > 0 {
            stamp.tick();
            let Ok(Some(first)) = timeout(EMPTY_AFTER, consumer.next()).await else { break };
            let most = left.min(u64::from(PREFETCH)) as usize;
            let lot = self.send_lot(queue, first?, consumer.as_mut(), most).await?;
            (left, moved) = (left.saturating_sub(lot), moved + lot);
        }
        consumer.stop().await;
        if moved > 0 {
            info!(queue = %queue, jobs = moved, "jobs of the layout before were put in front of those of this one");
        }
        Ok(())
    }

    /// Lanes that wait, and what was out when the queue's last process ended.
    pub(super) async fn left_by_the_dead(
        &self,
        queue: QueueName,
        facts: Vec<LaneFact>,
        consumer: &mut dyn Consumer,
        tick: &mut (dyn FnMut() + Send),
    ) -> Result<u64, QueueError> {
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

    /// A delivery, and what has come with it, up to a number.
    pub(super) async fn send_lot(
        &self,
        queue: QueueName,
        first: Delivery,
        consumer: &mut dyn Consumer,
        most: usize,
    ) -> Result<u64, QueueError> {
        let mut lot = vec![first];
        while lot.len() < most {
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
}
