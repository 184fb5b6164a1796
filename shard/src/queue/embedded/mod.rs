//! The queues on the slot files of a data directory: a process consumes its own file, reaches the others by short
//! transactions, and needs no server.
//!
//! A row lies in its queue until it is settled; being out is known to the consumer's memory alone, and the slot's lock
//! makes that consumer the only one. Moving within a file is one transaction; moving to another file is confirmed there
//! first and then removed here.

mod consumer;
mod file;
mod moves;
mod rows;
mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::OnceCell;

use self::{
    consumer::EmbeddedConsumer,
    file::{QueueFile, lock},
    state::Id,
};
use super::{Consumer, DeadLetter, Delivery, Depth, Message, Queue, QueueError, Receipt};
use crate::{
    identity::{QueueBase, QueueName},
    job::Lane,
    store::{Index, Peers, SlotStore, StoreError, Writer, knock},
};

/// The queues of a data directory.
pub struct EmbeddedQueue {
    peers: Arc<Peers>,
    slot: Option<Arc<SlotStore>>,
    files: Mutex<HashMap<Index, Arc<OnceCell<Arc<QueueFile>>>>>,
}

impl EmbeddedQueue {
    /// For the process of a slot: it consumes its own queues, and those of other layouts that nobody else does.
    pub fn new(slot: Arc<SlotStore>) -> Self {
        let file = QueueFile::new(slot.peers().clone(), slot.index(), slot.writer().clone(), slot.token());
        let files = HashMap::from([(slot.index(), Arc::new(OnceCell::new_with(Some(file))))]);
        Self { peers: slot.peers().clone(), slot: Some(slot), files: Mutex::new(files) }
    }

    /// For a process that holds no slot: it publishes, counts, and handles dead letters.
    pub fn producer(dir: &Path) -> Self {
        Self { peers: Peers::new(dir), slot: None, files: Mutex::default() }
    }

    /// The file as one that we consume, opened to be emptied if it isn't our own.
    async fn consumed(&self, queue: QueueName) -> Result<Arc<QueueFile>, QueueError> {
        let Some(slot) = &self.slot else {
            let cause = "this process holds no slot, so that it can't consume; publish or use the daemon".to_owned();
            return Err(QueueError::Refused { queue: queue.to_string(), cause });
        };
        let cell = self.files.lock().expect("files").entry(queue.index).or_default().clone();
        let file = cell.get_or_try_init(|| async {
            let (writer, token) = self.peers.drain(queue.index, slot.holder().incarnation).await?;
            Ok(QueueFile::new(self.peers.clone(), queue.index, writer, token))
        });
        file.await.cloned().map_err(|error| queue_error(error, queue))
    }

    /// The file if we consume it already.
    fn open_file(&self, index: Index) -> Option<Arc<QueueFile>> {
        self.files.lock().expect("files").get(&index).and_then(|cell| cell.get().cloned())
    }

    async fn writer(&self, queue: QueueName, create: bool) -> Result<Arc<Writer>, QueueError> {
        if let Some(file) = self.open_file(queue.index) {
            return Ok(file.writer.clone());
        }
        self.peers.writer(queue.index, create).await.map_err(|error| queue_error(error, queue))
    }

    /// What is run once a message has been appended to a queue: its consumer learns of it.
    fn tell(&self, queue: QueueName) -> impl FnOnce(Id, &Message) + Send + 'static {
        let states = self.open_file(queue.index).map(|file| file.states());
        let peers = self.peers.clone();
        move |id, message| match states {
            Some(states) => lock(&states, queue.base).published(id, message),
            None => knock(peers.dir(), &rows::wake_name(queue.index)),
        }
    }

    /// See [`Queue::publish`].
    pub(super) async fn append(&self, queue: QueueName, message: Message) -> Result<(), QueueError> {
        let writer = self.writer(queue, false).await?;
        let tell = self.tell(queue);
        let shown = message.clone();
        let appended = writer.write_then(
            move |connection| rows::append(connection, queue.base, &message),
            move |id| {
                if let Some(id) = id {
                    tell(*id, &shown);
                }
            },
        );
        match appended.await.map_err(|error| queue_error(error, queue))? {
            Some(_) => Ok(()),
            None => Err(QueueError::Missing { queue: queue.to_string() }),
        }
    }

    /// See [`Queue::publish_guarded`]: what the job stores before it does anything comes behind this in the same file.
    async fn append_leading(&self, queue: QueueName, message: Message) -> Result<(), QueueError> {
        let Some(file) = self.open_file(queue.index) else { return self.append(queue, message).await };
        let (tell, shown) = (self.tell(queue), message.clone());
        let states = file.states();
        let appended = file.writer.write_leading(
            move |connection| rows::append(connection, queue.base, &message),
            move |id| {
                if let Some(id) = id {
                    tell(*id, &shown);
                }
            },
            move || lock(&states, queue.base).revoke(),
        );
        match appended.await.map_err(|error| queue_error(error, queue))? {
            Some(_) => Ok(()),
            None => Err(QueueError::Missing { queue: queue.to_string() }),
        }
    }

    /// See [`Queue::drop_dead`].
    pub(super) async fn drop_letter(&self, queue: QueueName, number: u64) -> Result<bool, QueueError> {
        let writer = self.writer(queue, false).await?;
        let dropped = writer.write(move |connection| rows::drop_dead(connection, queue.base, number)).await;
        dropped.map_err(|error| queue_error(error, queue))
    }
}

/// The same error in the port's words.
pub(crate) fn queue_error(error: StoreError, queue: QueueName) -> QueueError {
    let queue = queue.to_string();
    match error {
        StoreError::Unavailable { .. } | StoreError::Closed { .. } => {
            QueueError::Unavailable { queue, cause: error.to_string() }
        }
        StoreError::Fenced { .. } | StoreError::ChannelFenced(_) => QueueError::Fenced { queue },
        StoreError::Missing { .. } => QueueError::Missing { queue },
        StoreError::Refused { .. } | StoreError::Newer { .. } => {
            QueueError::Refused { queue, cause: error.to_string() }
        }
    }
}

#[async_trait]
impl Queue for EmbeddedQueue {
    async fn declare(&self, queue: QueueName) -> Result<(), QueueError> {
        let writer = self.writer(queue, true).await?;
        let done = writer.write(move |connection| rows::declare(connection, queue.base)).await;
        done.map_err(|error| queue_error(error, queue))
    }

    async fn consume(&self, queue: QueueName, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError> {
        let file = self.consumed(queue).await?;
        let (states, session) = (file.states(), file.next_session());
        // A write, although it only reads: it stands in line behind what a predecessor left to be written.
        let opening = file.writer.write_then(
            move |connection| rows::opening(connection, queue.base),
            move |opened| {
                if let Some((mark, count)) = opened {
                    lock(&states, queue.base).begin(session, prefetch, rows::first(queue.base), *mark, *count);
                }
            },
        );
        if opening.await.map_err(|error| queue_error(error, queue))?.is_none() {
            return Err(QueueError::Missing { queue: queue.to_string() });
        }
        file.listen();
        let wake = file.state(queue.base).wake();
        Ok(Box::new(EmbeddedConsumer { file, queue, session, wake, ended: false }))
    }

    async fn publish(&self, queue: QueueName, message: Message) -> Result<(), QueueError> {
        self.append(queue, message).await
    }

    async fn publish_guarded(&self, queue: QueueName, message: Message) -> Result<(), QueueError> {
        self.append_leading(queue, message).await
    }

    async fn ack(&self, receipt: Receipt) -> Result<(), QueueError> {
        let (file, id, parked) = self.settling(&receipt)?;
        let (states, base, session) = (file.states(), receipt.queue.base, receipt.session);
        let done = file.writer.write_patiently(
            move |connection| rows::remove(connection, id, parked),
            move |()| lock(&states, base).settled(session, id, parked),
        );
        done.await.map_err(|error| queue_error(error, receipt.queue))
    }

    async fn release(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.put_back(receipts).await
    }

    async fn forward(&self, receipt: Receipt, to: QueueName, message: Message) -> Result<(), QueueError> {
        self.move_to(receipt, to, message).await
    }

    async fn park(&self, receipt: Receipt, lane: &Lane, seq: u64, message: Message) -> Result<(), QueueError> {
        self.set_aside(receipt, lane, seq, message).await
    }

    async fn unpark(&self, queue: QueueName, lane: &Lane, limit: usize) -> Result<Vec<Delivery>, QueueError> {
        self.take_up(queue, lane, limit).await
    }

    async fn bury(&self, receipt: Receipt, message: Message) -> Result<(), QueueError> {
        let base = receipt.queue.base;
        let work = move |connection: &Connection, id: Id, parked: bool| {
            rows::bury(connection, base, &message)?;
            rows::remove(connection, id, parked)
        };
        self.settle(&receipt, work).await
    }

    async fn depth(&self, queue: QueueName) -> Result<Depth, QueueError> {
        let writer = self.writer(queue, false).await?;
        let known = self.open_file(queue.index).and_then(|file| file.state(queue.base).count);
        let depth = writer.read(move |connection| {
            if !rows::declared(connection, queue.base)? {
                return Ok(None);
            }
            let ready = match known {
                Some(count) => {
                    let published = rows::last_id(connection, queue.base)? - count.last_id;
                    (count.rows + published as u64).saturating_sub(count.removed)
                }
                None => rows::count(connection, queue.base)?,
            };
            let (parked, dead) = rows::count_beside(connection, queue.base)?;
            Ok(Some(Depth { ready, parked, dead }))
        });
        let depth = depth.await.map_err(|error| queue_error(error, queue))?;
        depth.ok_or_else(|| QueueError::Missing { queue: queue.to_string() })
    }

    async fn existing(&self) -> Result<Vec<QueueName>, QueueError> {
        let bare = QueueName::bare(QueueBase::Main);
        let mut queues = Vec::new();
        for index in self.peers.existing().map_err(|error| queue_error(error, bare))? {
            let name = |base| QueueName { base, index };
            let writer = self.writer(name(QueueBase::Main), false).await?;
            let declared = writer.read(|connection| {
                QueueBase::ALL.map(|base| rows::declared(connection, base)).into_iter().collect::<Result<Vec<_>, _>>()
            });
            let declared = declared.await.map_err(|error| queue_error(error, name(QueueBase::Main)))?;
            queues.extend(
                QueueBase::ALL.into_iter().zip(declared).filter(|(_, there)| *there).map(|(base, _)| name(base)),
            );
        }
        Ok(queues)
    }

    async fn dead(&self, queue: QueueName, after: u64, limit: usize) -> Result<Vec<DeadLetter>, QueueError> {
        let writer = self.writer(queue, false).await?;
        let letters = writer.read(move |connection| rows::dead(connection, queue.base, after, limit)).await;
        letters.map_err(|error| queue_error(error, queue))
    }

    async fn replay(&self, queue: QueueName, number: u64, to: QueueName) -> Result<bool, QueueError> {
        self.revive(queue, number, to).await
    }

    async fn drop_dead(&self, queue: QueueName, number: u64) -> Result<bool, QueueError> {
        self.drop_letter(queue, number).await
    }
}
