//! Carries out what the lanes order (facts, parking, fetching back), for each lane strictly in the order they ordered it,
//! and for all lanes side by side.
//!
//! A fact is stored before anything moves, and what moves does so in lane order: only then does a crash between two steps
//! leave a state from which a restart finds the old order again. What has queued up is begun together, so that a store
//! can commit it together.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tracing::warn;

use super::Context;
use crate::{
    identity::QueueName,
    job::Lane,
    queue::{Delivery, Message, QueueError, Receipt},
    registry::{LaneFact, RegistryError},
};

const PAUSE: Duration = Duration::from_millis(250);
/// So many orders are begun together.
const BATCH: usize = 512;

/// One step.
pub(super) enum Order {
    Store(LaneFact),
    Park { receipt: Receipt, lane: Lane, seq: u64, message: Message },
    Unpark { lane: Lane, limit: usize },
    Clear(Lane),
}

impl Order {
    fn lane(&self) -> &Lane {
        match self {
            Self::Store(fact) => &fact.lane,
            Self::Park { lane, .. } | Self::Unpark { lane, .. } | Self::Clear(lane) => lane,
        }
    }
}

/// What came of a step that the lanes wait for.
pub(super) enum Moved {
    Unparked {
        lane: Lane,
        deliveries: Vec<Delivery>,
    },
    Cleared(Lane),
    /// The session is over: whatever was not moved will be delivered again.
    Ended(String),
}

/// Runs until the orders end.
pub(super) async fn run(
    ctx: Arc<Context>,
    queue: QueueName,
    mut orders: mpsc::UnboundedReceiver<Order>,
    moved: mpsc::UnboundedSender<Moved>,
) {
    let mover = Mover { ctx, queue, moved };
    let mut batch = Vec::with_capacity(BATCH);
    while orders.recv_many(&mut batch, BATCH).await > 0 {
        let mut chains: Vec<Vec<Order>> = Vec::new();
        let mut of_lane: HashMap<Lane, usize> = HashMap::new();
        for order in batch.drain(..) {
            match of_lane.get(order.lane()) {
                Some(at) => chains[*at].push(order),
                None => {
                    of_lane.insert(order.lane().clone(), chains.len());
                    chains.push(vec![order]);
                }
            }
        }
        let ended = join_all(chains.into_iter().map(|chain| mover.carry_out(chain))).await;
        if let Some(error) = ended.into_iter().find_map(Result::err) {
            let _ = mover.moved.send(Moved::Ended(error));
            return;
        }
    }
}

struct Mover {
    ctx: Arc<Context>,
    queue: QueueName,
    moved: mpsc::UnboundedSender<Moved>,
}

impl Mover {
    /// The orders of one lane, one after another; what is parked in a row goes together, submitted in order.
    async fn carry_out(&self, chain: Vec<Order>) -> Result<(), String> {
        let mut chain = chain.into_iter().peekable();
        while let Some(order) = chain.next() {
            match order {
                Order::Store(fact) => until_stored(|| self.ctx.registry.put_lane_fact(&fact)).await?,
                Order::Clear(lane) => {
                    until_stored(|| self.ctx.registry.clear_lane_fact(self.queue, &lane)).await?;
                    let _ = self.moved.send(Moved::Cleared(lane));
                }
                Order::Unpark { lane, limit } => {
                    let deliveries = self.unpark(&lane, limit).await?;
                    let _ = self.moved.send(Moved::Unparked { lane, deliveries });
                }
                Order::Park { receipt, lane, seq, message } => {
                    let mut row = vec![(receipt, lane, seq, message)];
                    while let Some(Order::Park { receipt, lane, seq, message }) =
                        chain.next_if(|next| matches!(next, Order::Park { .. }))
                    {
                        row.push((receipt, lane, seq, message));
                    }
                    self.park(row).await?;
                }
            }
        }
        Ok(())
    }

    async fn unpark(&self, lane: &Lane, limit: usize) -> Result<Vec<Delivery>, String> {
        until_moved(|| self.ctx.queue.unpark(self.queue, lane, limit)).await
    }

    /// Each until it has moved: were one left behind, it would come after those that were behind it.
    async fn park(&self, row: Vec<(Receipt, Lane, u64, Message)>) -> Result<(), String> {
        let moves = row.into_iter().map(|(receipt, lane, seq, message)| async move {
            let again = || Receipt { queue: receipt.queue, tag: receipt.tag, session: receipt.session };
            until_moved(|| self.ctx.queue.park(again(), &lane, seq, message.clone())).await
        });
        join_all(moves).await.into_iter().collect()
    }
}

/// Tries until the queue is there again; at once at first, so that what is submitted behind it hardly gets ahead.
async fn until_moved<F, T>(mut step: impl FnMut() -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, QueueError>>,
{
    let mut failures = 0;
    loop {
        match step().await {
            Ok(done) => return Ok(done),
            Err(error @ (QueueError::Unavailable { .. } | QueueError::Refused { .. })) => {
                failures += 1;
                if failures == 2 {
                    warn!(%error, "a job could not be moved; trying until it is");
                }
                if failures > 1 {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

async fn until_stored<F>(mut write: impl FnMut() -> F) -> Result<(), String>
where
    F: Future<Output = Result<(), RegistryError>>,
{
    let mut told = false;
    loop {
        match write().await {
            Ok(()) => return Ok(()),
            Err(error @ RegistryError::Fenced { .. }) => return Err(error.to_string()),
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    warn!(%error, "a lane's wait could not be stored; trying until it is");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
