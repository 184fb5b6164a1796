//! Control and messages: everything a job's `data` can hold outside groups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OnUncertain;

/// `connect`: no options.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connect {}

/// `disconnect`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Disconnect {
    /// Also give up the login (WhatsApp: unlink the device).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub logout: bool,
}

/// `send`: a text message, or the new text of one sent before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// The conversation, in the platform's own form.
    #[schemars(length(min = 1))]
    pub chat_id: String,
    /// The text.
    #[schemars(length(min = 1))]
    pub text: String,
    /// The provider id of the message that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The provider id of an own message whose text this replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit_message_id: Option<String>,
    /// A topic or thread inside the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Who is mentioned, in the platform's own form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<String>,
    /// Telegram: how the text is marked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parse_mode: Option<ParseMode>,
    /// Slack: the message as Block Kit blocks; the text is then what notifications show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<serde_json::Map<String, serde_json::Value>>,
    /// What to do when an earlier attempt may have reached the platform.
    #[serde(default)]
    pub on_uncertain: OnUncertain,
}

/// How a text is marked up (Telegram).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ParseMode {
    /// MarkdownV2.
    MarkdownV2,
    /// HTML.
    #[serde(rename = "HTML")]
    Html,
}

/// `send_media`: a file, by URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMedia {
    /// The conversation.
    #[schemars(length(min = 1))]
    pub chat_id: String,
    /// What kind of file it is shown as.
    pub kind: MediaKind,
    /// Where the file is: `http:` or `https:`, or `file://` and the path that a `download_media` of this channel told.
    #[schemars(length(min = 1))]
    pub url: String,
    /// A text below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caption: Option<String>,
    /// The name shown for a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    /// The MIME type, where the URL's answer doesn't say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The provider id of the message that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// A topic or thread inside the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// What to do when an earlier attempt may have reached the platform.
    #[serde(default)]
    pub on_uncertain: OnUncertain,
}

/// What a file is shown as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A film.
    Video,
    /// Music or another recording.
    Audio,
    /// A voice message.
    Voice,
    /// Any file.
    Document,
    /// A sticker.
    Sticker,
}

/// `send_location`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendLocation {
    /// The conversation.
    #[schemars(length(min = 1))]
    pub chat_id: String,
    /// Degrees north, -90 to 90.
    #[schemars(range(min = -90.0, max = 90.0))]
    pub latitude: f64,
    /// Degrees east, -180 to 180.
    #[schemars(range(min = -180.0, max = 180.0))]
    pub longitude: f64,
    /// The name of the place; with an address it is shown as a venue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The address of the place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The provider id of the message that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// A topic or thread inside the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// What to do when an earlier attempt may have reached the platform.
    #[serde(default)]
    pub on_uncertain: OnUncertain,
}

/// `send_reaction`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendReaction {
    /// The conversation.
    #[schemars(length(min = 1))]
    pub chat_id: String,
    /// The provider id of the message reacted to.
    #[schemars(length(min = 1))]
    pub message_id: String,
    /// The emoji (Slack: its name); empty takes the reaction back.
    pub emoji: String,
    /// WhatsApp groups: who wrote the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant: Option<String>,
    /// WhatsApp: whether the message is our own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_me: bool,
}

/// `mark_read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkRead {
    /// The conversation.
    #[schemars(length(min = 1))]
    pub chat_id: String,
    /// The provider ids of the messages.
    #[schemars(length(min = 1))]
    pub message_ids: Vec<String>,
    /// WhatsApp groups: who wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant: Option<String>,
}

/// `revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The conversation.
    #[schemars(length(min = 1))]
    pub chat_id: String,
    /// The provider id of the message.
    #[schemars(length(min = 1))]
    pub message_id: String,
    /// WhatsApp groups: who wrote it, when an admin deletes another's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant: Option<String>,
}

/// `resync_history`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResyncHistory {
    /// Only this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<String>,
    /// At most so many messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// `download_media`: fetch a received file into the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DownloadMedia {
    /// The conversation.
    #[schemars(length(min = 1))]
    pub chat_id: String,
    /// The provider id of the message that holds it.
    #[schemars(length(min = 1))]
    pub message_id: String,
    /// The `media` object of the event that announced it, as it was.
    pub media: serde_json::Map<String, serde_json::Value>,
}

/// `fetch_avatar`: fetch a profile picture into the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchAvatar {
    /// The person or group, in the platform's own form.
    #[schemars(length(min = 1))]
    pub chat_id: String,
    /// The small picture instead of the full one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preview: bool,
}
