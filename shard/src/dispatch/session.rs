//! One subscription of a queue: what is in memory, what is at work, what is being settled.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::mpsc,
    task::{Id, JoinSet},
    time::{sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    Context, SUSPECTED_FROM,
    forward::{Forwarding, Parcel, forward_whatever_it_takes},
    mover::{Moved, Order},
    outcome::{Verdict, failed_attempt, note_death, note_failure},
    perform::Performer,
};
use crate::{
    identity::{ChannelId, QueueName},
    job::Job,
    progress::Stamp,
    queue::{Action, Arrival, Consumer, Delivery, Key, Lanes, Message, QueueError, Receipt},
    registry::RegistryError,
};

/// How long the loop sleeps at most, so that its stamp ticks.
const TICK: Duration = Duration::from_millis(250);
/// No delivery for so long after the start: whatever an earlier life left has arrived.
const QUIET: Duration = Duration::from_millis(300);

/// A settlement that has ended.
struct Settled {
    /// The delivery whose lane waits for it.
    key: Option<Key>,
    /// The channel whose next message may be forwarded.
    forwarded: Option<ChannelId>,
    result: Result<(), QueueError>,
}

type Settling = BoxFuture<'static, Settled>;

/// A delivery in memory.
struct Held {
    receipt: Receipt,
    message: Message,
    job: Arc<Job>,
    suspect: bool,
    parked: bool,
}

pub(super) struct Session<'a> {
    ctx: &'a Arc<Context>,
    performer: &'a Arc<Performer>,
    queue: QueueName,
    prefetch: usize,
    lanes: Lanes,
    held: HashMap<Key, Held>,
    next_key: Key,
    /// Held deliveries that count against the prefetch.
    fresh: usize,
    work: JoinSet<Verdict>,
    working: HashMap<Id, Key>,
    settling: FuturesUnordered<Settling>,
    forwarding: Forwarding,
    orders: mpsc::UnboundedSender<Order>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        performer: &'a Arc<Performer>,
        queue: QueueName,
        prefetch: u16,
        lanes: Lanes,
        orders: mpsc::UnboundedSender<Order>,
    ) -> Self {
        Self {
            ctx: &performer.ctx,
            performer,
            queue,
            prefetch: usize::from(prefetch),
            lanes,
            held: HashMap::new(),
            next_key: 0,
            fresh: 0,
            work: JoinSet::new(),
            working: HashMap::new(),
            settling: FuturesUnordered::new(),
            forwarding: Forwarding::default(),
            orders,
        }
    }

    pub(super) async fn serve(
        &mut self,
        consumer: &mut dyn Consumer,
        moved: &mut mpsc::UnboundedReceiver<Moved>,
        stamp: &Stamp,
        stop: &CancellationToken,
    ) -> Result<(), String> {
        let mut caught_up = false;
        let mut quiet_at = tokio::time::Instant::now() + QUIET;
        loop {
            stamp.tick();
            let now = self.ctx.clock.wall_ms();
            if !caught_up && tokio::time::Instant::now() >= quiet_at {
                caught_up = true;
                let actions = self.lanes.caught_up(now);
                self.act(actions);
            }
            let due = self.lanes.next_due_ms().map_or(TICK, |due| Duration::from_millis((due - now).max(1) as u64));
            let wake = tokio::time::Instant::now() + due.min(TICK);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(done) = self.work.join_next_with_id() => self.worked(done),
                Some(settled) = self.settling.next() => self.settled(settled)?,
                Some(step) = moved.recv() => self.moved(step).await?,
                delivery = consumer.next() => {
                    let Some(delivery) = delivery else { return Err("the subscription ended".to_owned()) };
                    let delivery = delivery.map_err(|error| error.to_string())?;
                    quiet_at = tokio::time::Instant::now() + QUIET;
                    if delivery.redelivered {
                        let first_fresh = self.take_redelivered(delivery, consumer).await?;
                        if let Some(delivery) = first_fresh {
                            caught_up = self.first_fresh(caught_up);
                            self.take(delivery, false);
                        }
                    } else {
                        caught_up = self.first_fresh(caught_up);
                        self.take(delivery, false);
                    }
                }
                () = sleep_until(wake) => {
                    let full = self.fresh >= self.prefetch;
                    let actions = self.lanes.tick(self.ctx.clock.wall_ms(), full);
                    self.act(actions);
                }
            }
        }
    }

    /// A delivery that nobody had before: what an earlier life left has all come before it.
    fn first_fresh(&mut self, caught_up: bool) -> bool {
        if !caught_up {
            let actions = self.lanes.caught_up(self.ctx.clock.wall_ms());
            self.act(actions);
        }
        true
    }

    /// What was out when a process died comes in one go: its deaths are counted in one write.
    async fn take_redelivered(
        &mut self,
        first: Delivery,
        consumer: &mut dyn Consumer,
    ) -> Result<Option<Delivery>, String> {
        let mut batch = vec![first];
        let mut fresh = None;
        while batch.len() < self.prefetch {
            match timeout(Duration::from_millis(2), consumer.next()).await.ok() {
                Some(Some(Ok(delivery))) if delivery.redelivered => batch.push(delivery),
                Some(Some(Ok(delivery))) => {
                    fresh = Some(delivery);
                    break;
                }
                Some(Some(Err(error))) => return Err(error.to_string()),
                Some(None) => return Err("the subscription ended".to_owned()),
                None => break,
            }
        }
        let jobs: Vec<_> = batch
            .iter()
            .filter_map(|delivery| Job::parse(&delivery.message.body).ok())
            .map(|job| (job.channel, job.id))
            .collect();
        let counts = match self.ctx.registry.count_deaths(&jobs, SUSPECTED_FROM).await {
            Ok(counts) => counts,
            Err(error @ RegistryError::Fenced { .. }) => return Err(error.to_string()),
            Err(error) => {
                warn!(queue = %self.queue, %error, "deaths could not be counted");
                vec![0; jobs.len()]
            }
        };
        let deaths: HashMap<_, _> = jobs.into_iter().map(|(_, id)| id).zip(counts).collect();
        for delivery in batch {
            let suspect = Job::parse(&delivery.message.body)
                .is_ok_and(|job| deaths.get(&job.id).is_some_and(|count| *count >= SUSPECTED_FROM));
            self.take(delivery, suspect);
        }
        Ok(fresh)
    }

    /// A delivery from the work queue: into its lane, or away when it is no job, or not ours.
    fn take(&mut self, delivery: Delivery, suspect: bool) {
        let Delivery { receipt, mut message, .. } = delivery;
        let job = match Job::parse(&message.body) {
            Ok(job) => Arc::new(job),
            Err(not_a_job) => {
                warn!(queue = %self.queue, error = %not_a_job, "a message is no job; it goes to the dead letters");
                let origin = self.queue.to_string();
                let now = self.ctx.clock.wall_ms();
                note_death(&mut message.headers, "not_a_job", &not_a_job.to_string(), &origin, now);
                self.count("not_a_job");
                self.settle(None, receipt, Settlement::Bury(message));
                return;
            }
        };
        let lane = job.lane(self.queue.base);
        if let Some(home) = self.elsewhere(&job)
            && !self.lanes.waits(&lane)
        {
            self.forward(Parcel { channel: job.channel, receipt, to: home, message, key: None });
            return;
        }
        let key = self.next_key;
        self.next_key += 1;
        self.fresh += 1;
        let arrival = Arrival { key, id: job.id.clone(), lane, barrier: job.task.is_barrier(), suspect };
        self.held.insert(key, Held { receipt, message, job, suspect, parked: false });
        let actions = self.lanes.arrived(arrival, self.ctx.clock.wall_ms());
        self.act(actions);
    }

    /// Where a job belongs, if that is not here; it is on its way there then.
    fn elsewhere(&self, job: &Job) -> Option<QueueName> {
        let home = self.ctx.shard.queue_for_channel(job.base(), job.channel);
        if home == self.queue {
            return None;
        }
        let reason = if home.base == self.queue.base { "other_shard" } else { "other_queue" };
        self.ctx.metrics.forwarded.with_label_values(&[reason]).inc();
        Some(home)
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            let order = match action {
                Action::Start(key) => {
                    self.start(key);
                    continue;
                }
                Action::StoreFact(fact) => Order::Store(fact),
                Action::ClearFact(lane) => Order::Clear(lane),
                Action::Unpark { lane, limit } => Order::Unpark { lane, limit },
                Action::Park { key, lane, seq } => match self.let_go(key) {
                    Some(held) => Order::Park { receipt: held.receipt, lane, seq, message: held.message },
                    None => continue,
                },
            };
            let _ = self.orders.send(order);
        }
    }

    fn let_go(&mut self, key: Key) -> Option<Held> {
        let held = self.held.remove(&key)?;
        self.fresh -= usize::from(!held.parked);
        Some(held)
    }

    fn start(&mut self, key: Key) {
        let Some(held) = self.held.get(&key) else { return };
        if let Some(home) = self.elsewhere(&held.job) {
            // Parked under another layout: it goes in its lane's turn, so that what came later stays behind it.
            if let Some(held) = self.let_go(key) {
                let Held { receipt, message, job, .. } = held;
                self.forward(Parcel { channel: job.channel, receipt, to: home, message, key: Some(key) });
            }
            return;
        }
        let performer = self.performer.clone();
        let job = held.job.clone();
        let failures = held.message.headers.attempts;
        let suspect = held.suspect;
        let base = self.queue.base.as_str();
        let task = self.work.spawn(async move {
            let metrics = &performer.ctx.metrics;
            metrics.jobs_running.with_label_values(&[base]).inc();
            let began = Instant::now();
            let verdict = if suspect {
                performer.perform_alone(&job, failures).await
            } else {
                performer.perform(&job, failures).await
            };
            metrics.job_duration.observe(began.elapsed().as_secs_f64());
            metrics.jobs_running.with_label_values(&[base]).dec();
            verdict
        });
        self.working.insert(task.id(), key);
    }

    fn worked(&mut self, done: Result<(Id, Verdict), tokio::task::JoinError>) {
        let (id, verdict) = match done {
            Ok((id, verdict)) => (id, verdict),
            Err(failure) => {
                let panicked = failure.is_panic();
                error!(queue = %self.queue, panicked, "the work on a job broke off");
                self.ctx.metrics.jobs_running.with_label_values(&[self.queue.base.as_str()]).dec();
                (failure.id(), Verdict::Postpone { after: Duration::ZERO, failure: Some("the work panicked".into()) })
            }
        };
        let Some(key) = self.working.remove(&id) else { return };
        let Some(held) = self.held.get_mut(&key) else { return };
        let now = self.ctx.clock.wall_ms();
        let verdict = match verdict {
            // A panic is a failed attempt like any other: it waits, and it has an end.
            Verdict::Postpone { after: Duration::ZERO, failure: Some(error) } => {
                failed_attempt(&self.ctx.retry, held.message.headers.attempts, error)
            }
            other => other,
        };
        match verdict {
            Verdict::Done => {
                self.count("done");
                self.settle_held(key, |_| Settlement::Ack);
            }
            Verdict::Postpone { after, failure } => {
                if let Some(error) = failure {
                    note_failure(&mut held.message.headers, &error);
                    self.count("retried");
                }
                let due = now.saturating_add(after.as_millis().min(i64::MAX as u128) as i64);
                let actions = self.lanes.postponed(key, due, now);
                self.act(actions);
            }
            Verdict::Bury { reason, error } => {
                info!(queue = %self.queue, job = %held.job.id, reason, "a job goes to the dead letters");
                held.message.headers.attempts += 1;
                let origin = self.queue.to_string();
                note_death(&mut held.message.headers, reason, &error, &origin, now);
                self.count(if reason == "exhausted" { "exhausted" } else { "dead" });
                self.settle_held(key, Settlement::Bury);
            }
        }
    }

    fn count(&self, outcome: &str) {
        self.ctx.metrics.jobs.with_label_values(&[self.queue.base.as_str(), outcome]).inc();
    }

    fn settle_held(&mut self, key: Key, settlement: impl FnOnce(Message) -> Settlement) {
        if let Some(held) = self.let_go(key) {
            self.settle(Some(key), held.receipt, settlement(held.message));
        }
    }

    fn settle(&mut self, key: Option<Key>, receipt: Receipt, settlement: Settlement) {
        let queue = self.ctx.queue.clone();
        self.settling.push(
            async move {
                let result = match settlement {
                    Settlement::Ack => queue.ack(receipt).await,
                    Settlement::Bury(message) => queue.bury(receipt, message).await,
                    Settlement::Release => queue.release(vec![receipt]).await,
                };
                Settled { key, forwarded: None, result }
            }
            .boxed(),
        );
    }

    fn forward(&mut self, parcel: Parcel) {
        if let Some(parcel) = self.forwarding.enter(parcel) {
            self.send(parcel);
        }
    }

    fn send(&mut self, parcel: Parcel) {
        let queue = self.ctx.queue.clone();
        self.settling.push(
            async move {
                let Parcel { channel, receipt, to, message, key } = parcel;
                let result = forward_whatever_it_takes(&*queue, receipt, to, message).await;
                Settled { key, forwarded: Some(channel), result }
            }
            .boxed(),
        );
    }

    fn settled(&mut self, settled: Settled) -> Result<(), String> {
        settled.result.map_err(|error| error.to_string())?;
        if let Some(next) = settled.forwarded.and_then(|channel| self.forwarding.next(channel)) {
            self.send(next);
        }
        if let Some(key) = settled.key {
            let actions = self.lanes.finished(key, self.ctx.clock.wall_ms());
            self.act(actions);
        }
        Ok(())
    }

    async fn moved(&mut self, step: Moved) -> Result<(), String> {
        let now = self.ctx.clock.wall_ms();
        let actions = match step {
            Moved::Ended(error) => return Err(error),
            Moved::Cleared(lane) => self.lanes.cleared(&lane, now),
            Moved::Unparked { lane, deliveries } => {
                let mut lot = Vec::with_capacity(deliveries.len());
                for Delivery { receipt, message, .. } in deliveries {
                    // Only jobs are ever parked; whatever else is found there goes the way of all that is no job.
                    let Ok(job) = Job::parse(&message.body).map(Arc::new) else {
                        self.settle(None, receipt, Settlement::Bury(message));
                        continue;
                    };
                    let key = self.next_key;
                    self.next_key += 1;
                    let seq = message.headers.lane_seq.unwrap_or_default();
                    let arrival = Arrival {
                        key,
                        id: job.id.clone(),
                        lane: lane.clone(),
                        barrier: job.task.is_barrier(),
                        suspect: false,
                    };
                    lot.push((arrival, seq));
                    self.held.insert(key, Held { receipt, message, job, suspect: false, parked: true });
                }
                self.lanes.unparked(&lane, lot, now)
            }
        };
        self.act(actions);
        Ok(())
    }

    /// Contract Q10: what has not begun goes back at once, in order; what runs gets the grace.
    pub(super) async fn drain(&mut self, moved: &mut mpsc::UnboundedReceiver<Moved>, stamp: &Stamp) {
        let waiting = self.lanes.waiting();
        let receipts: Vec<_> = waiting.iter().filter_map(|key| self.let_go(*key)).map(|held| held.receipt).collect();
        self.release(receipts).await;
        let deadline = tokio::time::Instant::now() + self.ctx.grace;
        loop {
            stamp.tick();
            while let Ok(step) = moved.try_recv() {
                if let Moved::Unparked { deliveries, .. } = step {
                    self.release(deliveries.into_iter().map(|delivery| delivery.receipt).collect()).await;
                }
            }
            let busy = !self.work.is_empty() || !self.settling.is_empty();
            if !busy {
                break;
            }
            tokio::select! {
                Some(done) = self.work.join_next_with_id() => self.ended(done),
                Some(settled) = self.settling.next() => {
                    if let Err(error) = settled.result {
                        warn!(queue = %self.queue, %error, "a job could not be settled while stopping");
                    }
                }
                () = sleep(TICK) => {}
                () = sleep_until(deadline) => break,
            }
        }
        if !self.work.is_empty() {
            warn!(queue = %self.queue, jobs = self.work.len(), "the grace is over; these jobs are given back unfinished");
            self.work.shutdown().await;
        }
        let left: Vec<Key> = self.held.keys().copied().collect();
        let receipts: Vec<_> = left.into_iter().filter_map(|key| self.let_go(key)).map(|held| held.receipt).collect();
        self.release(receipts).await;
    }

    /// A job that ended during the drain: settled if it is done, given back if it must wait (no lane moves any more).
    fn ended(&mut self, done: Result<(Id, Verdict), tokio::task::JoinError>) {
        let postponed = matches!(&done, Ok((_, Verdict::Postpone { .. })) | Err(_));
        if postponed {
            let id = done.map_or_else(|failure| failure.id(), |(id, _)| id);
            if let Some(held) = self.working.remove(&id).and_then(|key| self.let_go(key)) {
                self.settle(None, held.receipt, Settlement::Release);
            }
        } else {
            self.worked(done);
        }
    }

    async fn release(&mut self, receipts: Vec<Receipt>) {
        if receipts.is_empty() {
            return;
        }
        if let Err(error) = self.ctx.queue.release(receipts).await {
            warn!(queue = %self.queue, %error, "jobs could not be given back; they come again when the queue is next read");
        }
    }
}

enum Settlement {
    Ack,
    Bury(Message),
    Release,
}
