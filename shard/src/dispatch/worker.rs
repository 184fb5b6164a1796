//! The loop of one queue: deliveries in, lanes, work, settlement.
//!
//! A *session* is one subscription. When it ends (broker gone, receipts stale) nothing is lost: what was out is delivered
//! again, and a new session begins from the stored facts.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    Context,
    lane_time::LaneTime,
    mover,
    perform::Performer,
    session::{Session, TICK},
    work::Work,
};
use crate::{
    identity::QueueName,
    progress::Stamp,
    queue::{Lanes, Limits},
};

/// How a queue is worked.
#[derive(Debug, Clone, Copy)]
pub struct WorkerOptions {
    /// Deliveries out at a time.
    pub prefetch: u16,
    /// What may be at work and in memory.
    pub limits: Limits,
}

/// The worker of one queue.
pub struct QueueWorker {
    performer: Arc<Performer>,
    queue: QueueName,
    options: WorkerOptions,
}

/// A backlog of which less than one gets on in this time makes room for others.
const SLOW_MS: i64 = 2;
/// The pauses between sessions.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A session that lasted so long was a good one.
const GOOD: Duration = Duration::from_secs(30);
/// How long what is being moved may take at least, when the grace is over.
const LAST_MOVES: Duration = Duration::from_secs(1);

impl QueueWorker {
    /// A worker that has not begun.
    pub fn new(ctx: Arc<Context>, queue: QueueName, options: WorkerOptions) -> Self {
        // One channel alone never uses the prefetch up either.
        let half = usize::from(options.prefetch).div_ceil(2).max(1);
        let running_per_channel = options.limits.running_per_channel.min(half);
        let behind = usize::from(options.prefetch).saturating_sub(running_per_channel) as i64;
        let spill_after_ms = options.limits.spill_after_ms.min(SLOW_MS * behind.max(1));
        let limits = Limits { running_per_channel, spill_after_ms, ..options.limits };
        Self { performer: Arc::new(Performer::new(ctx)), queue, options: WorkerOptions { limits, ..options } }
    }

    /// Works until `stop`; then releases what has not begun, waits for the rest as long as the grace allows, and returns.
    pub async fn run(self, stamp: Stamp, stop: CancellationToken) {
        let mut work = Work::new(self.queue.base);
        let mut pause = SHORTEST_PAUSE;
        let mut told = String::new();
        while !stop.is_cancelled() {
            let began = Instant::now();
            let Err(ended) = self.session(&mut work, &stamp, &stop).await else { return };
            self.performer.ctx.unsubscribed(self.queue, &ended);
            if began.elapsed() > GOOD {
                (pause, told) = (SHORTEST_PAUSE, String::new());
            }
            if told != ended {
                warn!(queue = %self.queue, error = %ended, "a queue session ended; subscribing again");
                told = ended;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = while_ticking(&stamp, sleep(pause)) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // Between two sessions there is nothing to settle by, but what is on the wire is finished.
        let deadline = Instant::now() + self.performer.ctx.grace;
        while !work.is_idle() && Instant::now() < deadline {
            stamp.tick();
            tokio::select! {
                _ = work.next() => {}
                () = sleep(TICK) => {}
                () = sleep_until(deadline) => {}
            }
        }
        work.abort().await;
    }

    async fn session(&self, work: &mut Work, stamp: &Stamp, stop: &CancellationToken) -> Result<(), String> {
        let ctx = &self.performer.ctx;
        let time = LaneTime::new(ctx.clock.clone());
        let begin = async {
            let facts = ctx.registry.lane_facts(self.queue).await.map_err(|error| error.to_string())?;
            let consumer = ctx.queue.consume(self.queue, self.options.prefetch).await;
            Ok::<_, String>((facts, consumer.map_err(|error| error.to_string())?))
        };
        let (mut facts, mut consumer) = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            begun = while_ticking(stamp, begin) => begun?,
        };
        ctx.subscribed(self.queue);
        for fact in &mut facts {
            let home = ctx.shard.queue_for_channel(fact.lane.base, fact.lane.channel);
            // Parked under another layout: there is nothing to wait for here, it goes to its shard.
            fact.due_ms = if home == self.queue { time.believed(fact.due_ms) } else { 0 };
        }
        let lanes = Lanes::new(self.queue, self.options.limits, facts);
        let (orders, ordered) = mpsc::unbounded_channel();
        let (moved_tx, mut moved) = mpsc::unbounded_channel();
        let mover = tokio::spawn(mover::run(ctx.clone(), self.queue, ordered, moved_tx));
        let prefetch = self.options.prefetch;
        let mut session = Session::new(&self.performer, work, self.queue, prefetch, time, lanes, orders);
        let result = session.serve(consumer.as_mut(), &mut moved, stamp, stop).await;
        consumer.stop().await;
        let deadline = Instant::now() + ctx.grace;
        if result.is_ok() {
            session.drain(&mut moved, stamp, deadline).await;
        }
        session.end_orders();
        // The mover ends when its orders do; what it has begun is finished, so that nothing is half moved.
        let stop_moving = mover.abort_handle();
        let deadline = deadline.max(Instant::now() + LAST_MOVES);
        if while_ticking(stamp, timeout_at(deadline, mover)).await.is_err() {
            warn!(queue = %self.queue, "moving parked jobs did not end in time");
            stop_moving.abort();
        }
        while let Ok(step) = moved.try_recv() {
            session.give_back_moved(step, stamp).await;
        }
        session.end();
        result
    }
}

/// Waits for what may take long for no fault of this loop's: a store that somebody else has locked, for one.
pub(super) async fn while_ticking<T>(stamp: &Stamp, wait: impl Future<Output = T>) -> T {
    let mut wait = pin!(wait);
    loop {
        stamp.tick();
        tokio::select! {
            done = &mut wait => return done,
            () = sleep(TICK) => {}
        }
    }
}
