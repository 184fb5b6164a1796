//! People who chat with accounts on WhatsApp: a phone each, that encrypts what it says.

use std::{sync::Arc, time::Instant};

use tokio::sync::mpsc;

use super::population::{Answer, Chat, Voice};
use crate::whatsapp::{Phone, WhatsApp};

/// The first person's number; far from those that tests pick by hand.
const FIRST_NUMBER: i64 = 447_700_000_000;

/// A person who writes to one account.
struct Person {
    phone: Phone,
    account: Arc<str>,
}

impl Voice for Person {
    fn say(&self, text: &str) {
        self.phone.post(&self.account, text);
    }
}

/// So many people for each account, and what the account's devices write to them.
pub(super) fn chats(
    whatsapp: &WhatsApp,
    accounts: &[Phone],
    users_per_account: usize,
) -> (Vec<Chat>, mpsc::UnboundedReceiver<Answer>) {
    let (heard, answers) = mpsc::unbounded_channel();
    let mut chats = Vec::new();
    // One person of each account before the second of any: a slow rate still reaches all accounts.
    for round in 0..users_per_account {
        for (place, account) in accounts.iter().enumerate() {
            let chat = FIRST_NUMBER + i64::try_from(round * accounts.len() + place).unwrap_or_default();
            let phone = whatsapp.phone(&chat.to_string());
            let heard = heard.clone();
            phone.watch(move |received| {
                let bot = received.from.number.parse().unwrap_or_default();
                let text = received.text.clone().unwrap_or_default();
                // Nobody listens any more once the run is over.
                let _ = heard.send(Answer { bot, chat, text, at: Instant::now() });
            });
            let bot = account.number().parse().unwrap_or_default();
            let voice = Box::new(Person { phone, account: account.number().into() });
            chats.push(Chat { place, bot, chat, voice });
        }
    }
    (chats, answers)
}
