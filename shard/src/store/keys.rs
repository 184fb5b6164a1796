//! How channels, queue bases and lanes are written down in the files.

use crate::{
    identity::{ChannelId, QueueBase},
    job::Lane,
};

/// A channel as a key: its 16 bytes.
pub(crate) fn key(channel: ChannelId) -> [u8; 16] {
    channel.uuid().into_bytes()
}

/// The channel behind a key.
pub(crate) fn unkey(key: [u8; 16]) -> ChannelId {
    ChannelId::from_uuid(uuid::Uuid::from_bytes(key))
}

/// The number of a base.
pub(crate) fn base_number(base: QueueBase) -> i64 {
    match base {
        QueueBase::Main => 0,
        QueueBase::Media => 1,
        QueueBase::Avatars => 2,
    }
}

/// A lane within its base.
pub(crate) fn lane_key(lane: &Lane) -> String {
    match &lane.chat {
        None => lane.channel.to_string(),
        Some(chat) => format!("{}/{chat}", lane.channel),
    }
}
