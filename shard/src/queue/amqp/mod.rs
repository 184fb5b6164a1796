//! The queues on a broker that speaks AMQP 0-9-1 (RabbitMQ), for what one machine can't carry.
//!
//! Whatever moves is published to its new place, confirmed there, and only then acknowledged in the old one: a crash in
//! between leaves two copies, never none, and the send guard sees to it that nobody is shown both. An acknowledgement itself has
//! no answer; one that was lost on its way means that the message comes again.
//!
//! Connection, channel and subscription are each made anew when they are next needed. A subscription that ends for whatever
//! reason says so, and its receipts are stale.
//!
//! What a broker can't tell: how many messages somebody else holds (counts from outside hold only what is ready), which names exist
//! (they are tried out, see [`AmqpConfig::probe_to`]), and whether a message that it gives out again was given back in good order
//! (all are marked as redelivered).

mod cause;
mod dead;
mod held;
mod ledger;
mod parked;
mod session;
mod shelf;
mod topology;
mod wire;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use tokio::sync::oneshot;

use self::{
    dead::DeadLetters,
    held::{AmqpConsumer, Holdings, Source, follow},
    parked::Parked,
    session::Session,
    topology::{Ready, Topology, look},
    wire::{LaneKey, Place},
};
use super::{Consumer, DeadLetter, Delivery, Depth, Message, Queue, QueueError, Receipt};
pub use crate::amqp::{AmqpConfig, AmqpConfigError, DeclareMode, QueueType};
use crate::{
    amqp::{config, error, error::Cause, link, link::Link, publisher, publisher::Publisher},
    identity::QueueName,
    job::Lane,
};

/// The queues of a broker.
pub struct AmqpQueue {
    config: Arc<AmqpConfig>,
    consuming: Arc<Link>,
    publisher: Publisher,
    topology: Topology,
    dead: DeadLetters,
    holdings: Holdings,
    /// The last number given.
    numbers: AtomicU64,
}

impl AmqpQueue {
    /// Takes the settings; nothing is connected yet.
    pub fn new(config: AmqpConfig) -> Self {
        let config = Arc::new(config);
        let consuming = Arc::new(Link::new(config.clone(), "consuming"));
        let publishing = Arc::new(Link::new(config.clone(), "publishing"));
        Self {
            publisher: Publisher::new(publishing, config.clone()),
            topology: Topology::new(consuming.clone(), config.clone()),
            dead: DeadLetters::new(consuming.clone(), config.clone()),
            holdings: Holdings::default(),
            numbers: AtomicU64::new(0),
            consuming,
            config,
        }
    }

    /// Whether the broker has stopped taking messages, for want of memory or disk.
    pub fn is_blocked(&self) -> bool {
        self.publisher.is_blocked()
    }

    /// A number that no other has: the time, then chance against another process in the same millisecond.
    fn number(&self) -> u64 {
        let now = jiff::Timestamp::now().as_millisecond().unsigned_abs() << 20;
        let fresh = now | (rand::random::<u64>() & 0xf_ffff);
        let next = |last: u64| Some(fresh.max(last + 1));
        let last = self.numbers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_else(|last| last);
        fresh.max(last + 1)
    }

    async fn put(&self, queue: String, message: Message, place: Place) -> Result<(), QueueError> {
        let properties = wire::encode(&message.headers, &place);
        let put = self.publisher.publish(queue.clone(), properties, message.body).await;
        put.map_err(|cause| cause.of(queue))
    }

    async fn put_into_work(&self, queue: QueueName, mut message: Message) -> Result<(), QueueError> {
        message.headers.lane_seq = None;
        let put = self.put(queue.to_string(), message, Place::default()).await;
        if let Err(QueueError::Missing { .. }) = &put {
            self.topology.forget(queue);
        }
        put
    }

    /// The parked queue, held.
    async fn parked(&self, queue: QueueName) -> Result<Arc<Parked>, QueueError> {
        let opening = self.holdings.of(queue, |held| held.opening.clone());
        let _opening = opening.lock().await;
        let known = self.holdings.of(queue, |held| held.parked.clone());
        if let Some(parked) = known {
            if parked.usable() {
                return Ok(parked);
            }
            self.holdings.of(queue, |held| held.parked = None);
            parked.close().await;
        }
        let name = queue.parked();
        let live = self.consuming.live().await.map_err(|cause| cause.of(&name))?;
        let opened = Parked::open(live, self.config.clone(), queue, self.number()).await;
        let parked = opened.map_err(|cause| cause.of(&name))?;
        self.holdings.of(queue, |held| held.parked = Some(parked.clone()));
        Ok(parked)
    }

    /// The subscriptions of a queue's consumer: of the stragglers, and of the queue itself.
    fn sessions(&self, queue: QueueName) -> [Option<Arc<Session>>; 2] {
        self.holdings.of(queue, |held| [held.stragglers.clone(), held.session.clone()])
    }
}

#[async_trait]
impl Queue for AmqpQueue {
    async fn declare(&self, queue: QueueName) -> Result<(), QueueError> {
        self.topology.declare(queue).await
    }

    async fn consume(&self, queue: QueueName, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError> {
        self.holdings.give_up(queue, None);
        self.holdings.given_up(queue).await;
        let live = self.consuming.live().await.map_err(|cause| cause.of(queue))?;
        let open = |name, number| Session::open(live.clone(), self.config.clone(), queue, name, prefetch, number);
        look(&live, &self.config, &queue.to_string()).await.map_err(|cause| cause.of(queue))?;
        let stragglers = open(queue.straggler(), self.number()).await.map_err(|cause| cause.of(queue.straggler()))?;
        self.holdings.of(queue, |held| {
            (held.consumer, held.stragglers) = (Some(stragglers.number), Some(stragglers.clone()));
        });
        let (ready, own) = oneshot::channel();
        let own_session = open(queue.to_string(), self.number());
        let following = follow(self.holdings.clone(), stragglers.clone(), own_session, ready);
        tokio::spawn(following);
        Ok(Box::new(AmqpConsumer::new(stragglers, own, self.holdings.clone())))
    }

    async fn consume_past_stragglers(
        &self,
        queue: QueueName,
        prefetch: u16,
    ) -> Result<Option<Box<dyn Consumer>>, QueueError> {
        self.holdings.give_up(queue, None);
        self.holdings.given_up(queue).await;
        let live = self.consuming.live().await.map_err(|cause| cause.of(queue))?;
        let opened = Session::open(live, self.config.clone(), queue, queue.to_string(), prefetch, self.number()).await;
        let session = opened.map_err(|cause| cause.of(queue))?;
        self.holdings.of(queue, |held| {
            (held.consumer, held.session) = (Some(session.number), Some(session.clone()));
        });
        Ok(Some(Box::new(AmqpConsumer::past_stragglers(session, self.holdings.clone()))))
    }

    async fn publish(&self, queue: QueueName, message: Message) -> Result<(), QueueError> {
        self.put_into_work(queue, message).await
    }

    async fn ack(&self, receipt: Receipt) -> Result<(), QueueError> {
        self.holdings.source(&receipt)?.ack(receipt.tag).await
    }

    async fn ack_all(&self, receipts: Vec<Receipt>) -> Vec<Result<(), QueueError>> {
        let stale = |receipt: &Receipt| QueueError::Stale { queue: receipt.queue.to_string() };
        let mut results: Vec<Result<(), QueueError>> = Vec::with_capacity(receipts.len());
        let mut sessions: Vec<Arc<Session>> = Vec::new();
        for receipt in &receipts {
            results.push(match self.holdings.source(receipt) {
                Ok(Source::Parked(parked)) => parked.ack(receipt.tag).await,
                Ok(Source::Work(session)) if session.note_acked(receipt.tag) => {
                    if sessions.iter().all(|known| known.number != session.number) {
                        sessions.push(session);
                    }
                    Ok(())
                }
                Ok(Source::Work(_)) => Err(stale(receipt)),
                Err(error) => Err(error),
            });
        }
        // The broker is told once of all that were noted.
        for session in sessions {
            if session.flushed().await.is_err() {
                let of_session = |(receipt, _): &(&Receipt, &mut _)| receipt.session == session.number;
                for (receipt, result) in receipts.iter().zip(&mut results).filter(of_session) {
                    *result = Err(stale(receipt));
                }
            }
        }
        results
    }

    async fn release(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        let mut first_error = None;
        let mut of_session: Option<(Arc<Session>, Vec<u64>)> = None;
        for receipt in receipts {
            match self.holdings.source(&receipt) {
                Err(error) => drop(first_error.get_or_insert(error)),
                Ok(Source::Parked(parked)) => {
                    if let Err(error) = parked.release(receipt.tag) {
                        first_error.get_or_insert(error);
                    }
                }
                Ok(Source::Work(session)) => match &mut of_session {
                    Some((known, tags)) if known.number == session.number => tags.push(receipt.tag),
                    _ => {
                        if let Some((before, tags)) = of_session.replace((session, vec![receipt.tag]))
                            && let Err(error) = before.release(&tags).await
                        {
                            first_error.get_or_insert(error);
                        }
                    }
                },
            }
        }
        if let Some((session, tags)) = of_session
            && let Err(error) = session.release(&tags).await
        {
            first_error.get_or_insert(error);
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn forward(&self, receipt: Receipt, to: QueueName, message: Message) -> Result<(), QueueError> {
        let source = self.holdings.source(&receipt)?;
        self.put_into_work(to, message).await?;
        source.ack(receipt.tag).await
    }

    async fn forward_straggler(&self, receipt: Receipt, to: QueueName, mut message: Message) -> Result<(), QueueError> {
        let source = self.holdings.source(&receipt)?;
        message.headers.lane_seq = None;
        let put = self.put(to.straggler(), message, Place::default()).await;
        if let Err(QueueError::Missing { .. }) = &put {
            self.topology.forget(to);
        }
        put?;
        source.ack(receipt.tag).await
    }

    async fn park(&self, receipt: Receipt, lane: &Lane, seq: u64, mut message: Message) -> Result<(), QueueError> {
        let source = self.holdings.source(&receipt)?;
        message.headers.lane_seq = Some(seq);
        let (lane, number) = (LaneKey::from(lane), self.number());
        let parked = self.holdings.of(receipt.queue, |held| held.parked.clone());
        if let Some(parked) = &parked {
            parked.expect(lane.clone(), number);
        }
        let place = Place { lane: Some(lane.clone()), number: Some(number) };
        let put = self.put(receipt.queue.parked(), message, place).await;
        if let (Err(_), Some(parked)) = (&put, &parked) {
            parked.not_expected(&lane, number);
        }
        put?;
        source.ack(receipt.tag).await
    }

    async fn unpark(&self, queue: QueueName, lane: &Lane, limit: usize) -> Result<Vec<Delivery>, QueueError> {
        let parked = self.parked(queue).await?;
        let picked = parked.pick(&LaneKey::from(lane), limit).await.map_err(|cause| cause.of(queue.parked()))?;
        if picked.is_empty() && !parked.has_out() && self.sessions(queue).iter().all(Option::is_none) {
            // Nobody reads this queue: it was looked into for another layout's sake, and is let go again.
            self.holdings.give_up(queue, None);
        }
        Ok(picked)
    }

    async fn bury(&self, receipt: Receipt, mut message: Message) -> Result<(), QueueError> {
        let source = self.holdings.source(&receipt)?;
        message.headers.lane_seq = None;
        let place = Place { lane: None, number: Some(self.number()) };
        self.put(receipt.queue.dead(), message, place).await?;
        source.ack(receipt.tag).await
    }

    async fn depth(&self, queue: QueueName) -> Result<Depth, QueueError> {
        let mut ready = self.topology.ready(queue).await?;
        for (session, ready) in self.sessions(queue).into_iter().zip([&mut ready.stragglers, &mut ready.work]) {
            let Some(session) = session else { continue };
            // A subscription that has just ended holds nothing.
            match session.depth().await {
                Ok(held) => *ready = held,
                Err(Cause::Unavailable(_)) => {}
                Err(cause) => return Err(cause.of(queue)),
            }
        }
        let Ready { work, stragglers, parked, dead } = ready;
        let mut depth = Depth { ready: work + stragglers, parked, dead };
        let parked = self.holdings.of(queue, |held| held.parked.clone());
        if let Some(parked) = parked.filter(|parked| parked.usable()) {
            depth.parked += parked.len();
        }
        Ok(depth)
    }

    async fn existing(&self) -> Result<Vec<QueueName>, QueueError> {
        self.topology.existing().await
    }

    async fn dead(&self, queue: QueueName, after: u64, limit: usize) -> Result<Vec<DeadLetter>, QueueError> {
        self.dead.list(queue, after, limit).await.map_err(|cause| cause.of(queue.dead()))
    }

    async fn replay(&self, queue: QueueName, number: u64, to: QueueName) -> Result<bool, QueueError> {
        let taken = self.dead.take(queue, number, Some((to, &self.publisher))).await;
        taken.map_err(|cause| match cause {
            Cause::Missing => cause.of(to),
            other => other.of(queue.dead()),
        })
    }

    async fn drop_dead(&self, queue: QueueName, number: u64) -> Result<bool, QueueError> {
        self.dead.take(queue, number, None).await.map_err(|cause| cause.of(queue.dead()))
    }
}
