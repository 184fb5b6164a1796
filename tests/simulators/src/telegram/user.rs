//! What a person does in a chat with a bot: each act is seen by the bot as an update.

use std::{sync::Arc, time::Duration};

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::{
    Telegram,
    bot::{Bot, BotState},
    chat::{now, person, text_of},
    files,
    record::{By, Entry, What},
};
use crate::{TimedOut, lock};

/// A person in one chat with one bot.
#[derive(Debug, Clone)]
pub struct User {
    pub(super) telegram: Telegram,
    pub(super) bot: Arc<Bot>,
    pub(super) chat: i64,
    pub(super) id: i64,
}

/// What became of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The message that it made or is about.
    pub message_id: i64,
    /// The update that tells the bot; `None` when the bot has not asked for this kind.
    pub update_id: Option<i64>,
}

impl User {
    /// The chat's id.
    pub fn chat(&self) -> i64 {
        self.chat
    }

    /// Writes a text.
    pub fn say(&self, text: &str) -> Sent {
        self.post(None, text_fields(text))
    }

    /// Answers a message with a text.
    pub fn reply(&self, to: i64, text: &str) -> Sent {
        self.post(Some(to), text_fields(text))
    }

    /// Sends a file as `photo`, `video`, `audio`, `voice`, `document`, `sticker` or `animation`.
    pub fn send_file(&self, field: &str, name: &str, bytes: impl Into<Bytes>, caption: Option<&str>) -> Sent {
        let kind = files::kind(field).unwrap_or_else(|| panic!("{field:?} is no kind of file"));
        let mut fields = {
            let mut state = lock(&self.bot.state);
            let id = files::store(&mut state, kind, bytes.into(), Some(name.to_owned()), None);
            files::describe(&state, kind, &id)
        };
        if let Some(caption) = caption {
            fields.insert("caption".into(), caption.into());
        }
        self.post(None, fields)
    }

    /// Sends a photo.
    pub fn photo(&self, bytes: impl Into<Bytes>, caption: Option<&str>) -> Sent {
        self.send_file("photo", "photo.jpg", bytes, caption)
    }

    /// Sends a place.
    pub fn location(&self, latitude: f64, longitude: f64) -> Sent {
        let place = json!({"latitude": latitude, "longitude": longitude});
        self.post(None, Map::from_iter([("location".to_owned(), place)]))
    }

    /// Sends a place with a name.
    pub fn venue(&self, latitude: f64, longitude: f64, title: &str, address: &str) -> Sent {
        let place = json!({"latitude": latitude, "longitude": longitude});
        let venue = json!({"location": place, "title": title, "address": address});
        self.post(None, Map::from_iter([("location".to_owned(), place), ("venue".to_owned(), venue)]))
    }

    /// Any message, by the fields that its kind has in the Bot API.
    pub fn post(&self, reply_to: Option<i64>, mut fields: Map<String, Value>) -> Sent {
        self.act(|state, server| {
            if let Some(quoted) = reply_to.and_then(|id| state.chat(self.chat).quoted(id)) {
                fields.insert("reply_to_message".into(), quoted);
            }
            let message = state.chat(self.chat).post(person(self.id), fields, server.keep());
            let id = message.get("message_id").and_then(Value::as_i64).unwrap_or_default();
            self.note(state, What::Message, Some(id), text_of(&message), Arc::clone(&message));
            Sent { message_id: id, update_id: state.update(server, "message", &message) }
        })
    }

    /// Changes the text of an own message.
    pub fn edit(&self, message_id: i64, text: &str) -> Sent {
        self.act(|state, server| {
            let mut message = self.message(state, message_id);
            let field = if message.get("text").is_some() { "text" } else { "caption" };
            message[field] = text.into();
            message["edit_date"] = now().into();
            let message = state.chat(self.chat).replace(message_id, message);
            self.note(state, What::Edit, Some(message_id), Some(text.to_owned()), Arc::clone(&message));
            Sent { message_id, update_id: state.update(server, "edited_message", &message) }
        })
    }

    /// Sets the reactions to a message; none takes them back.
    pub fn react(&self, message_id: i64, emoji: &[&str]) -> Sent {
        self.act(|state, server| {
            let new: Vec<Value> = emoji.iter().map(|emoji| json!({"type": "emoji", "emoji": emoji})).collect();
            let chat = state.chat(self.chat);
            let old = chat.reactions.insert((message_id, self.id), new.clone()).unwrap_or_default();
            let update = Arc::new(json!({
                "chat": chat.info, "message_id": message_id, "user": person(self.id), "date": now(),
                "old_reaction": old, "new_reaction": new,
            }));
            self.note(state, What::Reaction, Some(message_id), Some(emoji.join(" ")), Arc::clone(&update));
            Sent { message_id, update_id: state.update(server, "message_reaction", &update) }
        })
    }

    /// Presses a button of a message.
    pub fn press(&self, message_id: i64, data: &str) -> Sent {
        self.act(|state, server| {
            let message = self.message(state, message_id);
            let id = format!("{}", rand::random::<u64>() >> 1);
            state.presses.insert(id.clone(), self.chat);
            let update = Arc::new(json!({
                "id": id, "from": person(self.id), "message": message,
                "chat_instance": format!("{}", self.chat.wrapping_mul(7919)), "data": data,
            }));
            self.note(state, What::Press, Some(message_id), Some(data.to_owned()), Arc::clone(&update));
            Sent { message_id, update_id: state.update(server, "callback_query", &update) }
        })
    }

    /// Shuts the bot out of the chat: what it sends here is refused with 403.
    pub fn block(&self) {
        self.membership(true);
    }

    /// Lets the bot in again.
    pub fn unblock(&self) {
        self.membership(false);
    }

    fn membership(&self, blocked: bool) {
        self.act(|state, server| {
            state.chat(self.chat).blocked = blocked;
            let info = state.chat(self.chat).info.clone();
            let member = |is_out: bool| {
                if is_out {
                    json!({"user": self.bot.user(), "status": "kicked", "until_date": 0})
                } else {
                    json!({"user": self.bot.user(), "status": "member"})
                }
            };
            let update = Arc::new(json!({
                "chat": info, "from": person(self.id), "date": now(),
                "old_chat_member": member(!blocked), "new_chat_member": member(blocked),
            }));
            let word = if blocked { "kicked" } else { "member" };
            self.note(state, What::Membership, None, Some(word.to_owned()), Arc::clone(&update));
            state.update(server, "my_chat_member", &update);
        });
    }

    /// What happened in this chat so far.
    pub fn conversation(&self) -> Vec<Arc<Entry>> {
        self.telegram.entries(&self.bot, self.chat)
    }

    /// The bot's messages in this chat so far.
    pub fn answers(&self) -> Vec<Arc<Entry>> {
        self.conversation().into_iter().filter(|entry| entry.is_answer()).collect()
    }

    /// The bot's messages in this chat, once there are `count` of them.
    pub async fn wait_for_answers(&self, count: usize, within: Duration) -> Result<Vec<Arc<Entry>>, TimedOut> {
        let what = format!("{count} answers in chat {}", self.chat);
        self.telegram.wait_for(&what, within, || Some(self.answers()).filter(|answers| answers.len() >= count)).await
    }

    pub(super) fn has_message(&self, id: i64) -> bool {
        lock(&self.bot.state).chat(self.chat).messages.contains_key(&id)
    }

    fn message(&self, state: &mut BotState, id: i64) -> Value {
        let chat = state.chat(self.chat);
        let message = chat.messages.get(&id).unwrap_or_else(|| panic!("no message {id} in chat {}", self.chat));
        Value::clone(message)
    }

    fn note(&self, state: &mut BotState, what: What, id: Option<i64>, text: Option<String>, content: Arc<Value>) {
        state.note(&self.telegram.server, &self.bot, (self.chat, By::User(self.id), what), id, text, content);
    }

    fn act<T>(&self, act: impl FnOnce(&mut BotState, &super::server::Server) -> T) -> T {
        let server = &self.telegram.server;
        let done = act(&mut lock(&self.bot.state), server);
        server.changed();
        done
    }
}

/// A text without blanks around it, with its command marked as clients expect.
fn text_fields(text: &str) -> Map<String, Value> {
    let text = text.trim();
    let mut fields = Map::from_iter([("text".to_owned(), Value::from(text))]);
    if text.starts_with('/') {
        let command = text.split_whitespace().next().unwrap_or(text);
        let length = command.encode_utf16().count();
        fields.insert("entities".into(), json!([{"type": "bot_command", "offset": 0, "length": length}]));
    }
    fields
}
