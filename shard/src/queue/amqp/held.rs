//! What this process holds of the broker's queues: a subscription, and the parked queue beside it. They end together, and
//! what comes next waits until they have, so that everything is back in its place.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::sync::Mutex as AsyncMutex;

use super::{
    super::{Consumer, Delivery, QueueError, Receipt},
    parked::Parked,
    session::Session,
};
use crate::identity::QueueName;

/// All that is held.
#[derive(Clone, Default)]
pub(super) struct Holdings(Arc<Mutex<HashMap<QueueName, Held>>>);

/// What is held of one queue.
#[derive(Default)]
pub(super) struct Held {
    pub(super) session: Option<Arc<Session>>,
    pub(super) parked: Option<Arc<Parked>>,
    /// The opening of the parked queue takes its time and happens once.
    pub(super) opening: Arc<AsyncMutex<()>>,
    /// The end of what was held before.
    pub(super) closing: Option<Shared<BoxFuture<'static, ()>>>,
}

/// Where a receipt is settled.
pub(super) enum Source {
    Work(Arc<Session>),
    Parked(Arc<Parked>),
}

impl Source {
    pub(super) async fn ack(&self, tag: u64) -> Result<(), QueueError> {
        match self {
            Self::Work(session) => session.ack(tag).await,
            Self::Parked(parked) => parked.ack(tag).await,
        }
    }
}

impl Holdings {
    fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, Held>> {
        self.0.lock().expect("holdings")
    }

    /// Looks at, or changes, what is held of a queue.
    pub(super) fn of<T>(&self, queue: QueueName, what: impl FnOnce(&mut Held) -> T) -> T {
        what(self.lock().entry(queue).or_default())
    }

    /// Where a receipt is settled, if it may be.
    pub(super) fn source(&self, receipt: &Receipt) -> Result<Source, QueueError> {
        let (session, parked) = self.of(receipt.queue, |held| (held.session.clone(), held.parked.clone()));
        let session = session.filter(|session| session.number == receipt.session && session.is_out(receipt.tag));
        let parked = parked.filter(|parked| parked.number == receipt.session && parked.is_out(receipt.tag));
        match (session, parked) {
            (Some(session), _) => Ok(Source::Work(session)),
            (_, Some(parked)) => Ok(Source::Parked(parked)),
            _ => Err(QueueError::Stale { queue: receipt.queue.to_string() }),
        }
    }

    /// Ends what is held of a queue, unless it is held by a newer session.
    pub(super) fn give_up(&self, queue: QueueName, session: Option<u64>) {
        let mut all = self.lock();
        let Some(held) = all.get_mut(&queue) else { return };
        if session.is_some_and(|number| held.session.as_ref().is_none_or(|session| session.number != number)) {
            return;
        }
        let (session, parked) = (held.session.take(), held.parked.take());
        if session.is_none() && parked.is_none() {
            return;
        }
        let before = held.closing.take();
        let closing = async move {
            if let Some(before) = before {
                before.await;
            }
            if let Some(session) = session {
                session.close().await;
            }
            if let Some(parked) = parked {
                parked.close().await;
            }
        };
        // Outside a runtime the process is ending, and the broker learns of it by the end of the connection.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let closing = closing.boxed().shared();
            held.closing = Some(closing.clone());
            runtime.spawn(closing);
        }
    }

    /// Waits until what was held before is back in its place.
    pub(super) async fn given_up(&self, queue: QueueName) {
        let closing = self.of(queue, |held| held.closing.clone());
        if let Some(closing) = closing {
            closing.await;
        }
    }
}

/// Reads one subscription, and ends it.
pub(super) struct AmqpConsumer {
    pub(super) session: Arc<Session>,
    pub(super) stream: lapin::Consumer,
    pub(super) holdings: Holdings,
}

#[async_trait]
impl Consumer for AmqpConsumer {
    async fn next(&mut self) -> Option<Result<Delivery, QueueError>> {
        let (session, stream) = (&self.session, &mut self.stream);
        std::future::poll_fn(|cx| session.poll_next(stream, cx)).await
    }

    async fn stop(&mut self) {
        self.session.stop().await;
    }
}

impl Drop for AmqpConsumer {
    fn drop(&mut self) {
        self.holdings.give_up(self.session.queue, Some(self.session.number));
    }
}
