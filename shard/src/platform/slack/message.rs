//! From a message of the platform to ours. Pure.

use serde_json::Value;

use super::event::text;
use crate::event::{Author, Media, Message};

/// The parts of a message that have a place in ours, or none that anybody could miss. One that holds more is told together
/// with its own form.
const TOLD: [&str; 25] = [
    "type",
    "subtype",
    "user",
    "client_msg_id",
    "text",
    "team",
    "user_team",
    "source_team",
    "user_profile",
    "ts",
    "channel",
    "channel_type",
    "event_ts",
    "thread_ts",
    "parent_user_id",
    "blocks",
    "files",
    "upload",
    "display_as_bot",
    "bot_id",
    "bot_profile",
    "app_id",
    "edited",
    "username",
    "icons",
];

/// A message in a conversation; `None` without the `ts` that it is known by.
pub(super) fn message(said: &Value, chat: &str) -> Option<Message> {
    let fields = said.as_object()?;
    let files = said["files"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_more =
        fields.keys().any(|key| !TOLD.contains(&key.as_str())) || files.len() > 1 || !is_text(&said["blocks"]);
    Some(Message {
        message_id: text(said, "/ts")?,
        chat_id: chat.to_owned(),
        from: author(said),
        chat_type: Some(chat_type(said, chat).to_owned()),
        text: text(said, "/text"),
        reply_to: None,
        thread_id: text(said, "/thread_ts"),
        media: files.first().and_then(media),
        location: None,
        raw: has_more.then(|| said.clone()),
    })
}

/// What a person types comes as one block of rich text too, which says what `text` says.
fn is_text(blocks: &Value) -> bool {
    blocks.as_array().is_none_or(|blocks| blocks.iter().all(|block| block["type"] == "rich_text"))
}

fn author(said: &Value) -> Option<Author> {
    let bot = text(said, "/bot_id");
    let name = ["/user_profile/display_name", "/user_profile/real_name", "/bot_profile/name", "/username"];
    Some(Author {
        id: text(said, "/user").or_else(|| bot.clone())?,
        name: name.into_iter().find_map(|path| text(said, path)),
        username: text(said, "/user_profile/name"),
        is_bot: bot.is_some(),
    })
}

fn chat_type(said: &Value, chat: &str) -> &'static str {
    match (said["channel_type"].as_str(), chat.as_bytes().first()) {
        (Some("im"), _) | (None, Some(b'D')) => "private",
        (Some("mpim"), _) => "group",
        _ => "channel",
    }
}

/// A file; `None` for one that was deleted or is hidden.
fn media(file: &Value) -> Option<Media> {
    let mime_type = text(file, "/mimetype");
    let main = mime_type.as_deref().and_then(|mime| mime.split('/').next());
    let kind = match (file["subtype"].as_str(), main) {
        (Some("slack_audio"), _) => "voice",
        (_, Some(main @ ("image" | "video" | "audio"))) => main,
        _ => "document",
    };
    if matches!(file["mode"].as_str(), Some("tombstone" | "hidden_by_limit")) {
        return None;
    }
    let url = text(file, "/url_private_download").or_else(|| text(file, "/url_private"));
    Some(Media {
        kind: kind.to_owned(),
        mime_type,
        file_name: text(file, "/name"),
        size: file["size"].as_u64(),
        reference: text(file, "/id")?,
        // Fetched with the bot token.
        extra: url.map(|url| serde_json::json!({ "url": url })),
    })
}
