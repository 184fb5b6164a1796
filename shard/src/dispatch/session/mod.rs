//! One subscription of a queue: what is in memory, what is at work, what is being settled.

mod drain;
mod intake;
mod settling;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use prometheus::IntCounter;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::settling::{Finished, Settling};
use super::{
    Availability, Context,
    forward::Forwarding,
    lane_time::LaneTime,
    mover::{Moved, Order},
    perform::Performer,
    work::Work,
};
use crate::{
    identity::{ChannelId, QueueName},
    job::Job,
    progress::Stamp,
    queue::{Action, Consumer, Key, Lanes, Message, Receipt},
};

/// How long the loop sleeps at most, so that its stamp ticks.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// So many deliveries that have come together are taken in one turn of the loop.
const BURST: u32 = 64;
/// No delivery for so long after the start: whatever an earlier life left has arrived.
const QUIET: Duration = Duration::from_millis(300);

/// The outcome of a job that was done.
const DONE: &str = "done";

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
    time: LaneTime,
    lanes: Lanes,
    held: HashMap<Key, Held>,
    next_key: Key,
    /// Held deliveries that count against the prefetch.
    fresh: usize,
    work: &'a mut Work,
    /// Done, and to be acknowledged in this turn.
    finished: Vec<Finished>,
    settling: FuturesUnordered<Settling>,
    forwarding: Forwarding,
    /// Channels that jobs have made room for others for.
    awaited: HashSet<ChannelId>,
    orders: mpsc::UnboundedSender<Order>,
    draining: bool,
    /// Jobs that were done, by far the most of all that is counted.
    done: IntCounter,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        performer: &'a Arc<Performer>,
        work: &'a mut Work,
        queue: QueueName,
        prefetch: u16,
        time: LaneTime,
        lanes: Lanes,
        orders: mpsc::UnboundedSender<Order>,
    ) -> Self {
        Self {
            ctx: &performer.ctx,
            performer,
            queue,
            prefetch: usize::from(prefetch),
            time,
            lanes,
            held: HashMap::new(),
            next_key: 0,
            fresh: 0,
            work,
            finished: Vec::new(),
            settling: FuturesUnordered::new(),
            forwarding: Forwarding::default(),
            awaited: HashSet::new(),
            orders,
            draining: false,
            done: performer.ctx.metrics.jobs.with_label_values(&[queue.base.as_str(), DONE]),
        }
    }

    pub(super) async fn serve(
        &mut self,
        consumer: &mut dyn Consumer,
        moved: &mut mpsc::UnboundedReceiver<Moved>,
        stamp: &Stamp,
        stop: &CancellationToken,
    ) -> Result<(), String> {
        let began = Instant::now();
        let mut caught_up = false;
        let (mut heard, mut tick_at) = (began, began + TICK);
        loop {
            stamp.tick();
            let now = Instant::now();
            if !caught_up && now >= heard + QUIET {
                caught_up = true;
                self.catch_up();
            }
            // Not left to the select, in which whatever comes without a pause would keep it out.
            let wake = self.lanes.next_due_ms().map_or(tick_at, |due| tick_at.min(now + self.time.until(due)));
            if now >= wake {
                tick_at = now + TICK;
                self.tick();
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(done) = self.work.next() => {
                    self.judge(done);
                    // Those that ended in the same turn need no look at everything else in between.
                    while let Some(Some(done)) = self.work.next().now_or_never() {
                        self.judge(done);
                    }
                    self.acknowledge();
                }
                Some(settled) = self.settling.next() => {
                    self.settled(settled)?;
                    while let Some(Some(settled)) = self.settling.next().now_or_never() {
                        self.settled(settled)?;
                    }
                }
                Some(step) = moved.recv() => self.moved(step, stamp).await?,
                delivery = consumer.next() => {
                    let (mut next, mut burst) = (Some(delivery), BURST);
                    while let Some(delivery) = next.take() {
                        let delivery = delivery.ok_or("the subscription ended")?.map_err(|error| error.to_string())?;
                        let first_fresh =
                            if delivery.redelivered { self.take_redelivered(delivery, consumer, stamp).await? } else { Some(delivery) };
                        if let Some(delivery) = first_fresh {
                            // Nobody had this one before: what an earlier life left has all come before it.
                            if !std::mem::replace(&mut caught_up, true) {
                                self.catch_up();
                            }
                            self.take(delivery.into());
                        }
                        burst -= 1;
                        if burst > 0 {
                            next = consumer.next().now_or_never();
                        }
                    }
                    heard = Instant::now();
                }
                () = sleep_until(wake.max(now)) => {}
            }
        }
    }

    fn catch_up(&mut self) {
        let actions = self.lanes.caught_up(self.time.now());
        self.act(actions);
    }

    /// Whether the prefetch is used up.
    fn is_full(&self) -> bool {
        self.fresh + self.forwarding.len() >= self.prefetch
    }

    fn tick(&mut self) {
        let full = self.is_full();
        let actions = self.lanes.tick(self.time.now(), full);
        self.act(actions);
        let crowded = full || self.lanes.is_crowded();
        self.performer.crowded.send_if_modified(|before| std::mem::replace(before, crowded) != crowded);
        let channels = &self.ctx.channels;
        let is_up = |channel: &ChannelId| !matches!(channels.availability(*channel), Availability::Starting);
        let up: Vec<ChannelId> = self.awaited.iter().copied().filter(is_up).collect();
        for channel in up {
            self.awaited.remove(&channel);
            let actions = self.lanes.channel_is_up(channel, self.time.now());
            self.act(actions);
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            let order = match action {
                Action::Start(_) | Action::Unpark { .. } if self.draining => continue,
                Action::Start(key) => {
                    self.start(key);
                    continue;
                }
                Action::StoreFact(mut fact) => {
                    fact.due_ms = self.time.wall(fact.due_ms);
                    Order::Store(fact)
                }
                Action::ClearFact(lane) => Order::Clear(lane),
                Action::Unpark { lane, limit } => Order::Unpark { lane, limit },
                Action::Park { key, lane, seq } => match self.let_go(key) {
                    Some(held) => Order::Park { receipt: held.receipt, lane, seq, message: held.message },
                    None => continue,
                },
            };
            // Refused only when the mover has ended, which says so by itself.
            let _ = self.orders.send(order);
        }
    }

    /// Nothing more is moved.
    pub(super) fn end_orders(&mut self) {
        self.orders = mpsc::unbounded_channel().0;
    }

    /// The session is over; what is still at work goes on.
    pub(super) fn end(self) {
        self.work.session_ended(self.held.into_values().map(|held| held.job.id.clone()));
    }

    fn let_go(&mut self, key: Key) -> Option<Held> {
        let held = self.held.remove(&key)?;
        self.fresh -= usize::from(!held.parked);
        Some(held)
    }

    fn count(&self, outcome: &str) {
        if outcome == DONE {
            return self.done.inc();
        }
        self.ctx.metrics.jobs.with_label_values(&[self.queue.base.as_str(), outcome]).inc();
    }
}
