//! The joints between rooms that must not know each other: channels as jobs see them, handlers and replies as the delivery
//! of events sees them.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;

use super::{Availability, Channels, Ready};
use crate::{
    channel::{self, RosterHandle},
    directory::{DirectoryError, Handler},
    identity::{ChannelId, ShardId},
    job::Job,
    platform::{Platform, PlatformKind},
    queue::{Message, Queue},
    sink::{HandlerSettings, Handlers, Replies, ReplyError},
};

/// The roster, as jobs and the delivery of events see it.
pub struct RosterChannels {
    roster: RosterHandle,
    platforms: HashMap<PlatformKind, Arc<dyn Platform>>,
}

impl RosterChannels {
    /// Over a roster and the networks it uses.
    pub fn new(roster: RosterHandle, platforms: &[Arc<dyn Platform>]) -> Self {
        let platforms = platforms.iter().map(|platform| (platform.kind(), platform.clone())).collect();
        Self { roster, platforms }
    }
}

#[async_trait]
impl Channels for RosterChannels {
    fn availability(&self, channel: ChannelId) -> Availability {
        match self.roster.work(channel) {
            channel::Availability::Ready { sender, fence, spec } => match self.platforms.get(&spec.platform) {
                Some(platform) => Availability::Ready(Ready { spec, fence, platform: platform.clone(), sender }),
                None => Availability::Unknown,
            },
            channel::Availability::Starting => Availability::Starting,
            channel::Availability::Disabled => Availability::Disabled,
            channel::Availability::Unknown => Availability::Unknown,
        }
    }

    async fn changed(&self) {
        self.roster.changed().await;
    }

    async fn connect(&self, channel: ChannelId) -> Result<bool, DirectoryError> {
        self.roster.connect(channel).await
    }

    async fn disconnect(&self, channel: ChannelId, _logout: bool) -> Result<bool, DirectoryError> {
        self.roster.disconnect(channel).await
    }
}

impl Handlers for RosterChannels {
    fn handler(&self, channel: ChannelId) -> Option<HandlerSettings> {
        let channel::Availability::Ready { spec, .. } = self.roster.work(channel) else { return None };
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
            self.queue.publish(queue, message).await.map_err(|error| ReplyError(error.to_string()))?;
        }
        Ok(())
    }
}
