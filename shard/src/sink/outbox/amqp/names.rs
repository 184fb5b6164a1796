//! The queues of an outbox on a broker, by name.

use uuid::Uuid;

use super::super::super::Destination;
use crate::identity::ChannelId;

/// Events that can be held up together: one dead endpoint holds up everything that goes there, a dead handler its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Group {
    /// All that goes to the endpoint for everything.
    Endpoint,
    /// What goes to the handler of a channel.
    Handler(ChannelId),
}

impl Group {
    /// The group of a channel's events on their way to a destination.
    pub(super) fn of(channel: ChannelId, destination: Destination) -> Self {
        match destination {
            Destination::Endpoint => Self::Endpoint,
            Destination::Handler => Self::Handler(channel),
        }
    }

    /// Where its events go.
    pub(super) fn destination(self) -> Destination {
        match self {
            Self::Endpoint => Destination::Endpoint,
            Self::Handler(_) => Destination::Handler,
        }
    }

    /// Its name in queues and notes.
    pub(super) fn key(self) -> String {
        match self {
            Self::Endpoint => "endpoint".to_owned(),
            Self::Handler(channel) => channel.to_string(),
        }
    }

    /// The group of a name.
    pub(super) fn read(key: &str) -> Option<Self> {
        match key {
            "endpoint" => Some(Self::Endpoint),
            channel => Uuid::parse_str(channel).ok().map(|id| Self::Handler(ChannelId::from_uuid(id))),
        }
    }
}

/// The queues of one outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// What is open.
    pub(super) main: String,
    /// Dead letters.
    pub(super) dead: String,
    /// What was stored without a destination.
    pub(super) kept: String,
}

impl Names {
    /// Of a slot; `None` where there is one shard.
    pub(super) fn of(index: Option<u32>) -> Self {
        let suffix = index.map(|index| format!("-{index}")).unwrap_or_default();
        let main = format!("shardvisor.outbox{suffix}");
        Self { dead: format!("{main}.dead"), kept: format!("shardvisor.kept{suffix}"), main }
    }

    /// Where a group's events lie that were set aside.
    pub(super) fn aside(&self, group: Group) -> String {
        format!("{}.{}", self.main, group.key())
    }
}
