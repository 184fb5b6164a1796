//! From the platform's updates to events. Pure; each update is read by itself, so that one that can't be read spoils no
//! other: it becomes a `platform.other` that holds it as it came.

use std::{collections::BTreeMap, panic::catch_unwind};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, value::RawValue};
use sha2::{Digest, Sha256};
use teloxide_core::types::{
    CallbackQuery, MaybeAnonymousUser, Message as TelegramMessage, MessageReactionUpdated, ReactionType,
};

use super::message;
use crate::{
    event::{Event, EventKind, Interaction, Other, Reaction},
    identity::ChannelId,
    platform::PlatformKind,
};

/// What one answer of `getUpdates` holds.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
    /// What confirms all of them.
    pub(super) next_offset: Option<i64>,
}

/// What an update comes to.
struct Told {
    conversation: Option<String>,
    at: Option<i64>,
    kind: EventKind,
}

/// Reads the list of updates; `None` when it is no list.
pub(super) fn read(channel: ChannelId, now: Timestamp, answer: &RawValue) -> Option<Batch> {
    let updates: Vec<&RawValue> = serde_json::from_str(answer.get()).ok()?;
    let mut batch = Batch { events: Vec::with_capacity(updates.len()), next_offset: None };
    for raw in updates {
        let update: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
        let id = update.get("update_id").and_then(|id| serde_json::from_str::<i64>(id.get()).ok());
        let content = update.iter().find(|(key, _)| *key != "update_id");
        let told = content.and_then(|(kind, content)| told(kind, content)).unwrap_or_else(|| other(content, raw));
        let key = match id {
            Some(id) => format!("update/{id}"),
            None => format!("update/without-id/{}", hash(raw)),
        };
        if let Some(id) = id {
            batch.next_offset = Some(batch.next_offset.map_or(id + 1, |next| next.max(id + 1)));
        }
        let at = told.at.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(now);
        batch.events.push(Event::new(channel, PlatformKind::Telegram, told.conversation, at, &key, told.kind));
    }
    Some(batch)
}

fn told(kind: &str, content: &RawValue) -> Option<Told> {
    match kind {
        "message" | "channel_post" => message_told(content, EventKind::MessageReceived),
        "edited_message" | "edited_channel_post" => message_told(content, EventKind::MessageEdited),
        "message_reaction" => reaction_told(parse(content)?),
        "callback_query" => callback_told(parse(content)?, content),
        _ => None,
    }
}

/// A part in teloxide's types; `None` when they don't fit. Some of its readers panic on what they don't expect (a reaction
/// of nobody, a sticker of two formats), which must not cost the other updates.
fn parse<T: DeserializeOwned>(content: &RawValue) -> Option<T> {
    catch_unwind(|| serde_json::from_str(content.get()).ok()).ok().flatten()
}

fn message_told(content: &RawValue, kind: fn(crate::event::Message) -> EventKind) -> Option<Told> {
    let said: TelegramMessage = parse(content)?;
    let at = said.edit_date().map_or(said.date, |edited| *edited).timestamp();
    let message = message::message(&said, content)?;
    Some(Told { conversation: Some(message.chat_id.clone()), at: Some(at), kind: kind(message) })
}

fn reaction_told(update: MessageReactionUpdated) -> Option<Told> {
    let chat_id = update.chat.id.to_string();
    let from = match &update.actor {
        MaybeAnonymousUser::User(user) => message::user(user),
        MaybeAnonymousUser::Chat(chat) => message::chat_as_author(chat),
    };
    let emoji = |reaction: &ReactionType| match reaction {
        ReactionType::Emoji { emoji } => emoji.clone(),
        ReactionType::CustomEmoji { custom_emoji_id } => format!("custom:{custom_emoji_id}"),
        ReactionType::Paid => "paid".to_owned(),
    };
    let reaction = Reaction {
        chat_id: chat_id.clone(),
        message_id: update.message_id.0.to_string(),
        from: Some(from),
        emoji: update.new_reaction.iter().map(emoji).collect(),
        removed: None,
    };
    let at = Some(update.date.timestamp());
    Some(Told { conversation: Some(chat_id), at, kind: EventKind::Reaction(reaction) })
}

fn callback_told(query: CallbackQuery, content: &RawValue) -> Option<Told> {
    let chat_id = query.message.as_ref().map(|message| message.chat().id.to_string());
    let has_more = query.inline_message_id.is_some() || query.game_short_name.is_some();
    let interaction = Interaction {
        interaction_id: query.id.0,
        interaction: "callback".into(),
        chat_id: chat_id.clone(),
        message_id: query.message.as_ref().map(|message| message.id().0.to_string()),
        from: Some(message::user(&query.from)),
        value: query.data.or(query.game_short_name),
        raw: has_more.then(|| value(content)),
    };
    Some(Told { conversation: chat_id, at: None, kind: EventKind::Interaction(interaction) })
}

/// An update in the platform's own words, in its conversation where it names one.
fn other(content: Option<(&String, &&RawValue)>, raw: &RawValue) -> Told {
    let (update, inner) = match content {
        Some((kind, content)) => (kind.clone(), value(content)),
        None => ("unknown".to_owned(), Value::Null),
    };
    let chat = [&inner["chat"]["id"], &inner["message"]["chat"]["id"]].into_iter().find_map(Value::as_i64);
    let at = inner["date"].as_i64();
    let raw = value(raw);
    Told { conversation: chat.map(|id| id.to_string()), at, kind: EventKind::Other(Other { update, raw }) }
}

/// As a value; what is nested too deeply for one, as text.
pub(super) fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| Value::String(raw.get().to_owned()))
}

fn hash(raw: &RawValue) -> String {
    let digest = Sha256::digest(raw.get().as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;
