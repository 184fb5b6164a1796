//! The loop of one queue: deliveries in, lanes, work, settlement.
//!
//! A *session* is one subscription. When it ends (broker gone, receipts stale) nothing is lost: what was out is delivered
//! again, and a new session begins from the stored facts.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Context, mover, perform::Performer, session::Session};
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
    ctx: Arc<Context>,
    performer: Arc<Performer>,
    queue: QueueName,
    options: WorkerOptions,
}

/// How long the loop sleeps at most, so that its stamp ticks.
const TICK: Duration = Duration::from_millis(250);

impl QueueWorker {
    /// A worker that has not begun.
    pub fn new(ctx: Arc<Context>, queue: QueueName, options: WorkerOptions) -> Self {
        Self { performer: Arc::new(Performer::new(ctx.clone())), ctx, queue, options }
    }

    /// Works until `stop`; then releases what has not begun, waits for the rest as long as the grace allows, and returns.
    pub async fn run(self, stamp: Stamp, stop: CancellationToken) {
        let mut pause = Duration::from_millis(100);
        while !stop.is_cancelled() {
            let began = Instant::now();
            match self.session(&stamp, &stop).await {
                Ok(()) => return,
                Err(ended) => {
                    warn!(queue = %self.queue, error = %ended, "a queue session ended; subscribing again");
                    if began.elapsed() > Duration::from_secs(30) {
                        pause = Duration::from_millis(100);
                    }
                    let waited = async {
                        let until = Instant::now() + pause;
                        while Instant::now() < until {
                            stamp.tick();
                            sleep(TICK.min(pause)).await;
                        }
                    };
                    let _ = futures_util::future::select(Box::pin(waited), Box::pin(stop.cancelled())).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
            }
        }
    }

    async fn session(&self, stamp: &Stamp, stop: &CancellationToken) -> Result<(), String> {
        let mut facts = self.ctx.registry.lane_facts(self.queue).await.map_err(|error| error.to_string())?;
        for fact in &mut facts {
            let shard = &self.ctx.shard;
            if shard.queue_for_channel(fact.lane.base, fact.lane.channel) != self.queue {
                // Parked under another layout: there is nothing to wait for here, it goes to its shard.
                fact.due_ms = 0;
            }
        }
        let mut consumer =
            self.ctx.queue.consume(self.queue, self.options.prefetch).await.map_err(|error| error.to_string())?;
        let (orders, ordered) = mpsc::unbounded_channel();
        let (moved_tx, mut moved) = mpsc::unbounded_channel();
        let mover = tokio::spawn(mover::run(self.ctx.clone(), self.queue, ordered, moved_tx));
        let lanes = Lanes::new(self.queue, self.options.limits, facts);
        let mut session = Session::new(&self.performer, self.queue, self.options.prefetch, lanes, orders);
        let result = session.serve(consumer.as_mut(), &mut moved, stamp, stop).await;
        consumer.stop().await;
        if result.is_ok() {
            session.drain(&mut moved, stamp).await;
        }
        drop(session);
        // The mover ends when its orders do; what it has begun is finished, so that nothing is half moved.
        if timeout(self.ctx.grace, mover).await.is_err() {
            warn!(queue = %self.queue, "moving parked jobs did not end in time");
        }
        result
    }
}
