//! A parked queue that is being held: see [`Shelf`] for why all of it is.
//!
//! It is opened when a lane's jobs are first asked for, and closed with the subscription of its work queue; in between it
//! is read anew from time to time when nothing is out, since brokers close a channel that holds deliveries for too long.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, Weak},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::Stream;
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions},
    types::FieldTable,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    super::{Delivery, QueueError, Receipt},
    config::AmqpConfig,
    error::{Cause, answered},
    ledger::Tag,
    link::Live,
    shelf::{Picked, Shelf},
    topology::count,
    wire::{self, LaneKey},
};
use crate::identity::QueueName;

/// One holding of a parked queue.
pub(super) struct Parked {
    pub(super) number: u64,
    queue: QueueName,
    channel: Channel,
    config: Arc<AmqpConfig>,
    inner: Mutex<Inner>,
    arrivals: Notify,
    opened: Instant,
    _live: Arc<Live>,
}

struct Inner {
    shelf: Shelf,
    /// Copies that were left behind, to be acknowledged.
    copies: Vec<Tag>,
    failure: Option<Cause>,
}

impl Parked {
    /// Takes hold of all that is parked; `Ok` when all of it has come.
    pub(super) async fn open(
        live: Arc<Live>,
        config: Arc<AmqpConfig>,
        queue: QueueName,
        number: u64,
    ) -> Result<Arc<Self>, Cause> {
        let (channel, stream) = alone(&live, &config, queue, number).await?;
        let shelf = Shelf::new(config.parked_budget);
        let inner = Mutex::new(Inner { shelf, copies: Vec::new(), failure: None });
        let arrivals = Notify::new();
        let this = Self { number, queue, channel, config, inner, arrivals, opened: Instant::now(), _live: live };
        let this = Arc::new(this);
        tokio::spawn(pump(Arc::downgrade(&this), stream.clone()));
        match this.catch_up(stream).await {
            Ok(()) => Ok(this),
            Err(cause) => {
                this.close().await;
                Err(cause)
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("parked")
    }

    /// Waits until everything that lay in the queue has been delivered to us: nothing is ready any more, and we are its
    /// only consumer. (A broker puts back what another one held in the same step in which it forgets that one.)
    async fn catch_up(&self, mut stream: lapin::Consumer) -> Result<(), Cause> {
        let deadline = Instant::now() + self.config.answer_timeout;
        let name = self.queue.parked();
        loop {
            let (ready, consumers) = count(&self.channel, &self.config, &name).await?;
            if ready == 0 && consumers == 1 {
                // What left the queue before that answer has arrived when this one has.
                count(&self.channel, &self.config, &name).await?;
                self.receive(&mut stream, &mut Context::from_waker(std::task::Waker::noop()));
                return self.failure().map_or(Ok(()), Err);
            }
            if Instant::now() >= deadline {
                let cause = format!("{ready} parked jobs did not come, and {consumers} consumers hold the queue");
                return Err(Cause::Unavailable(cause));
            }
            let arrived = self.arrivals.notified();
            let _ = tokio::time::timeout(Duration::from_millis(50), arrived).await;
        }
    }

    /// Puts what has arrived onto the shelf. `false` when there will be no more.
    fn receive(&self, stream: &mut lapin::Consumer, cx: &mut Context<'_>) -> bool {
        let mut inner = self.inner();
        let mut any = false;
        let open = loop {
            if inner.failure.is_some() {
                break false;
            }
            match Pin::new(&mut *stream).poll_next(cx) {
                Poll::Pending => break true,
                Poll::Ready(Some(Ok(raw))) => {
                    let (message, place) = wire::decode(raw.properties, raw.data);
                    let copy = inner.shelf.arrived(raw.delivery_tag, message, place, raw.redelivered);
                    inner.copies.extend(copy);
                    any = true;
                }
                Poll::Ready(Some(Err(error))) => inner.failure = Some(Cause::from(error)),
                Poll::Ready(None) => {
                    inner.failure = Some(Cause::Unavailable("the broker ended the holding of the parked queue".into()));
                }
            }
        };
        drop(inner);
        if any || !open {
            self.arrivals.notify_waiters();
        }
        open
    }

    fn failure(&self) -> Option<Cause> {
        self.inner().failure.clone()
    }

    /// Whether it can be asked: the channel stands, and it is not time to read anew.
    pub(super) fn usable(&self) -> bool {
        let stands = self.channel.status().connected() && self.failure().is_none();
        stands && (self.opened.elapsed() < self.config.parked_reread || self.inner().shelf.has_out())
    }

    /// A message with this number is being published into the queue.
    pub(super) fn expect(&self, lane: LaneKey, number: u64) {
        self.inner().shelf.expect(lane, number);
    }

    /// It did not get there.
    pub(super) fn not_expected(&self, lane: &LaneKey, number: u64) {
        self.inner().shelf.not_expected(lane, number);
        self.arrivals.notify_waiters();
    }

    /// How many lie there.
    pub(super) fn len(&self) -> u64 {
        self.inner().shelf.len() as u64
    }

    /// Whether any is out.
    pub(super) fn has_out(&self) -> bool {
        self.inner().shelf.has_out()
    }

    /// The first of a lane that are not out.
    pub(super) async fn pick(&self, lane: &LaneKey, limit: usize) -> Result<Vec<Delivery>, Cause> {
        let deadline = Instant::now() + self.config.answer_timeout;
        loop {
            let arrived = self.arrivals.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            let copies = std::mem::take(&mut self.inner().copies);
            for tag in copies {
                self.channel.basic_ack(tag, BasicAckOptions::default()).await?;
            }
            let picked = self.inner().shelf.pick(lane, limit);
            match picked {
                Picked::Ready(given) => {
                    let delivery = |given: super::shelf::Given| Delivery {
                        receipt: Receipt { queue: self.queue, tag: given.number, session: self.number },
                        message: given.message,
                        redelivered: given.redelivered,
                    };
                    return Ok(given.into_iter().map(delivery).collect());
                }
                Picked::HandBack(tags) => {
                    for tag in tags {
                        let options = BasicNackOptions { multiple: false, requeue: true };
                        self.channel.basic_nack(tag, options).await?;
                    }
                }
                Picked::Coming => {}
            }
            if timeout_at(deadline, arrived).await.is_err() {
                return Err(Cause::Unavailable("parked jobs that were confirmed did not come back".to_owned()));
            }
        }
    }

    fn stale(&self) -> QueueError {
        QueueError::Stale { queue: self.queue.to_string() }
    }

    /// Whether a delivery may be settled.
    pub(super) fn is_out(&self, number: u64) -> bool {
        self.channel.status().connected() && self.inner().shelf.is_out(number)
    }

    /// It leaves the queue.
    pub(super) async fn ack(&self, number: u64) -> Result<(), QueueError> {
        let tag = self.inner().shelf.settled(number).ok_or_else(|| self.stale())?;
        let acked = self.channel.basic_ack(tag, BasicAckOptions::default()).await;
        if acked.is_ok() && self.channel.status().connected() { Ok(()) } else { Err(self.stale()) }
    }

    /// It stays where it is.
    pub(super) fn release(&self, number: u64) -> Result<(), QueueError> {
        if self.inner().shelf.released(number) { Ok(()) } else { Err(self.stale()) }
    }

    /// Gives everything back to the broker.
    pub(super) async fn close(&self) {
        self.inner().failure.get_or_insert(Cause::Unavailable("the parked queue is no longer held".to_owned()));
        self.arrivals.notify_waiters();
        if self.channel.status().connected() {
            let _ = answered(self.config.answer_timeout, self.channel.close(200, "".into())).await;
        }
    }
}

/// Subscribes as the only one, where the broker knows such a thing (it does for classic queues; for quorum queues the count of
/// consumers tells). A predecessor that is just ending is waited for.
async fn alone(
    live: &Live,
    config: &AmqpConfig,
    queue: QueueName,
    number: u64,
) -> Result<(Channel, lapin::Consumer), Cause> {
    let deadline = Instant::now() + config.answer_timeout;
    loop {
        let channel = live.channel().await?;
        let consuming = channel.basic_consume(
            queue.parked().as_str().into(),
            format!("{} parked {number:x}", config.name).as_str().into(),
            BasicConsumeOptions { exclusive: true, ..BasicConsumeOptions::default() },
            FieldTable::default(),
        );
        match answered(config.answer_timeout, consuming).await {
            Ok(stream) => return Ok((channel, stream)),
            Err(Cause::Refused(text)) if text.contains("exclusive") => {
                if Instant::now() >= deadline {
                    return Err(Cause::Unavailable("another process holds the parked queue".to_owned()));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(cause) => return Err(cause),
        }
    }
}

/// Takes in what the broker delivers, for as long as somebody holds the queue.
async fn pump(parked: Weak<Parked>, mut stream: lapin::Consumer) {
    std::future::poll_fn(|cx| {
        let open = parked.upgrade().is_some_and(|parked| parked.receive(&mut stream, cx));
        if open { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}
