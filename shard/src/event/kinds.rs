//! Each thing that can happen, with its data. `type` on the wire is `<subject>.<what>`.

use serde::{Deserialize, Serialize};

/// What happened: `type` and `data`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum EventKind {
    /// A message came in.
    #[serde(rename = "message.received")]
    MessageReceived(Message),
    /// A message's content was changed by its author.
    #[serde(rename = "message.edited")]
    MessageEdited(Message),
    /// Someone reacted, or took a reaction back.
    #[serde(rename = "message.reaction")]
    Reaction(Reaction),
    /// A message was deleted for everyone.
    #[serde(rename = "message.revoked")]
    Revoked(MessageRef),
    /// The peer received, read or played a message of ours.
    #[serde(rename = "message.receipt")]
    Receipt(Receipt),
    /// Someone pressed a button or used a command of the platform's own.
    #[serde(rename = "interaction.received")]
    Interaction(Interaction),
    /// Something the platform told that has no word here yet; nothing is dropped.
    #[serde(rename = "platform.other")]
    Other(Other),
    /// The channel's connection changed its state.
    #[serde(rename = "channel.state")]
    ChannelState(ChannelState),
    /// A code to link a device with.
    #[serde(rename = "channel.pairing_code")]
    PairingCode(PairingCode),
    /// A job was done.
    #[serde(rename = "job.done")]
    JobDone(JobDone),
    /// A job will not be done.
    #[serde(rename = "job.failed")]
    JobFailed(JobFailed),
    /// A file was stored.
    #[serde(rename = "media.stored")]
    MediaStored(serde_json::Map<String, serde_json::Value>),
    /// A profile picture was stored, is hidden, or is not there.
    #[serde(rename = "avatar.stored")]
    AvatarStored(serde_json::Map<String, serde_json::Value>),
    /// A part of a channel's history.
    #[serde(rename = "history.batch")]
    HistoryBatch(serde_json::Map<String, serde_json::Value>),
}

impl EventKind {
    /// The `type` on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MessageReceived(_) => "message.received",
            Self::MessageEdited(_) => "message.edited",
            Self::Reaction(_) => "message.reaction",
            Self::Revoked(_) => "message.revoked",
            Self::Receipt(_) => "message.receipt",
            Self::Interaction(_) => "interaction.received",
            Self::Other(_) => "platform.other",
            Self::ChannelState(_) => "channel.state",
            Self::PairingCode(_) => "channel.pairing_code",
            Self::JobDone(_) => "job.done",
            Self::JobFailed(_) => "job.failed",
            Self::MediaStored(_) => "media.stored",
            Self::AvatarStored(_) => "avatar.stored",
            Self::HistoryBatch(_) => "history.batch",
        }
    }
}

/// Who wrote or did something.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Author {
    /// The platform's id of the person.
    pub id: String,
    /// A name to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A public handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Whether it is a bot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_bot: bool,
}

/// A message's content and place.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Message {
    /// The provider's id of the message.
    pub message_id: String,
    /// The conversation.
    pub chat_id: String,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Author>,
    /// `private`, `group` or `channel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_type: Option<String>,
    /// The text, or the caption of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The message that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The topic or thread inside the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// A file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<Media>,
    /// A place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
    /// The platform's own form, where it holds more than the fields above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<serde_json::Value>,
}

/// A file inside a message, as it can be downloaded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Media {
    /// `image`, `video`, `audio`, `voice`, `document`, `sticker`, `animation` or `video_note`.
    pub kind: String,
    /// The MIME type, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The name, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    /// Bytes, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The platform's reference by which it is fetched.
    pub reference: String,
    /// What else the platform needs to fetch it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<serde_json::Value>,
}

/// A place.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Location {
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
    /// The name of the place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// Which message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MessageRef {
    /// The conversation.
    pub chat_id: String,
    /// The provider's id of the message.
    pub message_id: String,
}

/// A reaction to a message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reaction {
    /// The conversation.
    pub chat_id: String,
    /// The provider's id of the message reacted to.
    pub message_id: String,
    /// Who reacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Author>,
    /// Their reactions now; empty when all were taken back. Slack tells of one at a time: the one that was added.
    pub emoji: Vec<String>,
    /// Slack: the one that was taken back; there may be others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<String>,
}

/// How far a message of ours has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Receipt {
    /// The conversation.
    pub chat_id: String,
    /// The messages.
    pub message_ids: Vec<String>,
    /// `delivered`, `read` or `played`.
    pub status: String,
    /// Who received or read it, in a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant: Option<String>,
}

/// A button, a command or a form of the platform.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Interaction {
    /// The provider's id of the interaction.
    pub interaction_id: String,
    /// `callback`, `slash_command`, `block_actions`, ….
    pub interaction: String,
    /// The conversation, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<String>,
    /// The message that held the button.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Author>,
    /// What the button or command carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The platform's own form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<serde_json::Value>,
}

/// An update in the platform's own words.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Other {
    /// The platform's name of the update.
    pub update: String,
    /// The update itself.
    pub raw: serde_json::Value,
}

/// A channel's connection, as it stands now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChannelState {
    /// `connecting`, `connected`, `reconnecting`, `replaced`, `logged_out`, `banned`, `needs_pairing`, `parked`, `stopped`.
    pub state: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A code by which a device is linked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PairingCode {
    /// `qr` or `code`.
    pub method: String,
    /// The code to show.
    pub code: String,
    /// Seconds for which it holds.
    pub expires_in: u64,
}

/// A job's result.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JobDone {
    /// The job's id.
    pub job_id: String,
    /// The job's name.
    pub name: String,
    /// The provider's id of what was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// What else came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// An earlier try may have reached the platform too: the recipient may have seen it twice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
}

/// A job that went to the dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobFailed {
    /// The job's id.
    pub job_id: String,
    /// The job's name.
    pub name: String,
    /// A word of the closed list of reasons.
    pub reason: String,
    /// How often it was tried.
    pub attempts: u32,
    /// The last error.
    pub error: String,
}
