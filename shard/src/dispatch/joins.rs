//! The joints between rooms that must not know each other: handlers and replies as the delivery of events sees them.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    channel::RosterHandle,
    directory::Handler,
    identity::{ChannelId, ShardId},
    job::Job,
    queue::{Message, Queue},
    sink::{HandlerSettings, Handlers, Replies, ReplyError},
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
