//! One bot as the platform keeps it: its chats, its pending updates, the one poll that may wait for them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    answer::Refused,
    chat::Chat,
    files::StoredFile,
    limits::Limiter,
    record::{By, Entry, Seen, What},
    server::Server,
};

/// Updates that a bot only gets when it asks for them by name.
const ON_REQUEST: [&str; 3] = ["chat_member", "message_reaction", "message_reaction_count"];

/// Whether the token is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Good,
    Revoked,
    LoggedOut,
}

/// An update that no `offset` has confirmed yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) id: i64,
    pub(super) json: String,
    pub(super) given: u32,
}

/// Why a waiting poll is woken.
#[derive(Debug)]
pub(super) enum Woken {
    News,
    Refused(Refused),
}

/// The poll that waits for updates.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) wake: oneshot::Sender<Woken>,
}

/// A bot.
#[derive(Debug)]
pub(super) struct Bot {
    pub(super) id: i64,
    pub(super) token: String,
    pub(super) state: Mutex<BotState>,
}

/// What changes about a bot.
#[derive(Debug)]
pub(super) struct BotState {
    pub(super) standing: Standing,
    pub(super) webhook: Option<String>,
    /// `None`: everything but what must be asked for.
    pub(super) allowed: Option<Vec<String>>,
    pub(super) next_update: i64,
    pub(super) pending: VecDeque<Pending>,
    pub(super) waiter: Option<Waiter>,
    pub(super) chats: HashMap<i64, Chat>,
    pub(super) files: HashMap<String, StoredFile>,
    pub(super) presses: HashMap<String, i64>,
    pub(super) commands: Value,
    pub(super) limiter: Limiter,
    pub(super) counts: Counts,
}

/// What is counted for each bot.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    pub(super) requests: BTreeMap<String, u64>,
    pub(super) refused: BTreeMap<u16, u64>,
    pub(super) polls: u64,
    pub(super) conflicts: u64,
    pub(super) faults: u64,
    pub(super) given: u64,
    pub(super) given_again: u64,
    pub(super) not_asked_for: u64,
    pub(super) messages_in: u64,
    pub(super) messages_out: u64,
}

impl Bot {
    pub(super) fn new(id: i64, token: String) -> Self {
        Self {
            id,
            token,
            state: Mutex::new(BotState {
                standing: Standing::Good,
                webhook: None,
                allowed: None,
                next_update: i64::from(rand::random_range(100_000_000..900_000_000u32)),
                pending: VecDeque::new(),
                waiter: None,
                chats: HashMap::new(),
                files: HashMap::new(),
                presses: HashMap::new(),
                commands: json!([]),
                limiter: Limiter::default(),
                counts: Counts::default(),
            }),
        }
    }

    pub(super) fn username(&self) -> String {
        format!("sim_{}_bot", self.id)
    }

    /// The bot as a sender of messages.
    pub(super) fn user(&self) -> Value {
        json!({"id": self.id, "is_bot": true, "first_name": format!("Bot {}", self.id), "username": self.username()})
    }
}

impl BotState {
    /// The chat, which comes to be by being spoken of.
    pub(super) fn chat(&mut self, id: i64) -> &mut Chat {
        self.chats.entry(id).or_insert_with(|| Chat::new(id))
    }

    fn asked_for(&self, kind: &str) -> bool {
        match &self.allowed {
            Some(kinds) => kinds.iter().any(|asked| asked == kind),
            None => !ON_REQUEST.contains(&kind),
        }
    }

    /// Queues an update of a kind that the bot may have turned off; its id, unless it is dropped for that reason.
    pub(super) fn update(&mut self, server: &Server, kind: &str, body: &Value) -> Option<i64> {
        if !self.asked_for(kind) {
            self.counts.not_asked_for += 1;
            return None;
        }
        Some(self.push(server, kind, body))
    }

    /// Queues an update of any kind.
    pub(super) fn push(&mut self, server: &Server, kind: &str, body: &Value) -> i64 {
        let id = self.next_update;
        self.next_update += 1;
        let json = format!("{{\"update_id\":{id},{}:{body}}}", Value::from(kind));
        self.pending.push_back(Pending { id, json, given: 0 });
        self.wake(server, Woken::News);
        id
    }

    /// Wakes the poll that waits, if one does.
    pub(super) fn wake(&mut self, server: &Server, why: Woken) {
        if let Some(waiter) = self.waiter.take() {
            server.poll_closed();
            // A poll whose client has just hung up hears nothing, and has nothing to lose.
            let _ = waiter.wake.send(why);
        }
    }

    /// Writes down what happened in a chat and tells whoever watches.
    pub(super) fn note(
        &mut self,
        server: &Server,
        bot: &Bot,
        (chat, by, what): (i64, By, What),
        message_id: Option<i64>,
        text: Option<String>,
        content: Arc<Value>,
    ) -> Arc<Entry> {
        if what == What::Message {
            match by {
                By::Bot => self.counts.messages_out += 1,
                By::User(_) => self.counts.messages_in += 1,
            }
        }
        let entry = Entry { number: 0, at_ms: server.elapsed_ms(), chat, by, what, message_id, text, content };
        let entry = self.chat(chat).note(entry, server.keep());
        server.tell(&Seen { bot: bot.id, entry: Arc::clone(&entry) });
        entry
    }
}
