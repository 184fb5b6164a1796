//! Buttons, forms, shortcuts and slash commands. Pure.

use serde_json::Value;

use super::event::{Told, text, timestamp, without_token};
use crate::event::{Author, EventKind, Interaction};

/// A payload of an `interactive` envelope: `block_actions`, `view_submission`, `shortcut`, ….
pub(super) fn interactive(payload: &Value) -> Option<Told> {
    let first = |paths: &[&str]| paths.iter().find_map(|path| text(payload, path));
    let chat_id = first(&["/channel/id", "/container/channel_id"]);
    let at = first(&["/actions/0/action_ts", "/action_ts"]).and_then(|at| timestamp(&at));
    let interaction = Interaction {
        interaction_id: first(&["/trigger_id", "/view/id", "/action_ts"])?,
        interaction: text(payload, "/type")?,
        chat_id: chat_id.clone(),
        message_id: first(&["/message/ts", "/container/message_ts", "/message_ts"]),
        from: author(payload, "/user/id", &["/user/name", "/user/username"]),
        value: first(&[
            "/actions/0/value",
            "/actions/0/selected_option/value",
            "/actions/0/selected_user",
            "/actions/0/selected_conversation",
            "/actions/0/selected_channel",
            "/actions/0/selected_date",
            "/actions/0/selected_time",
            "/actions/0/action_id",
            "/view/callback_id",
            "/callback_id",
        ]),
        raw: Some(without_token(payload)),
    };
    Some(Told { conversation: chat_id, at, key: None, kind: EventKind::Interaction(interaction) })
}

/// A payload of a `slash_commands` envelope. Its value is the whole line.
pub(super) fn command(payload: &Value) -> Option<Told> {
    let chat_id = text(payload, "/channel_id");
    let command = text(payload, "/command")?;
    let value = match text(payload, "/text") {
        Some(text) => format!("{command} {text}"),
        None => command,
    };
    let interaction = Interaction {
        interaction_id: text(payload, "/trigger_id")?,
        interaction: "slash_command".to_owned(),
        chat_id: chat_id.clone(),
        message_id: None,
        from: author(payload, "/user_id", &["/user_name"]),
        value: Some(value),
        raw: Some(without_token(payload)),
    };
    Some(Told { conversation: chat_id, at: None, key: None, kind: EventKind::Interaction(interaction) })
}

fn author(payload: &Value, id: &str, names: &[&str]) -> Option<Author> {
    let username = names.iter().find_map(|path| text(payload, path));
    Some(Author { id: text(payload, id)?, username, ..Author::default() })
}
