//! The conversation as the people in it see it: the judge of "answered once" and "in order".

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

/// Who did it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A person, by id.
    User(i64),
    /// The bot.
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
    /// Reactions of one side to a message are now these.
    Reaction,
    /// A person pressed a button.
    Press,
    /// The bot answered a press.
    PressAnswer,
    /// The bot shows that it is busy.
    Action,
    /// A person blocked the bot or took it back.
    Membership,
}

/// One thing that happened in a chat. What tells two messages apart is (`chat`, `by`, `message_id`).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Counts up in each chat, from 1.
    pub number: u64,
    /// Milliseconds since the simulator started.
    pub at_ms: u64,
    /// The chat.
    pub chat: i64,
    /// Who did it.
    pub by: By,
    /// What was done.
    pub what: What,
    /// The message it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<i64>,
    /// The text or caption, the reactions, the button's data, or the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The platform's own form.
    pub content: Arc<Value>,
}

impl Entry {
    /// Whether it is a message of the bot.
    pub fn is_answer(&self) -> bool {
        self.by == By::Bot && self.what == What::Message
    }
}

/// An entry together with its bot, for whoever watches all of them.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The bot's id.
    pub bot: i64,
    /// What happened.
    pub entry: Arc<Entry>,
}
