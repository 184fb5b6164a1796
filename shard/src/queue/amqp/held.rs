//! What this process holds of the broker's queues: a subscription of the stragglers, one of the queue itself, and the parked
//! queue beside it. They end together, and what comes next waits until they have, so that everything is back in its place.
//!
//! The queue itself is subscribed only when no straggler waits any more: those are older.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::sync::{Mutex as AsyncMutex, oneshot};

use super::{
    super::{Consumer, Delivery, QueueError, Receipt},
    error::Cause,
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
    /// The consumer in force.
    pub(super) consumer: Option<u64>,
    /// Its subscription of the stragglers.
    pub(super) stragglers: Option<Arc<Session>>,
    /// Its subscription of the queue itself, once no straggler waits.
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
        let (sessions, parked) =
            self.of(receipt.queue, |held| ([held.session.clone(), held.stragglers.clone()], held.parked.clone()));
        let mut sessions = sessions.into_iter().flatten();
        let session = sessions.find(|session| session.number == receipt.session && session.is_out(receipt.tag));
        let parked = parked.filter(|parked| parked.number == receipt.session && parked.is_out(receipt.tag));
        match (session, parked) {
            (Some(session), _) => Ok(Source::Work(session)),
            (_, Some(parked)) => Ok(Source::Parked(parked)),
            _ => Err(QueueError::Stale { queue: receipt.queue.to_string() }),
        }
    }

    /// Whether a consumer is still the one in force.
    fn is_held_by(&self, queue: QueueName, consumer: u64) -> bool {
        self.of(queue, |held| held.consumer == Some(consumer))
    }

    /// Takes the subscription of the queue itself in, unless its consumer has ended meanwhile.
    fn join(&self, queue: QueueName, consumer: u64, session: &Arc<Session>) -> bool {
        let mut all = self.lock();
        let held = all.entry(queue).or_default();
        let still = held.consumer == Some(consumer);
        if still {
            held.session = Some(session.clone());
        }
        still
    }

    /// Ends what is held of a queue, unless it is held by a newer consumer.
    pub(super) fn give_up(&self, queue: QueueName, consumer: Option<u64>) {
        let mut all = self.lock();
        let Some(held) = all.get_mut(&queue) else { return };
        if consumer.is_some() && held.consumer != consumer {
            return;
        }
        held.consumer = None;
        let (sessions, parked) = ([held.stragglers.take(), held.session.take()], held.parked.take());
        if sessions.iter().all(Option::is_none) && parked.is_none() {
            return;
        }
        let before = held.closing.take();
        let closing = async move {
            if let Some(before) = before {
                before.await;
            }
            for session in sessions.into_iter().flatten() {
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

/// How often it is looked whether stragglers still wait.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Opens the subscription of the queue itself when no straggler waits, and hands it to the consumer.
pub(super) async fn follow(
    holdings: Holdings,
    stragglers: Arc<Session>,
    open: impl Future<Output = Result<Arc<Session>, Cause>>,
    ready: oneshot::Sender<Result<Arc<Session>, Cause>>,
) {
    let (queue, consumer) = (stragglers.queue, stragglers.number);
    loop {
        match stragglers.waiting().await {
            Ok(Some(0)) => break,
            Err(cause) => {
                let _ = ready.send(Err(cause));
                return;
            }
            Ok(_) if !holdings.is_held_by(queue, consumer) => return,
            Ok(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
    let opened = open.await;
    if let Ok(session) = &opened
        && !holdings.join(queue, consumer, session)
    {
        session.close().await;
        return;
    }
    // Nobody waits for it when the consumer has ended, and then the holdings close it.
    let _ = ready.send(opened);
}

/// One subscription as it is read.
struct Reading {
    session: Arc<Session>,
    stream: lapin::Consumer,
}

impl Reading {
    fn of(session: Arc<Session>) -> Self {
        Self { stream: session.stream(), session }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Delivery, QueueError>>> {
        self.session.poll_next(&mut self.stream, cx)
    }
}

/// The subscription of the queue itself.
enum Own {
    /// Stragglers are read first.
    Later(oneshot::Receiver<Result<Arc<Session>, Cause>>),
    Open(Reading),
    Ended,
}

/// Reads the stragglers, then both, and ends them.
pub(super) struct AmqpConsumer {
    queue: QueueName,
    number: u64,
    stragglers: Option<Reading>,
    own: Own,
    /// An error has been told: there is nothing after it.
    failed: bool,
    holdings: Holdings,
}

impl AmqpConsumer {
    /// Of the stragglers, then of both.
    pub(super) fn new(
        stragglers: Arc<Session>,
        own: oneshot::Receiver<Result<Arc<Session>, Cause>>,
        holdings: Holdings,
    ) -> Self {
        let (queue, number) = (stragglers.queue, stragglers.number);
        let stragglers = Some(Reading::of(stragglers));
        Self { queue, number, stragglers, own: Own::Later(own), failed: false, holdings }
    }

    /// Of the queue alone.
    pub(super) fn past_stragglers(own: Arc<Session>, holdings: Holdings) -> Self {
        let (queue, number) = (own.queue, own.number);
        Self { queue, number, stragglers: None, own: Own::Open(Reading::of(own)), failed: false, holdings }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Delivery, QueueError>>> {
        let stragglers = self.stragglers.as_mut().map_or(Poll::Ready(None), |reading| reading.poll(cx));
        if let Poll::Ready(Some(_)) = &stragglers {
            return stragglers;
        }
        if let Own::Later(opening) = &mut self.own
            && let Poll::Ready(opened) = opening.poll_unpin(cx)
        {
            self.own = match opened {
                Ok(Ok(session)) => Own::Open(Reading::of(session)),
                Ok(Err(cause)) => {
                    self.own = Own::Ended;
                    return Poll::Ready(Some(Err(cause.of(self.queue))));
                }
                Err(_) => Own::Ended,
            };
        }
        match (&mut self.own, stragglers) {
            (Own::Open(reading), stragglers) => match reading.poll(cx) {
                // When one has ended without a word the other one says why, or has nothing to say either.
                Poll::Ready(None) if stragglers.is_pending() => {
                    self.own = Own::Ended;
                    Poll::Pending
                }
                Poll::Pending if stragglers.is_ready() && self.stragglers.is_some() => Poll::Ready(None),
                own => own,
            },
            (_, stragglers) => stragglers,
        }
    }
}

#[async_trait]
impl Consumer for AmqpConsumer {
    async fn next(&mut self) -> Option<Result<Delivery, QueueError>> {
        if self.failed {
            return None;
        }
        let next = std::future::poll_fn(|cx| self.poll_next(cx)).await;
        self.failed = matches!(next, Some(Err(_)));
        next
    }

    async fn stop(&mut self) {
        if let Some(stragglers) = &self.stragglers {
            stragglers.session.stop().await;
        }
        match std::mem::replace(&mut self.own, Own::Ended) {
            Own::Open(reading) => {
                reading.session.stop().await;
                self.own = Own::Open(reading);
            }
            Own::Later(mut opening) => {
                // What is opened from now on finds nobody.
                opening.close();
                if let Ok(Ok(session)) = opening.try_recv() {
                    session.stop().await;
                }
            }
            Own::Ended => {}
        }
    }
}

impl Drop for AmqpConsumer {
    fn drop(&mut self) {
        self.holdings.give_up(self.queue, Some(self.number));
    }
}
