//! The port through which events leave: a durable outbox, and what delivers from it.

mod agent;
mod delivery;
mod echo;
mod settings;
mod signature;
mod webhook;

use std::sync::Arc;
pub mod outbox;

use async_trait::async_trait;
use uuid::Uuid;

pub use agent::{BadAnswer, MAX_REPLIES, handler_takes, replies, reply_id};
pub use delivery::{Backoff, Delivery, DeliveryConfig, DeliveryError, DeliveryHandle};
pub use echo::echo;
pub use settings::{BadUrl, HandlerSettings, Handlers, Replies, ReplyError, Target};
pub use signature::{SIGNATURE_HEADER, sign};
pub use webhook::MAX_ANSWER_BYTES;

use crate::{event::Event, identity::ChannelId, registry::Fence};

/// Events to be stored together, with how far the platform has been read.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Under what right.
    pub fence: Fence,
    /// What happened, in order. `seq` is given when they are stored; an event whose id is stored already is skipped.
    pub events: Vec<Event>,
    /// How far the platform has been read once these are stored.
    pub offset: Option<i64>,
}

/// Told of what was stored, so that it is delivered without a look into the store.
pub type OnStored = Arc<dyn Fn(Vec<Stored>) + Send + Sync>;

/// Where an event shall go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Destination {
    /// The channel's handler.
    Handler,
    /// The endpoint for everything (`events.url`).
    Endpoint,
}

impl Destination {
    /// Its name in stores and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Handler => "handler",
            Self::Endpoint => "endpoint",
        }
    }
}

/// A stored event that has not been delivered everywhere.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its place in the outbox: greater is later, from 1 on.
    pub position: u64,
    /// When it was stored, in milliseconds since the Unix epoch: what its age is counted from.
    pub stored_ms: i64,
    /// The event.
    pub event: Event,
    /// Where it still has to go, and how often that failed.
    pub open: Vec<(Destination, u32)>,
}

/// Which open events are read: those that wait for a destination, narrowed down as far as it is known whom they wait for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All that is open for a destination.
    Destination(Destination),
    /// Of one channel.
    Channel(Destination, ChannelId),
    /// Of one conversation of a channel; of its events without a conversation, when `None`.
    Conversation(Destination, ChannelId, Option<Arc<str>>),
}

impl Scope {
    /// The destination that the events wait for.
    pub fn destination(&self) -> Destination {
        match self {
            Self::Destination(destination) | Self::Channel(destination, _) | Self::Conversation(destination, _, _) => {
                *destination
            }
        }
    }

    /// Whether an event is one of those.
    pub fn includes(&self, stored: &Stored) -> bool {
        let event = &stored.event;
        stored.open.iter().any(|(open, _)| *open == self.destination())
            && match self {
                Self::Destination(_) => true,
                Self::Channel(_, channel) => event.channel_id == *channel,
                Self::Conversation(_, channel, conversation) => {
                    event.channel_id == *channel && event.conversation.as_deref() == conversation.as_deref()
                }
            }
    }
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// Try again; nothing was stored.
    #[error("outbox unavailable: {0}")]
    Unavailable(String),
    /// A newer owner of the channel exists; nothing was stored.
    #[error("fenced: channel {0} is held by a newer owner")]
    Fenced(ChannelId),
    /// It can't work until somebody changes something (a full disk); nothing was stored.
    #[error("outbox refused: {0}")]
    Refused(String),
}

/// Where events lie until they are delivered. Every method is durable when it returns `Ok`.
#[async_trait]
pub trait Outbox: Send + Sync + 'static {
    /// Stores events, each to be delivered to what `destinations` names for it now; returns them with their `seq` and position.
    /// (With none, an event is kept for the retention time and counted.)
    async fn append(&self, batch: Batch, destinations: &[Destination]) -> Result<Vec<Stored>, OutboxError>;

    /// Like [`Outbox::append`], for events whose handler does nothing outside before something of its own is durable: `told`
    /// may be called before they are durable, so that what comes of them is stored together with them. Should they not be stored
    /// after all, the platform is not told that they were read, and gives them again.
    async fn append_leading(
        &self,
        batch: Batch,
        destinations: &[Destination],
        told: OnStored,
    ) -> Result<(), OutboxError> {
        let stored = self.append(batch, destinations).await?;
        if !stored.is_empty() {
            told(stored);
        }
        Ok(())
    }

    /// How far a channel's platform has been read.
    async fn offset(&self, channel: ChannelId) -> Result<Option<i64>, OutboxError>;

    /// Events with open destinations after a position, oldest first.
    async fn open(&self, after: u64, limit: usize) -> Result<Vec<Stored>, OutboxError>;

    /// Events of a scope with a position after `after`, oldest first; fewer than `limit` only when there are no more. An
    /// adapter that can search does better than this, which looks through all that is open.
    async fn open_in(&self, scope: &Scope, after: u64, limit: usize) -> Result<Vec<Stored>, OutboxError> {
        let (mut found, mut after, mut size) = (Vec::new(), after, limit.max(8));
        loop {
            let page = self.open(after, size).await?;
            let last = page.len() < size;
            after = page.last().map_or(after, |stored| stored.position);
            found.extend(page.into_iter().filter(|stored| scope.includes(stored)));
            if last || found.len() >= limit {
                found.truncate(limit);
                return Ok(found);
            }
            size = (size * 2).min(256);
        }
    }

    /// Waits for something to come into view that nobody was told of by [`Outbox::append`]: it is worth looking. Never, where
    /// nothing is known of it.
    async fn news(&self) {
        std::future::pending().await
    }

    /// It was delivered there.
    async fn delivered(&self, position: u64, destination: Destination) -> Result<(), OutboxError>;

    /// It was not; the count of failures is kept over restarts.
    async fn failed(&self, position: u64, destination: Destination, error: &str) -> Result<(), OutboxError>;

    /// It will not be: it goes to the outbox's dead letters.
    async fn bury(&self, position: u64, destination: Destination, reason: &str) -> Result<(), OutboxError>;

    /// Dead letters, oldest first.
    async fn dead(&self, limit: usize) -> Result<Vec<DeadEvent>, OutboxError>;

    /// Opens a dead letter's destination again, behind everything that is there. `false` when it is not there.
    async fn replay(&self, event: Uuid, destination: Destination) -> Result<bool, OutboxError>;

    /// Drops a dead letter. `false` when it is not there.
    async fn drop_dead(&self, event: Uuid, destination: Destination) -> Result<bool, OutboxError>;

    /// Removes what was kept without a destination for longer than the retention time; how many.
    async fn prune(&self, older_than: std::time::Duration) -> Result<u64, OutboxError>;
}

/// An event that could not be delivered.
#[derive(Debug, Clone)]
pub struct DeadEvent {
    /// The event.
    pub event: Event,
    /// Where it could not be delivered.
    pub destination: Destination,
    /// Why.
    pub reason: String,
    /// How often it was tried.
    pub attempts: u32,
}
