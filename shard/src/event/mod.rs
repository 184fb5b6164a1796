//! The vocabulary of what happened: one shape for everything that platforms and jobs produce.
//!
//! An event's id is derived from what it tells about, so that the same update stored twice after a crash is the same
//! event to whoever receives it.

mod kinds;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use kinds::*;

use crate::{identity::ChannelId, platform::PlatformKind};

/// The namespace of event ids (RFC 9562 version 5).
const NAMESPACE: Uuid = Uuid::from_u128(0x5a1d_76b2_8f0e_4d53_9c3e_2f61_77aa_0b4e);

/// Something that happened on a channel. Serialised, it is what a sink receives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Unique, and the same when the same thing is told again.
    pub id: Uuid,
    /// Whose channel.
    pub channel_id: ChannelId,
    /// Which network.
    pub platform: PlatformKind,
    /// The conversation it belongs to; events of one conversation are delivered in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// Gapless for each channel; given by the outbox when the event is stored.
    #[serde(default)]
    pub seq: u64,
    /// When it happened, as the platform says; else when it was noticed.
    pub occurred_at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// An event whose id follows from `key`: what it tells about, unique for its channel and type
    /// (for example `update/42` or `job/<id>/done`).
    pub fn new(
        channel_id: ChannelId,
        platform: PlatformKind,
        conversation: Option<String>,
        occurred_at: Timestamp,
        key: &str,
        kind: EventKind,
    ) -> Self {
        let name = format!("{channel_id}/{}/{key}", kind.name());
        let id = Uuid::new_v5(&NAMESPACE, name.as_bytes());
        Self { id, channel_id, platform, conversation, seq: 0, occurred_at, kind }
    }
}
