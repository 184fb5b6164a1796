//! A chat between one bot and the people in it: its messages and the record of what happened.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use serde_json::{Map, Value, json};

use super::record::Entry;

/// The chat as one bot has it.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) id: i64,
    pub(super) info: Value,
    pub(super) blocked: bool,
    pub(super) migrated_to: Option<i64>,
    pub(super) messages: BTreeMap<i64, Arc<Value>>,
    pub(super) reactions: HashMap<(i64, i64), Vec<Value>>,
    pub(super) entries: VecDeque<Arc<Entry>>,
    next_message: i64,
    next_entry: u64,
}

/// Seconds since the epoch, as the Bot API counts.
pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// A person, as the Bot API shows them.
pub(super) fn person(id: i64) -> Value {
    json!({"id": id, "is_bot": false, "first_name": format!("User {id}"), "username": format!("user{id}"), "language_code": "en"})
}

/// A chat, as messages show it.
fn describe(id: i64) -> Value {
    if id > 0 {
        json!({"id": id, "type": "private", "first_name": format!("User {id}"), "username": format!("user{id}")})
    } else if id <= -1_000_000_000_000 {
        json!({"id": id, "type": "supergroup", "title": format!("Group {id}")})
    } else {
        json!({"id": id, "type": "group", "title": format!("Group {id}"), "all_members_are_administrators": true})
    }
}

impl Chat {
    pub(super) fn new(id: i64) -> Self {
        Self {
            id,
            info: describe(id),
            blocked: false,
            migrated_to: None,
            messages: BTreeMap::new(),
            reactions: HashMap::new(),
            entries: VecDeque::new(),
            next_message: 1,
            next_entry: 1,
        }
    }

    /// Adds a message with the next id of this chat.
    pub(super) fn post(&mut self, from: Value, mut fields: Map<String, Value>, keep: usize) -> Arc<Value> {
        let id = self.next_message;
        self.next_message += 1;
        fields.insert("message_id".into(), id.into());
        fields.insert("date".into(), now().into());
        fields.insert("chat".into(), self.info.clone());
        fields.insert("from".into(), from);
        let message = Arc::new(Value::Object(fields));
        self.messages.insert(id, Arc::clone(&message));
        while self.messages.len() > keep {
            self.messages.pop_first();
        }
        message
    }

    /// Puts a changed message in the place of its former self.
    pub(super) fn replace(&mut self, id: i64, message: Value) -> Arc<Value> {
        let message = Arc::new(message);
        self.messages.insert(id, Arc::clone(&message));
        message
    }

    /// Writes down what happened, under the next number of this chat.
    pub(super) fn note(&mut self, mut entry: Entry, keep: usize) -> Arc<Entry> {
        entry.number = self.next_entry;
        self.next_entry += 1;
        let entry = Arc::new(entry);
        self.entries.push_back(Arc::clone(&entry));
        while self.entries.len() > keep {
            self.entries.pop_front();
        }
        entry
    }

    /// A message without the message that it answers: the Bot API shows one level only.
    pub(super) fn quoted(&self, id: i64) -> Option<Value> {
        let mut message = Value::clone(self.messages.get(&id)?);
        if let Some(fields) = message.as_object_mut() {
            fields.remove("reply_to_message");
        }
        Some(message)
    }
}

/// The text or caption of a message.
pub(super) fn text_of(message: &Value) -> Option<String> {
    message.get("text").or_else(|| message.get("caption")).and_then(Value::as_str).map(str::to_owned)
}
