//! The joints between rooms that must not know each other: handlers and replies as the delivery of events sees them, and the
//! registry as an outbox on a broker sees it.

use std::sync::Arc;

use async_trait::async_trait;
#[cfg(feature = "amqp")]
use uuid::Uuid;

use crate::{
    channel::RosterHandle,
    directory::Handler,
    identity::{ChannelId, ShardId},
    job::Job,
    queue::{Message, Queue},
    sink::{HandlerSettings, Handlers, Replies, ReplyError},
};
#[cfg(feature = "amqp")]
use crate::{
    registry::{Fence, Registry, RegistryError},
    sink::outbox::{BookError, EventBook},
};

/// The handlers of a roster's channels, as the delivery of events sees them.
pub struct RosterHandlers(RosterHandle);

impl RosterHandlers {
    /// Over a roster.
    pub fn new(roster: RosterHandle) -> Self {
        Self(roster)
    }
}

impl Handlers for RosterHandlers {
    fn handler(&self, channel: ChannelId) -> Option<HandlerSettings> {
        let spec = self.0.spec(channel)?;
        Some(match &spec.handler {
            Handler::None => HandlerSettings::None,
            Handler::Echo => HandlerSettings::Echo,
            Handler::Agent { url, secret } => HandlerSettings::agent(url, secret.clone()),
        })
    }
}

/// Replies go into the channel's own queue, as jobs like any other.
pub struct QueuedReplies {
    shard: ShardId,
    queue: Arc<dyn Queue>,
}

impl QueuedReplies {
    /// Into the queues of a layout.
    pub fn new(shard: ShardId, queue: Arc<dyn Queue>) -> Self {
        Self { shard, queue }
    }
}

#[async_trait]
impl Replies for QueuedReplies {
    async fn reply(&self, jobs: Vec<Job>) -> Result<(), ReplyError> {
        for job in jobs {
            let queue = self.shard.queue_for_channel(job.base(), job.channel);
            let message = Message::new(job.to_json());
            let published = if job.task.is_send() {
                self.queue.publish_guarded(queue, message).await
            } else {
                self.queue.publish(queue, message).await
            };
            published.map_err(|error| ReplyError(error.to_string()))?;
        }
        Ok(())
    }
}

/// A registry, as an outbox on a broker sees it.
#[cfg(feature = "amqp")]
pub struct RegistryBook(Arc<dyn Registry>);

#[cfg(feature = "amqp")]
impl RegistryBook {
    /// Over a registry.
    pub fn new(registry: Arc<dyn Registry>) -> Self {
        Self(registry)
    }
}

#[cfg(feature = "amqp")]
fn in_its_words(error: RegistryError) -> BookError {
    match error {
        RegistryError::Unavailable(_) => BookError::Unavailable(error.to_string()),
        RegistryError::Fenced { resource } => BookError::Fenced { resource },
        RegistryError::Refused(_) => BookError::Refused(error.to_string()),
    }
}

#[cfg(feature = "amqp")]
#[async_trait]
impl EventBook for RegistryBook {
    async fn place_events(&self, fence: &Fence, ids: &[Uuid]) -> Result<Vec<Option<u64>>, BookError> {
        self.0.place_events(fence, ids).await.map_err(in_its_words)
    }

    async fn events_stored(&self, fence: &Fence, ids: &[Uuid], offset: Option<i64>) -> Result<(), BookError> {
        self.0.events_stored(fence, ids, offset).await.map_err(in_its_words)
    }

    async fn read_to(&self, channel: ChannelId) -> Result<Option<i64>, BookError> {
        self.0.read_to(channel).await.map_err(in_its_words)
    }

    async fn mark_events(&self, marks: &[(Uuid, Option<String>)]) -> Result<(), BookError> {
        self.0.mark_events(marks).await.map_err(in_its_words)
    }

    async fn event_marks(&self, ids: &[Uuid]) -> Result<Vec<Option<String>>, BookError> {
        self.0.event_marks(ids).await.map_err(in_its_words)
    }

    async fn note(&self, outbox: &str, key: &str, note: Option<&str>) -> Result<(), BookError> {
        self.0.note(outbox, key, note).await.map_err(in_its_words)
    }

    async fn notes(&self, outbox: &str) -> Result<Vec<(String, String)>, BookError> {
        self.0.notes(outbox).await.map_err(in_its_words)
    }
}
