//! People who chat with bots on Telegram.

use std::time::Instant;

use tokio::sync::mpsc;

use super::population::{Answer, Chat, Voice};
use crate::telegram::{BotHandle, Telegram, User};

/// The first person's id; far from the small numbers that tests pick by hand.
const FIRST_ID: i64 = 1_000_000;

impl Voice for User {
    fn say(&self, text: &str) {
        User::say(self, text);
    }
}

/// So many people for each bot, and what the bots write to them.
pub(super) fn chats(
    telegram: &Telegram,
    bots: &[BotHandle],
    users_per_bot: usize,
) -> (Vec<Chat>, mpsc::UnboundedReceiver<Answer>) {
    let (heard, answers) = mpsc::unbounded_channel();
    telegram.watch(move |seen| {
        if seen.entry.is_answer() {
            let text = seen.entry.text.clone().unwrap_or_default();
            // Nobody listens any more once the run is over.
            let _ = heard.send(Answer { bot: seen.bot, chat: seen.entry.chat, text, at: Instant::now() });
        }
    });
    // One person of each bot before the second of any: a slow rate still reaches all bots.
    let turns =
        (0..users_per_bot).flat_map(|round| bots.iter().enumerate().map(move |(place, bot)| (round, place, bot)));
    let chats = turns.map(|(round, place, bot)| {
        let chat = FIRST_ID + i64::try_from(round * bots.len() + place).unwrap_or_default();
        Chat { place, bot: bot.id(), chat, voice: Box::new(bot.user(chat)) }
    });
    (chats.collect(), answers)
}
