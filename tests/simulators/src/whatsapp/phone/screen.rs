//! What the phone shows: messages, receipts, and what could not be read.

use std::time::Duration;

use wacore_binary::Jid;

use super::{Phone, PhoneError, Receipt, Received, attachment};
use crate::{
    TimedOut,
    whatsapp::{
        node::{el, now},
        receipt,
    },
};

impl Phone {
    /// Tells the author that messages were read.
    pub fn read(&self, received: &Received) {
        let me = self.address();
        let group = received.chat.ends_with("@g.us");
        let read = el("receipt").attr("type", "read").attr("id", received.id.as_str()).attr("t", now().to_string());
        let read = if group {
            read.attr("to", received.chat.as_str()).attr("participant", received.from.jid())
        } else {
            read.attr("to", received.from.account())
        };
        receipt::relay(&self.server, &me, &read.build());
        self.server.changed();
    }

    /// All messages that were shown, each once, oldest first.
    pub fn messages(&self) -> Vec<Received> {
        self.inbox.messages()
    }

    /// The messages that somebody wrote in the private chat with this phone.
    pub fn messages_from(&self, number: &str) -> Vec<Received> {
        let chat = Jid::pn(number).to_string();
        self.messages().into_iter().filter(|message| message.chat == chat && message.from.number == number).collect()
    }

    /// How many messages with this text are shown: more than one when the sender put it under several ids.
    pub fn times_shown(&self, text: &str) -> usize {
        self.messages().iter().filter(|message| message.text.as_deref() == Some(text)).count()
    }

    /// What came and could not be read: ids and reasons.
    pub fn unreadable(&self) -> Vec<(String, String)> {
        self.inbox.all_unreadable()
    }

    /// Receipts for what this phone wrote.
    pub fn receipts(&self) -> Vec<Receipt> {
        self.inbox.receipts()
    }

    /// Forgets what was shown, for runs that go on for long.
    pub fn forget(&self) {
        self.inbox.clear();
    }

    /// Hears of each message once, as it is shown. It must be quick.
    pub fn watch(&self, watcher: impl Fn(&Received) + Send + Sync + 'static) {
        self.inbox.watch(Box::new(watcher));
    }

    /// Downloads and decrypts what is attached to a message.
    pub fn open(&self, received: &Received) -> Result<Vec<u8>, PhoneError> {
        attachment::open(&self.server, &received.message)
    }

    /// Waits for a message that `seen` looks for.
    pub async fn wait_for<T>(
        &self,
        what: &str,
        within: Duration,
        mut seen: impl FnMut(&Received) -> Option<T>,
    ) -> Result<T, TimedOut> {
        let what = format!("{what} on the phone {}", self.number);
        self.server.wait_for(&what, within, || self.inbox.find(&mut seen)).await
    }

    /// Waits for a message with this text.
    pub async fn wait_for_text(&self, text: &str, within: Duration) -> Result<Received, TimedOut> {
        let is = |message: &Received| (message.text.as_deref() == Some(text)).then(|| message.clone());
        self.wait_for(&format!("the text {text:?}"), within, is).await
    }

    /// Waits for a receipt of this kind (`None`: delivered) for a message of this phone's.
    pub async fn wait_for_receipt(&self, id: &str, kind: Option<&str>, within: Duration) -> Result<Receipt, TimedOut> {
        let is = |receipt: &Receipt| receipt.id == id && receipt.kind.as_deref() == kind;
        let what = format!("a receipt {kind:?} for {id}");
        self.server.wait_for(&what, within, || self.inbox.receipts().into_iter().find(is)).await
    }
}
