//! Jobs, written as a producer writes them.

use shard::{
    identity::ChannelId,
    job::{
        Connect, Disconnect, DownloadMedia, FetchAvatar, Job, JobId, MarkRead, OnUncertain, ResyncHistory, Send, Task,
    },
    platform::Failed,
};
use uuid::Uuid;

/// A channel whose shard is `prefix` modulo the count.
pub(crate) fn channel(prefix: u32, number: u32) -> ChannelId {
    ChannelId::from_uuid(Uuid::from_u128((u128::from(prefix) << 96) | u128::from(number) | (7 << 76)))
}

/// A job of a channel.
pub(crate) fn job(id: &str, channel: ChannelId, task: Task) -> Job {
    Job { id: JobId::new(id).expect("short"), channel, task, enqueued_at: None, expires_at: None }
}

/// A text message, sent again when in doubt.
pub(crate) fn send(id: &str, channel: ChannelId, chat: &str) -> Job {
    send_or(id, channel, chat, OnUncertain::Resend)
}

/// A text message with what to do when in doubt.
pub(crate) fn send_or(id: &str, channel: ChannelId, chat: &str, on_uncertain: OnUncertain) -> Job {
    let data = Send { chat_id: chat.to_owned(), text: id.to_owned(), on_uncertain, ..Send::default() };
    job(id, channel, Task::Send(data))
}

/// Work that is no send.
pub(crate) fn mark_read(id: &str, channel: ChannelId, chat: &str) -> Job {
    let data = MarkRead { chat_id: chat.to_owned(), message_ids: vec!["1".to_owned()], participant: None };
    job(id, channel, Task::MarkRead(data))
}

/// A download.
pub(crate) fn download(id: &str, channel: ChannelId, chat: &str) -> Job {
    let data = DownloadMedia { chat_id: chat.to_owned(), message_id: id.to_owned(), media: Default::default() };
    job(id, channel, Task::DownloadMedia(data))
}

/// A profile picture.
pub(crate) fn avatar(id: &str, channel: ChannelId, chat: &str) -> Job {
    job(id, channel, Task::FetchAvatar(FetchAvatar { chat_id: chat.to_owned(), preview: false }))
}

/// Makes a channel wanted.
pub(crate) fn connect(id: &str, channel: ChannelId) -> Job {
    job(id, channel, Task::Connect(Connect {}))
}

/// Makes it unwanted.
pub(crate) fn disconnect(id: &str, channel: ChannelId) -> Job {
    job(id, channel, Task::Disconnect(Disconnect { logout: false }))
}

/// A barrier that the platform does.
pub(crate) fn resync(id: &str, channel: ChannelId) -> Job {
    job(id, channel, Task::ResyncHistory(ResyncHistory::default()))
}

/// A failure that is worth another try.
pub(crate) fn retry() -> Failed {
    Failed::Retry { error: "busy".to_owned(), after: None }
}

/// A failure for good.
pub(crate) fn permanent() -> Failed {
    Failed::Permanent { reason: "bad_recipient", error: "nobody there".to_owned() }
}
