//! The vocabulary of work: what a producer may ask for, and how a message that is no job is told apart.
//!
//! A job is JSON: `name`, `id`, `channel_id`, `data`, optionally `enqueued_at` and `expires_at`. The shape of `data` is
//! decided by `name`; an unknown key in `data` is refused, since a misspelt option that is silently ignored sends the
//! wrong message. Unknown keys of the envelope are left to producers.

mod group;
mod message;
mod parse;
mod schema;

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use group::*;
pub use message::*;
pub use parse::{MAX_JOB_BYTES, NotAJob};
pub use schema::job_schema;

use crate::identity::{ChannelId, QueueBase};

/// The idempotency key of a job: 1 to 128 characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct JobId(#[schemars(length(min = 1, max = 128))] String);

impl JobId {
    /// Takes a key of 1 to 128 characters; `None` otherwise.
    pub fn new(id: impl Into<String>) -> Option<Self> {
        let id = id.into();
        (1..=128).contains(&id.chars().count()).then_some(Self(id))
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// One unit of work for one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The idempotency key.
    pub id: JobId,
    /// Whose work it is.
    pub channel: ChannelId,
    /// What is to be done.
    pub task: Task,
    /// When the producer wrote it.
    pub enqueued_at: Option<Timestamp>,
    /// From when on it shall no longer be done.
    pub expires_at: Option<Timestamp>,
}

/// What a job asks for: its `name` and its `data` together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "name", content = "data", rename_all = "snake_case")]
pub enum Task {
    /// Start the channel, and keep it started.
    Connect(Connect),
    /// Stop the channel, and keep it stopped.
    Disconnect(Disconnect),
    /// Send or edit a text message.
    Send(Send),
    /// Send a file.
    SendMedia(SendMedia),
    /// Send a place.
    SendLocation(SendLocation),
    /// React to a message, or take a reaction back.
    SendReaction(SendReaction),
    /// Tell the peer that messages were read.
    MarkRead(MarkRead),
    /// Delete a message for everyone.
    Revoke(Revoke),
    /// Fetch the channel's history again.
    ResyncHistory(ResyncHistory),
    /// Create a group.
    GroupCreate(GroupCreate),
    /// Change a group's subject.
    GroupUpdateSubject(GroupUpdateSubject),
    /// Change a group's description.
    GroupUpdateDescription(GroupUpdateDescription),
    /// Add people to a group.
    GroupAddParticipants(GroupParticipants),
    /// Remove people from a group.
    GroupRemoveParticipants(GroupParticipants),
    /// Make participants admins.
    GroupPromote(GroupParticipants),
    /// Make admins participants.
    GroupDemote(GroupParticipants),
    /// Leave a group.
    GroupLeave(GroupRef),
    /// Get (or renew) a group's invite link.
    GroupInviteLink(GroupInviteLink),
    /// Read a group's metadata.
    GroupFetch(GroupRef),
    /// Fetch inbound media into the store.
    DownloadMedia(DownloadMedia),
    /// Fetch a profile picture.
    FetchAvatar(FetchAvatar),
}

/// What a channel's jobs of one conversation share: they start in publishing order, one after another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// Which kind of work.
    pub base: QueueBase,
    /// Whose work.
    pub channel: ChannelId,
    /// The conversation; `None` for jobs without a chat.
    pub chat: Option<String>,
}

impl Job {
    /// The lane this job runs in on a queue of `base`.
    pub fn lane(&self, base: QueueBase) -> Lane {
        Lane { base, channel: self.channel, chat: self.task.chat().map(str::to_owned) }
    }
}

impl Task {
    /// The `name` on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Disconnect(_) => "disconnect",
            Self::Send(_) => "send",
            Self::SendMedia(_) => "send_media",
            Self::SendLocation(_) => "send_location",
            Self::SendReaction(_) => "send_reaction",
            Self::MarkRead(_) => "mark_read",
            Self::Revoke(_) => "revoke",
            Self::ResyncHistory(_) => "resync_history",
            Self::GroupCreate(_) => "group_create",
            Self::GroupUpdateSubject(_) => "group_update_subject",
            Self::GroupUpdateDescription(_) => "group_update_description",
            Self::GroupAddParticipants(_) => "group_add_participants",
            Self::GroupRemoveParticipants(_) => "group_remove_participants",
            Self::GroupPromote(_) => "group_promote",
            Self::GroupDemote(_) => "group_demote",
            Self::GroupLeave(_) => "group_leave",
            Self::GroupInviteLink(_) => "group_invite_link",
            Self::GroupFetch(_) => "group_fetch",
            Self::DownloadMedia(_) => "download_media",
            Self::FetchAvatar(_) => "fetch_avatar",
        }
    }

    /// The queue base this work is done on; a job found on another one is forwarded there.
    pub fn base(&self) -> QueueBase {
        match self {
            Self::DownloadMedia(_) => QueueBase::Media,
            Self::FetchAvatar(_) => QueueBase::Avatars,
            _ => QueueBase::Main,
        }
    }

    /// The conversation it belongs to, if any.
    pub fn chat(&self) -> Option<&str> {
        match self {
            Self::Connect(_) | Self::Disconnect(_) | Self::ResyncHistory(_) | Self::GroupCreate(_) => None,
            Self::Send(data) => Some(&data.chat_id),
            Self::SendMedia(data) => Some(&data.chat_id),
            Self::SendLocation(data) => Some(&data.chat_id),
            Self::SendReaction(data) => Some(&data.chat_id),
            Self::MarkRead(data) => Some(&data.chat_id),
            Self::Revoke(data) => Some(&data.chat_id),
            Self::GroupUpdateSubject(data) => Some(&data.group_id),
            Self::GroupUpdateDescription(data) => Some(&data.group_id),
            Self::GroupAddParticipants(data)
            | Self::GroupRemoveParticipants(data)
            | Self::GroupPromote(data)
            | Self::GroupDemote(data) => Some(&data.group_id),
            Self::GroupLeave(data) | Self::GroupFetch(data) => Some(&data.group_id),
            Self::GroupInviteLink(data) => Some(&data.group_id),
            Self::DownloadMedia(data) => Some(&data.chat_id),
            Self::FetchAvatar(data) => Some(&data.chat_id),
        }
    }

    /// Whether nothing else of the channel may run beside it.
    pub fn is_barrier(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Disconnect(_) | Self::ResyncHistory(_))
    }

    /// Whether doing it twice would show something twice, so that the send guard stands before it.
    pub fn is_send(&self) -> bool {
        matches!(self, Self::Send(data) if data.edit_message_id.is_none())
            || matches!(self, Self::SendMedia(_) | Self::SendLocation(_) | Self::GroupCreate(_))
    }

    /// What to do when it is not known whether an earlier attempt reached the platform.
    pub fn on_uncertain(&self) -> OnUncertain {
        match self {
            Self::Send(data) => data.on_uncertain,
            Self::SendMedia(data) => data.on_uncertain,
            Self::SendLocation(data) => data.on_uncertain,
            _ => OnUncertain::Resend,
        }
    }
}

/// What happens to a send that may or may not have reached the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUncertain {
    /// Send again: the recipient may see it twice, never not at all.
    #[default]
    Resend,
    /// Put it into the dead-letter queue: the recipient may not see it, never twice.
    DeadLetter,
}
