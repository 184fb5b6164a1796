//! The deliveries of one queue: a thin loop over what [`State`](super::state::State) decides.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{
    super::{Consumer, Delivery, QueueError, Receipt},
    file::QueueFile,
    queue_error, rows,
    state::{Plan, Step},
};
use crate::{identity::QueueName, store::StoreError};

/// One session on one queue.
pub(super) struct EmbeddedConsumer {
    pub(super) file: Arc<QueueFile>,
    pub(super) queue: QueueName,
    pub(super) session: u64,
    pub(super) wake: Arc<Notify>,
    pub(super) ended: bool,
}

impl EmbeddedConsumer {
    async fn read(&self, plan: Plan) -> Result<(), StoreError> {
        let base = self.queue.base;
        let asked = plan.clone();
        let work = move |connection: &rusqlite::Connection| rows::read(connection, base, &asked);
        let read =
            if plan.may_write() { self.file.writer.write(work).await? } else { self.file.writer.read(work).await? };
        self.file.state(base).read(self.session, &plan, read);
        Ok(())
    }
}

#[async_trait]
impl Consumer for EmbeddedConsumer {
    async fn next(&mut self) -> Option<Result<Delivery, QueueError>> {
        while !self.ended {
            let step = self.file.state(self.queue.base).step(self.session);
            match step {
                Step::Deliver { id, message, redelivered } => {
                    let receipt = Receipt { queue: self.queue, tag: id as u64, session: self.session };
                    return Some(Ok(Delivery { receipt, message, redelivered }));
                }
                Step::Read(plan) => {
                    if let Err(error) = self.read(plan).await {
                        self.ended = true;
                        return Some(Err(queue_error(error, self.queue)));
                    }
                }
                Step::Wait => self.wake.notified().await,
                Step::Ended => self.ended = true,
                Step::Replaced => {
                    self.ended = true;
                    return Some(Err(QueueError::Stale { queue: self.queue.to_string() }));
                }
            }
        }
        None
    }

    async fn stop(&mut self) {
        self.file.state(self.queue.base).stop(self.session);
    }
}

impl Drop for EmbeddedConsumer {
    fn drop(&mut self) {
        let base = self.queue.base;
        // Nobody waits for this write; should it not be made, more is marked as redelivered than has to be.
        if let Some(bound) = self.file.state(base).end(self.session) {
            self.file.writer.post(move |connection| rows::leave(connection, base, bound));
        }
    }
}
