//! A bot as its tests hold it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    Refused, Telegram, User,
    bot::{Bot, Standing, Woken},
    stats::BotStats,
};
use crate::{TimedOut, lock};

/// A bot of the simulator.
#[derive(Debug, Clone)]
pub struct BotHandle {
    pub(super) telegram: Telegram,
    pub(super) bot: Arc<Bot>,
}

impl BotHandle {
    /// What the bot's client authenticates with.
    pub fn token(&self) -> &str {
        &self.bot.token
    }

    /// The bot's id.
    pub fn id(&self) -> i64 {
        self.bot.id
    }

    /// The server it is on.
    pub fn telegram(&self) -> &Telegram {
        &self.telegram
    }

    /// A person in a private chat with the bot. The chat exists from now on: the bot may write there.
    pub fn user(&self, id: i64) -> User {
        self.member(id, id)
    }

    /// A person in a group with the bot (a negative id). The group exists from now on.
    pub fn member(&self, group: i64, id: i64) -> User {
        lock(&self.bot.state).chat(group);
        User { telegram: self.telegram.clone(), bot: Arc::clone(&self.bot), chat: group, id }
    }

    /// Queues an update of any kind, one that no client knows for example. Its id.
    pub fn push_update(&self, kind: &str, body: &Value) -> i64 {
        let id = lock(&self.bot.state).push(&self.telegram.server, kind, body);
        self.telegram.server.changed();
        id
    }

    /// Lets the next update have this id, as the platform may after a week of silence.
    pub fn jump_to_update(&self, id: i64) {
        lock(&self.bot.state).next_update = id;
    }

    /// Takes the token back: everything is answered with 401, the poll that waits included.
    pub fn revoke(&self) {
        let mut state = lock(&self.bot.state);
        state.standing = Standing::Revoked;
        state.wake(&self.telegram.server, Woken::Refused(Refused::unauthorized()));
        drop(state);
        self.telegram.server.changed();
    }

    /// Makes the token good again.
    pub fn reinstate(&self) {
        lock(&self.bot.state).standing = Standing::Good;
    }

    /// The group became a supergroup with another id: what is sent to the old one is refused with the new one.
    pub fn migrate(&self, from: i64, to: i64) {
        let mut state = lock(&self.bot.state);
        state.chat(to);
        state.chat(from).migrated_to = Some(to);
    }

    /// Whether a poll is open at this moment.
    pub fn is_polling(&self) -> bool {
        lock(&self.bot.state).waiter.is_some()
    }

    /// Waits until a poll is open.
    pub async fn wait_for_poll(&self, within: Duration) -> Result<(), TimedOut> {
        let what = format!("a poll of bot {}", self.bot.id);
        self.telegram.wait_for(&what, within, || self.is_polling().then_some(())).await
    }

    /// Waits until every update is confirmed by an offset.
    pub async fn wait_for_confirmed(&self, within: Duration) -> Result<(), TimedOut> {
        let what = format!("bot {} to confirm its updates", self.bot.id);
        let confirmed = || lock(&self.bot.state).pending.is_empty().then_some(());
        self.telegram.wait_for(&what, within, confirmed).await
    }

    /// The chats that exist.
    pub fn chats(&self) -> Vec<i64> {
        let mut chats: Vec<_> = lock(&self.bot.state).chats.keys().copied().collect();
        chats.sort_unstable();
        chats
    }

    /// The texts that the bot sent more than once to a chat, each with how often.
    pub fn repeats(&self, chat: i64) -> Vec<(String, usize)> {
        let mut texts: HashMap<String, usize> = HashMap::new();
        for entry in self.telegram.entries(&self.bot, chat).iter().filter(|entry| entry.is_answer()) {
            *texts.entry(entry.text.clone().unwrap_or_default()).or_default() += 1;
        }
        let mut repeats: Vec<_> = texts.into_iter().filter(|(_, count)| *count > 1).collect();
        repeats.sort();
        repeats
    }

    /// What is counted for the bot.
    pub fn stats(&self) -> BotStats {
        BotStats::of(&self.bot)
    }
}
