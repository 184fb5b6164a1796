//! What a person sees on the phone: each message once, however often it came.

use std::{
    sync::{Arc, Mutex},
    time::SystemTime,
};

use wacore::proto_helpers::MessageExt as _;
use waproto::whatsapp::Message;

use crate::{lock, whatsapp::address::Address};

/// A message as it was read on the phone.
#[derive(Debug, Clone)]
pub struct Received {
    /// Its id on the wire.
    pub id: String,
    /// The chat: `<number>@s.whatsapp.net` or `<id>@g.us`.
    pub chat: String,
    /// The device that wrote it.
    pub from: Address,
    /// What it says, where it says something.
    pub text: Option<String>,
    /// All of it.
    pub message: Arc<Message>,
    /// How often it came: more than once when the sender put the same id on the wire again.
    pub copies: u32,
    /// When it came first.
    pub at: SystemTime,
}

/// A receipt for a message that the phone wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The message.
    pub id: String,
    /// Who sends it.
    pub from: Address,
    /// `None` for delivered, else `read`, `played`, `inactive`, ….
    pub kind: Option<String>,
}

/// Hears of each message once, as it is shown. It must be quick.
pub(super) type Watcher = Box<dyn Fn(&Received) + Send + Sync>;

/// All that came.
#[derive(Default)]
pub(in crate::whatsapp) struct Inbox {
    messages: Mutex<Vec<Received>>,
    unreadable: Mutex<Vec<(String, String)>>,
    receipts: Mutex<Vec<Receipt>>,
    watchers: Mutex<Vec<Watcher>>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Inbox").field("messages", &lock(&self.messages).len()).finish_non_exhaustive()
    }
}

impl Inbox {
    /// Takes in a message; one whose id the same account used in this chat before is the same message.
    pub(super) fn show(&self, id: String, chat: String, from: Address, message: Message) {
        let mut messages = lock(&self.messages);
        let same = |shown: &&mut Received| shown.id == id && shown.chat == chat && shown.from.number == from.number;
        if let Some(shown) = messages.iter_mut().rev().find(same) {
            shown.copies += 1;
            return;
        }
        let text = message.text_content().or_else(|| message.get_caption()).map(ToOwned::to_owned);
        let received = Received { id, chat, from, text, message: Arc::new(message), copies: 1, at: SystemTime::now() };
        messages.push(received.clone());
        drop(messages);
        for watcher in lock(&self.watchers).iter() {
            watcher(&received);
        }
    }

    pub(super) fn unreadable(&self, id: String, why: String) {
        lock(&self.unreadable).push((id, why));
    }

    pub(super) fn receipt(&self, receipt: Receipt) {
        lock(&self.receipts).push(receipt);
    }

    pub(super) fn watch(&self, watcher: Watcher) {
        lock(&self.watchers).push(watcher);
    }

    pub(super) fn messages(&self) -> Vec<Received> {
        lock(&self.messages).clone()
    }

    pub(super) fn find<T>(&self, seen: impl FnMut(&Received) -> Option<T>) -> Option<T> {
        lock(&self.messages).iter().find_map(seen)
    }

    pub(super) fn all_unreadable(&self) -> Vec<(String, String)> {
        lock(&self.unreadable).clone()
    }

    pub(super) fn receipts(&self) -> Vec<Receipt> {
        lock(&self.receipts).clone()
    }

    /// Forgets what was shown, for runs that go on for long.
    pub(super) fn clear(&self) {
        lock(&self.messages).clear();
        lock(&self.receipts).clear();
    }
}
