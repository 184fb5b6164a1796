//! Carries out what the lanes order (facts, parking, fetching back) strictly in the order they ordered it.
//!
//! A fact is stored before anything moves, and what moves does so in lane order: only then does a crash between two steps
//! leave a state from which a restart finds the old order again. Moves that follow one another are submitted together,
//! in order, so that a store can commit them together.

use std::{sync::Arc, time::Duration};

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

/// One step.
pub(crate) enum Order {
    Store(LaneFact),
    Park { receipt: Receipt, lane: Lane, seq: u64, message: Message },
    Unpark { lane: Lane, limit: usize },
    Clear(Lane),
}

/// What came of a step that the lanes wait for.
pub(crate) enum Moved {
    Unparked {
        lane: Lane,
        deliveries: Vec<Delivery>,
    },
    Cleared(Lane),
    /// The session is over: whatever was not moved will be delivered again.
    Ended(String),
}

/// Runs until the orders end.
pub(crate) async fn run(
    ctx: Arc<Context>,
    queue: QueueName,
    mut orders: mpsc::UnboundedReceiver<Order>,
    moved: mpsc::UnboundedSender<Moved>,
) {
    let mut next = None;
    loop {
        let order = match next.take() {
            Some(order) => order,
            None => match orders.recv().await {
                Some(order) => order,
                None => return,
            },
        };
        let result = match order {
            Order::Store(fact) => until_stored(|| ctx.registry.put_lane_fact(&fact)).await,
            Order::Clear(lane) => {
                let result = until_stored(|| ctx.registry.clear_lane_fact(queue, &lane)).await;
                if result.is_ok() {
                    let _ = moved.send(Moved::Cleared(lane));
                }
                result
            }
            Order::Unpark { lane, limit } => match unpark(&ctx, queue, &lane, limit).await {
                Ok(deliveries) => {
                    let _ = moved.send(Moved::Unparked { lane, deliveries });
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Order::Park { receipt, lane, seq, message } => {
                let mut batch = vec![(receipt, lane, seq, message)];
                while batch.len() < 256 {
                    match orders.try_recv() {
                        Ok(Order::Park { receipt, lane, seq, message }) => batch.push((receipt, lane, seq, message)),
                        Ok(other) => {
                            next = Some(other);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                park(&ctx, batch).await
            }
        };
        if let Err(error) = result {
            let _ = moved.send(Moved::Ended(error));
            return;
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

async fn unpark(ctx: &Context, queue: QueueName, lane: &Lane, limit: usize) -> Result<Vec<Delivery>, String> {
    loop {
        match ctx.queue.unpark(queue, lane, limit).await {
            Ok(deliveries) => return Ok(deliveries),
            Err(QueueError::Unavailable { .. }) => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// All at once, submitted in order. One that fails ends the session, since those after it may have moved.
async fn park(ctx: &Context, batch: Vec<(Receipt, Lane, u64, Message)>) -> Result<(), String> {
    let moves = batch
        .into_iter()
        .map(|(receipt, lane, seq, message)| async move { ctx.queue.park(receipt, &lane, seq, message).await });
    for result in join_all(moves).await {
        result.map_err(|error| error.to_string())?;
    }
    Ok(())
}
