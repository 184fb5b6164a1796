//! From the platform's envelopes to events. Pure.
//!
//! What the app's own bot did is left out: the producer knows it from the job. A message is known by its conversation and
//! time, since a mention is told twice (as `message` and as `app_mention`, under two event ids) and is one message; all
//! else by the event id, which a retry repeats. What can't be read becomes a `platform.other` that holds it as it came.

use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{envelope::Envelope, interaction, message};
use crate::{
    event::{Author, Event, EventKind, MessageRef, Other, Reaction},
    identity::ChannelId,
    platform::PlatformKind,
};

/// Who the app's bot is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Me {
    user: Option<String>,
    bot: Option<String>,
}

impl Me {
    /// As `auth.test` says.
    pub(super) fn of(answer: &Value) -> Self {
        Self { user: text(answer, "/user_id"), bot: text(answer, "/bot_id") }
    }

    /// The bot's id as a person of the workspace.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    fn is_user(&self, user: Option<&str>) -> bool {
        user.is_some() && user == self.user.as_deref()
    }

    /// Whether the bot wrote it.
    fn wrote(&self, message: &Value) -> bool {
        let bot = message["bot_id"].as_str();
        self.is_user(message["user"].as_str()) || (bot.is_some() && bot == self.bot.as_deref())
    }
}

/// What an envelope comes to.
pub(super) struct Told {
    pub(super) conversation: Option<String>,
    pub(super) at: Option<Timestamp>,
    /// By what it is known, where the event id won't do.
    pub(super) key: Option<String>,
    pub(super) kind: EventKind,
}

/// The event in an envelope; none for what the bot itself did.
pub(super) fn read(channel: ChannelId, me: &Me, now: Timestamp, envelope: &Envelope) -> Option<Event> {
    let payload = &envelope.payload;
    let told = match envelope.kind.as_str() {
        "events_api" => happened(me, payload)?,
        "interactive" => interaction::interactive(payload).or_else(|| Some(other(&envelope.kind, payload)))?,
        "slash_commands" => interaction::command(payload).or_else(|| Some(other(&envelope.kind, payload)))?,
        kind => other(kind, payload),
    };
    let key = told.key.unwrap_or_else(|| match text(payload, "/event_id").or_else(|| text(payload, "/trigger_id")) {
        Some(id) => format!("event/{id}"),
        None => format!("event/without-id/{}", hash(payload)),
    });
    let at = told.at.unwrap_or(now);
    Some(Event::new(channel, PlatformKind::Slack, told.conversation, at, &key, told.kind))
}

fn happened(me: &Me, payload: &Value) -> Option<Told> {
    let event = &payload["event"];
    let told = match event["type"].as_str().unwrap_or_default() {
        "message" | "app_mention" => said(me, event),
        kind @ ("reaction_added" | "reaction_removed") => {
            if me.is_user(event["user"].as_str()) {
                return None;
            }
            reaction(event, kind == "reaction_added").map(Some)
        }
        _ => None,
    };
    match told {
        Some(told) => told,
        None => {
            let name = match (event["type"].as_str(), event["subtype"].as_str()) {
                (Some(kind), Some(subtype)) => format!("{kind}.{subtype}"),
                (Some(kind), None) => kind.to_owned(),
                (None, _) => "unknown".to_owned(),
            };
            Some(other(&name, payload))
        }
    }
}

/// `None`: it has no word of ours; `Some(None)`: it is the bot's own.
fn said(me: &Me, event: &Value) -> Option<Option<Told>> {
    let chat = text(event, "/channel")?;
    let inner = &event["message"];
    let before = &event["previous_message"];
    match event["subtype"].as_str() {
        None | Some("file_share" | "thread_broadcast" | "me_message" | "bot_message") => {
            if me.wrote(event) {
                return Some(None);
            }
            let message = message::message(event, &chat)?;
            let key = format!("message/{chat}/{}", message.message_id);
            told(&chat, &message.message_id.clone(), Some(key), EventKind::MessageReceived(message))
        }
        Some("message_changed") if inner["subtype"] == "tombstone" => {
            if me.wrote(before) {
                return Some(None);
            }
            let gone = MessageRef { chat_id: chat.clone(), message_id: text(inner, "/ts")? };
            told(&chat, &time(event)?, None, EventKind::Revoked(gone))
        }
        // A preview of a link, or a reply counted, changes a message that nobody edited.
        Some("message_changed") if inner["edited"] != before["edited"] || inner["text"] != before["text"] => {
            if me.wrote(inner) {
                return Some(None);
            }
            told(&chat, &time(event)?, None, EventKind::MessageEdited(message::message(inner, &chat)?))
        }
        Some("message_changed") if me.wrote(inner) => Some(None),
        Some("message_deleted") => {
            if me.wrote(before) {
                return Some(None);
            }
            let gone = MessageRef { chat_id: chat.clone(), message_id: text(event, "/deleted_ts")? };
            told(&chat, &time(event)?, None, EventKind::Revoked(gone))
        }
        Some(_) => None,
    }
}

fn told(chat: &str, at: &str, key: Option<String>, kind: EventKind) -> Option<Option<Told>> {
    Some(Some(Told { conversation: Some(chat.to_owned()), at: timestamp(at), key, kind }))
}

/// Slack tells of one reaction at a time.
fn reaction(event: &Value, added: bool) -> Option<Told> {
    let chat_id = text(event, "/item/channel")?;
    let name = text(event, "/reaction")?;
    let reaction = Reaction {
        chat_id: chat_id.clone(),
        message_id: text(event, "/item/ts")?,
        from: text(event, "/user").map(|id| Author { id, ..Author::default() }),
        removed: (!added).then(|| name.clone()),
        emoji: added.then_some(name).into_iter().collect(),
    };
    let at = time(event).and_then(|at| timestamp(&at));
    Some(Told { conversation: Some(chat_id), at, key: None, kind: EventKind::Reaction(reaction) })
}

/// In the platform's own words, in its conversation where it names one.
pub(super) fn other(update: &str, payload: &Value) -> Told {
    let event = &payload["event"];
    let chat = ["/event/channel", "/event/channel/id", "/event/item/channel", "/channel/id", "/channel_id"];
    let conversation = chat.into_iter().find_map(|path| text(payload, path));
    let at = time(event).and_then(|at| timestamp(&at));
    let raw = without_token(payload);
    Told { conversation, at, key: None, kind: EventKind::Other(Other { update: update.to_owned(), raw }) }
}

/// The payload without the verification token of old, which is a secret that nobody needs.
pub(super) fn without_token(payload: &Value) -> Value {
    let mut payload = payload.clone();
    if let Some(fields) = payload.as_object_mut() {
        fields.remove("token");
    }
    payload
}

/// A text, unless it is absent or empty.
pub(super) fn text(value: &Value, path: &str) -> Option<String> {
    value.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn time(event: &Value) -> Option<String> {
    text(event, "/event_ts").or_else(|| text(event, "/ts"))
}

/// Seconds, a point, and what tells messages of one moment apart.
pub(super) fn timestamp(ts: &str) -> Option<Timestamp> {
    let (seconds, rest) = ts.split_once('.').unwrap_or((ts, "0"));
    let micros: i64 = format!("{rest:0<6}").get(..6)?.parse().ok()?;
    Timestamp::from_microsecond(seconds.parse::<i64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)?).ok()
}

fn hash(payload: &Value) -> String {
    let digest = Sha256::digest(payload.to_string().as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
