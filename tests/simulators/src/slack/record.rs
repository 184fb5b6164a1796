//! The conversation as the people in it see it: the judge of "answered once" and "in order".

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

/// Who did it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A person, by id.
    User(String),
    /// The app's bot.
    Bot,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A message appeared.
    Message,
    /// A message was changed.
    Edit,
    /// A message vanished.
    Delete,
    /// A reaction was put to a message.
    Reaction,
    /// A reaction was taken back.
    Unreaction,
    /// A person pressed a button.
    Press,
    /// A person used a slash command.
    Command,
}

/// One thing that happened in a conversation. What tells two messages apart is (`channel`, `by`, `ts`).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Counts up in each conversation, from 1.
    pub number: u64,
    /// Milliseconds since the simulator started.
    pub at_ms: u64,
    /// The conversation.
    pub channel: String,
    /// Who did it.
    pub by: By,
    /// What was done.
    pub what: What,
    /// The message it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<String>,
    /// The text, the reaction, the button's value or the command.
    pub text: String,
    /// The platform's own form.
    pub content: Arc<Value>,
}

impl Entry {
    /// Whether it is a message of the bot.
    pub fn is_answer(&self) -> bool {
        self.by == By::Bot && self.what == What::Message
    }
}

/// An entry together with its app, for whoever watches all of them.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The app's id.
    pub app: Arc<str>,
    /// What happened.
    pub entry: Arc<Entry>,
}
