//! The port through which jobs come: durable queues with manual settlement.
//!
//! A delivery is settled exactly once: acked, released, forwarded, parked or buried. What is not settled when its
//! consumer goes away is delivered again, in its old place. Whatever this port moves is confirmed in its new place
//! before it leaves the old one.

#[cfg(feature = "amqp")]
mod amqp;
mod embedded;
mod lanes;
mod retry;

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

#[cfg(feature = "amqp")]
pub use amqp::{AmqpConfig, AmqpConfigError, AmqpQueue, DeclareMode, QueueType};
pub use embedded::EmbeddedQueue;
pub use lanes::{Action, Arrival, Key, Lanes, Limits};
pub use retry::RetryPolicy;

use crate::{identity::QueueName, job::Lane};

/// What travels beside a job's body. Kept by us, since brokers count deliveries each in their own way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Headers {
    /// How often the work was tried and failed.
    #[serde(default)]
    pub attempts: u32,
    /// The error of the first try that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// The error of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// In a dead-letter queue: a word of the closed list of reasons, with the field or cause behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In a dead-letter queue: where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// In a dead-letter queue: when it was put there, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_at_ms: Option<i64>,
    /// In a parked queue: its place within its lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane_seq: Option<u64>,
    /// Headers of the producer that are not ours, kept as they are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub foreign: BTreeMap<String, String>,
}

/// A body and its headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The job, or whatever somebody put there.
    pub body: Bytes,
    /// What travels beside it.
    pub headers: Headers,
}

impl Message {
    /// A fresh message.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), headers: Headers::default() }
    }
}

/// The adapter's handle of one delivery. It is consumed by settling.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The queue it came from.
    pub queue: QueueName,
    /// The adapter's own number for it.
    pub tag: u64,
    /// Which consumer session gave it out: a receipt of an older one is [`QueueError::Stale`].
    pub session: u64,
}

/// A message on its way through us.
#[derive(Debug)]
pub struct Delivery {
    /// What settles it.
    pub receipt: Receipt,
    /// What was in the queue.
    pub message: Message,
    /// It may have been delivered before, to somebody who did not settle it.
    pub redelivered: bool,
}

/// How many messages wait in a queue and beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Depth {
    /// In the work queue, delivered ones included.
    pub ready: u64,
    /// In `<queue>.parked`.
    pub parked: u64,
    /// In `<queue>.dead`.
    pub dead: u64,
}

/// A dead letter as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The adapter's number; stable while it lies there.
    pub number: u64,
    /// The message.
    pub message: Message,
}

/// What went wrong, and whose fault it is.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The store or broker can't be reached just now: try again.
    #[error("{queue}: unavailable: {cause}")]
    Unavailable {
        /// The queue.
        queue: String,
        /// Why.
        cause: String,
    },
    /// The receipt is of a session that has ended; the message will be delivered again.
    #[error("{queue}: the delivery belongs to a session that has ended")]
    Stale {
        /// The queue.
        queue: String,
    },
    /// Somebody newer holds this queue; nothing was written.
    #[error("{queue}: fenced: a newer incarnation holds it")]
    Fenced {
        /// The queue.
        queue: String,
    },
    /// The queue is not there.
    #[error("{queue}: there is no such queue")]
    Missing {
        /// The queue.
        queue: String,
    },
    /// It can't work until somebody changes something: full disk, other arguments, no permission.
    #[error("{queue}: {cause}")]
    Refused {
        /// The queue.
        queue: String,
        /// What and where.
        cause: String,
    },
}

/// Deliveries of one queue. Dropping it ends the subscription; what is unsettled is then given to the next consumer.
#[async_trait]
pub trait Consumer: Send {
    /// The next delivery; waits while there is none. `None` after [`Consumer::stop`] and when all that had been fetched is out.
    /// An error is final for this consumer: subscribe again. Cancel-safe.
    async fn next(&mut self) -> Option<Result<Delivery, QueueError>>;

    /// No further deliveries. Those that are out can still be settled.
    async fn stop(&mut self);
}

/// Durable queues. Every method is durable when it returns `Ok`.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Makes sure that a queue and its parked and dead companions are there.
    async fn declare(&self, queue: QueueName) -> Result<(), QueueError>;

    /// Subscribes; at most `prefetch` deliveries are out unsettled at a time (parked ones from [`Queue::unpark`] not counted).
    /// Those are given out in publishing order.
    async fn consume(&self, queue: QueueName, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError>;

    /// Appends to a queue, from whatever process. `Missing` when nobody ever declared it.
    async fn publish(&self, queue: QueueName, message: Message) -> Result<(), QueueError>;

    /// Like [`Queue::publish`], for a job that does nothing before something of its own is durable (a send behind its
    /// guard). A store that holds both may give it out to a consumer of this process before it is durable itself, and make both
    /// durable at once; should it fail after all, whoever consumes here subscribes again.
    async fn publish_guarded(&self, queue: QueueName, message: Message) -> Result<(), QueueError> {
        self.publish(queue, message).await
    }

    /// The work is done and stored: the message goes.
    async fn ack(&self, receipt: Receipt) -> Result<(), QueueError>;

    /// The same for several, each on its own: an answer for each, in their order.
    async fn ack_all(&self, receipts: Vec<Receipt>) -> Vec<Result<(), QueueError>> {
        join_all(receipts.into_iter().map(|receipt| self.ack(receipt))).await
    }

    /// The work was not begun: each goes back to its old place, and no attempt is counted.
    async fn release(&self, receipts: Vec<Receipt>) -> Result<(), QueueError>;

    /// Moves it to the end of another queue.
    async fn forward(&self, receipt: Receipt, to: QueueName, message: Message) -> Result<(), QueueError>;

    /// The same for who wants to bring older jobs to where they are read first, and so reads none of those. `None` when this adapter
    /// has no such place.
    async fn consume_past_stragglers(
        &self,
        _queue: QueueName,
        _prefetch: u16,
    ) -> Result<Option<Box<dyn Consumer>>, QueueError> {
        Ok(None)
    }

    /// Moves it to where the consumer of `to` looks before `to` itself, since it is older than all that lies there. An adapter
    /// without such a place appends it.
    async fn forward_straggler(&self, receipt: Receipt, to: QueueName, message: Message) -> Result<(), QueueError> {
        self.forward(receipt, to, message).await
    }

    /// Moves it into `<queue>.parked`, at `seq` of its lane.
    async fn park(&self, receipt: Receipt, lane: &Lane, seq: u64, message: Message) -> Result<(), QueueError>;

    /// The first `limit` parked messages of a lane in order of `seq`, each to be settled like a delivery
    /// (an ack removes it, a release or `park` with its old `seq` leaves it parked). Those already out are not given again.
    async fn unpark(&self, queue: QueueName, lane: &Lane, limit: usize) -> Result<Vec<Delivery>, QueueError>;

    /// Moves it into `<queue>.dead`; `message.headers` say why.
    async fn bury(&self, receipt: Receipt, message: Message) -> Result<(), QueueError>;

    /// What waits in and beside a queue.
    async fn depth(&self, queue: QueueName) -> Result<Depth, QueueError>;

    /// The queues of ours, of any layout, that exist.
    async fn existing(&self) -> Result<Vec<QueueName>, QueueError>;

    /// Dead letters from `after` (exclusive) on, oldest first.
    async fn dead(&self, queue: QueueName, after: u64, limit: usize) -> Result<Vec<DeadLetter>, QueueError>;

    /// Puts a dead letter back into `to`, attempts forgotten. `false` when it is not there.
    async fn replay(&self, queue: QueueName, number: u64, to: QueueName) -> Result<bool, QueueError>;

    /// Drops a dead letter. `false` when it is not there.
    async fn drop_dead(&self, queue: QueueName, number: u64) -> Result<bool, QueueError>;
}

/// How long a consumer may wait before it looks by itself, should a wake-up have been lost.
pub const LOOK_ANYWAY: Duration = Duration::from_secs(1);
