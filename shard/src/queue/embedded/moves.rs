//! Settling and moving: whatever leaves its place is stored in its new one by the same transaction, or before.

use std::collections::HashMap;

use rusqlite::Connection;

use super::{
    super::{Delivery, Headers, Message, QueueError, Receipt},
    EmbeddedQueue,
    file::{QueueFile, lock},
    queue_error, rows,
    state::Id,
};
use crate::{identity::QueueName, job::Lane, store::OpError};

/// Marks the tag of a parked row.
const PARKED: u64 = 1 << 62;

impl EmbeddedQueue {
    /// The file that a receipt is of, if the delivery is still out.
    pub(super) fn settling(&self, receipt: &Receipt) -> Result<(std::sync::Arc<QueueFile>, Id, bool), QueueError> {
        let stale = || QueueError::Stale { queue: receipt.queue.to_string() };
        let (id, parked) = ((receipt.tag & !PARKED) as Id, receipt.tag & PARKED != 0);
        let file = self.open_file(receipt.queue.index).ok_or_else(stale)?;
        let out = file.state(receipt.queue.base).is_out(receipt.session, id, parked);
        if out { Ok((file, id, parked)) } else { Err(stale()) }
    }

    /// Does the work of a settlement in one transaction; the delivery is no longer out once that is durable.
    pub(super) async fn settle(
        &self,
        receipt: &Receipt,
        work: impl FnOnce(&Connection, Id, bool) -> Result<(), OpError> + Send + 'static,
    ) -> Result<(), QueueError> {
        let (file, id, parked) = self.settling(receipt)?;
        let (states, base, session) = (file.states(), receipt.queue.base, receipt.session);
        let done = file.writer.write_then(
            move |connection| work(connection, id, parked),
            move |()| lock(&states, base).settled(session, id, parked),
        );
        done.await.map_err(|error| queue_error(error, receipt.queue))
    }

    /// See [`Queue::release`](super::Queue::release).
    pub(super) async fn put_back(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        let mut stale = None;
        let mut parked: HashMap<(QueueName, u64), Vec<Id>> = HashMap::new();
        for receipt in receipts {
            match self.settling(&receipt) {
                Err(error) => stale = Some(error),
                Ok((_, id, true)) => parked.entry((receipt.queue, receipt.session)).or_default().push(id),
                Ok((file, id, false)) => file.state(receipt.queue.base).released(receipt.session, id),
            }
        }
        for ((queue, session), ids) in parked {
            let file = self.consumed(queue).await?;
            let (states, back) = (file.states(), ids.clone());
            let done = file.writer.write_then(
                move |connection| rows::put_back(connection, &ids),
                move |()| {
                    let mut state = lock(&states, queue.base);
                    back.iter().for_each(|id| state.settled(session, *id, true));
                },
            );
            done.await.map_err(|error| queue_error(error, queue))?;
        }
        stale.map_or(Ok(()), Err)
    }

    /// See [`Queue::forward`](super::Queue::forward).
    pub(super) async fn move_to(&self, receipt: Receipt, to: QueueName, message: Message) -> Result<(), QueueError> {
        if to.index != receipt.queue.index {
            let (file, ..) = self.settling(&receipt)?;
            // A predecessor that was stopped and is fenced by now must not write into the other file either.
            file.writer.read(|_| Ok(())).await.map_err(|error| queue_error(error, receipt.queue))?;
            self.append(to, message).await?;
            return self.settle(&receipt, rows::remove).await;
        }
        let (file, id, parked) = self.settling(&receipt)?;
        let (states, from, session) = (file.states(), receipt.queue.base, receipt.session);
        let (tell, shown) = (self.tell(to), message.clone());
        let moved = file.writer.write_then(
            move |connection| {
                let appended = rows::append(connection, to.base, &message)?;
                if appended.is_some() {
                    rows::remove(connection, id, parked)?;
                }
                Ok(appended)
            },
            move |appended| {
                if let Some(new) = appended {
                    lock(&states, from).settled(session, id, parked);
                    tell(*new, &shown);
                }
            },
        );
        match moved.await.map_err(|error| queue_error(error, to))? {
            Some(_) => Ok(()),
            None => Err(QueueError::Missing { queue: to.to_string() }),
        }
    }

    /// See [`Queue::park`](super::Queue::park).
    pub(super) async fn set_aside(
        &self,
        receipt: Receipt,
        lane: &Lane,
        seq: u64,
        message: Message,
    ) -> Result<(), QueueError> {
        let lane = Lane { base: receipt.queue.base, ..lane.clone() };
        let work = move |connection: &Connection, id: Id, parked: bool| {
            if parked {
                return rows::park_again(connection, id, seq, &message);
            }
            rows::park(connection, &lane, seq, &message)?;
            rows::remove(connection, id, false)
        };
        self.settle(&receipt, work).await
    }

    /// See [`Queue::unpark`](super::Queue::unpark).
    pub(super) async fn take_up(
        &self,
        queue: QueueName,
        lane: &Lane,
        limit: usize,
    ) -> Result<Vec<Delivery>, QueueError> {
        let file = self.consumed(queue).await?;
        let session = file.state(queue.base).session();
        if session == 0 {
            return Err(QueueError::Stale { queue: queue.to_string() });
        }
        let lane = Lane { base: queue.base, ..lane.clone() };
        let states = file.states();
        let unparked = file.writer.write_then(
            move |connection| rows::unpark(connection, &lane, limit, session),
            move |rows| lock(&states, queue.base).unparked(session, rows.iter().map(|(id, ..)| *id)),
        );
        let rows = unparked.await.map_err(|error| queue_error(error, queue))?;
        let delivery = |(id, message, redelivered): (Id, Message, bool)| Delivery {
            receipt: Receipt { queue, tag: id as u64 | PARKED, session },
            message,
            redelivered,
        };
        Ok(rows.into_iter().map(delivery).collect())
    }

    /// See [`Queue::replay`](super::Queue::replay).
    pub(super) async fn revive(&self, queue: QueueName, number: u64, to: QueueName) -> Result<bool, QueueError> {
        let writer = self.writer(queue, false).await?;
        let letter = writer.read(move |connection| rows::dead_letter(connection, queue.base, number)).await;
        let Some(letter) = letter.map_err(|error| queue_error(error, queue))? else { return Ok(false) };
        let headers = Headers { foreign: letter.headers.foreign, ..Headers::default() };
        let message = Message { body: letter.body, headers };
        if to.index != queue.index {
            self.append(to, message).await?;
            return self.drop_letter(queue, number).await;
        }
        let (tell, shown) = (self.tell(to), message.clone());
        let moved = writer.write_then(
            move |connection| {
                if !rows::declared(connection, to.base)? {
                    return Ok(None);
                }
                let there = rows::drop_dead(connection, queue.base, number)?;
                Ok(Some(if there { rows::append(connection, to.base, &message)? } else { None }))
            },
            move |moved| {
                if let Some(Some(id)) = moved {
                    tell(*id, &shown);
                }
            },
        );
        match moved.await.map_err(|error| queue_error(error, queue))? {
            Some(moved) => Ok(moved.is_some()),
            None => Err(QueueError::Missing { queue: to.to_string() }),
        }
    }
}
