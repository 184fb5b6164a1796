//! People: a phone writes, reads, links devices and answers for its account. Everything it says is encrypted in earnest.

mod actor;
mod attachment;
mod history;
mod inbox;
mod link;
mod reading;
mod signal;
mod store;
mod writing;

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};
use wacore::proto_helpers::MessageBuilderExt as _;
use wacore_binary::{Jid, Node};
use waproto::whatsapp::{Message, MessageKey, history_sync::HistorySyncType, message::ReactionMessage};

pub use attachment::{Attachment, Kind};
pub use history::{History, Old};
pub use inbox::{Receipt, Received};

pub(super) use inbox::Inbox;

use super::{
    Server,
    account::{Account, Device},
    address::Address,
    group::{Group, Rank},
    node::{el, now},
    pairing::{self, Code, PairingRefused},
    picture::Picture,
    receipt,
};
use crate::TimedOut;

/// Why a phone could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PhoneError {
    /// The chat's address is none.
    #[error("{0} is no address of a chat")]
    NoChat(String),
    /// A device has left no keys.
    #[error("a device has left no keys")]
    NoKeys,
    /// The encryption failed.
    #[error("the encryption failed: {0}")]
    Signal(String),
    /// Media can't be encrypted, found or read.
    #[error("the media failed: {0}")]
    Media(String),
    /// The phone's simulator is gone.
    #[error("the simulator is gone")]
    Gone,
}

/// What a phone is to do, one after the other.
pub(super) enum Order {
    /// A stanza came for it.
    Stanza(Node),
    /// A device was linked and logged in.
    Linked(Address),
    /// Somebody types the digits that a device shows.
    Link { digits: String, done: oneshot::Sender<Result<Address, PairingRefused>> },
    /// The device has answered to that.
    CodeFinished(Node),
    /// A device can't find media any more.
    Reupload(Address, Node),
    /// Somebody writes.
    Write { chat: Jid, id: String, message: Box<Message>, done: oneshot::Sender<Result<(), PhoneError>> },
    /// What was said before is handed to a device.
    HandOver {
        device: Address,
        kind: HistorySyncType,
        chats: Vec<History>,
        done: oneshot::Sender<Result<(), PhoneError>>,
    },
}

impl std::fmt::Debug for Order {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Order")
    }
}

/// A phone as its tests hold it.
#[derive(Debug, Clone)]
pub struct Phone {
    server: Arc<Server>,
    number: String,
    inbox: Arc<Inbox>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Phone {
    /// The phone with this number, new or known.
    pub(super) fn of(server: &Arc<Server>, number: &str) -> Self {
        let mut state = server.state();
        if let Some(account) = state.account(number) {
            let (inbox, orders) = (Arc::clone(&account.inbox), account.phone.clone());
            return Self { server: Arc::clone(server), number: number.to_owned(), inbox, orders };
        }
        let (orders, inbound) = mpsc::unbounded_channel();
        let inbox = Arc::new(Inbox::default());
        let place = state.len() as u64 + 1;
        let lid = (100_000_000_000_000 + place).to_string();
        let raw_id = u32::try_from(place).unwrap_or(u32::MAX);
        let mut account = Account::new(number, lid, raw_id, orders.clone(), Arc::clone(&inbox));
        let (signal, bundle) = signal::Signal::new(&account.identity, 1000 + raw_id);
        account.devices.insert(0, Device { bundle, announced: true, ..Device::default() });
        let actor = actor::Actor::new(server, &account, signal);
        state.add(account);
        drop(state);
        tokio::spawn(actor.run(inbound));
        Self { server: Arc::clone(server), number: number.to_owned(), inbox, orders }
    }

    /// The phone's number.
    pub fn number(&self) -> &str {
        &self.number
    }

    /// The account on the wire: `<number>@s.whatsapp.net`.
    pub fn jid(&self) -> String {
        Jid::pn(self.number.as_str()).to_string()
    }

    /// The account's hidden id on the wire: `<id>@lid`.
    pub fn lid(&self) -> String {
        self.server.state().lid(&self.number).to_string()
    }

    fn address(&self) -> Address {
        Address::new(self.number.as_str(), 0)
    }

    /// Scans a code that a device shows. The device's address from now on.
    pub fn scan(&self, code: &str) -> Result<Address, PairingRefused> {
        let code = Code::read(code).ok_or(PairingRefused::NotACode)?;
        pairing::accept(&self.server, &self.number, &code)
    }

    /// Types the digits that a device shows, which asked this number to be linked. The device's address from now on.
    pub async fn link(&self, digits: &str, within: Duration) -> Result<Address, PairingRefused> {
        let (done, linked) = oneshot::channel();
        let _ = self.orders.send(Order::Link { digits: digits.to_owned(), done });
        let linked = tokio::time::timeout(within, linked).await;
        linked.ok().and_then(Result::ok).unwrap_or(Err(PairingRefused::Gone))
    }

    /// Whether a device waits for the digits that it shows.
    pub fn is_asked_for_digits(&self) -> bool {
        let state = self.server.state();
        let asks =
            |pairing: &pairing::Pairing| pairing.by_code.as_ref().is_some_and(|asked| asked.number == self.number);
        state.pairings.values().any(asks)
    }

    /// The linked devices.
    pub fn devices(&self) -> Vec<Address> {
        let state = self.server.state();
        let account = state.account(&self.number);
        account.into_iter().flat_map(Account::addresses).filter(|address| !address.is_phone()).collect()
    }

    /// Unlinks a device: it is told, and so is everybody else.
    pub fn unlink(&self, device: &Address) {
        pairing::remove(&self.server, &mut self.server.state(), device);
        self.server.changed();
    }

    /// What the others see as this person's name.
    pub fn set_name(&self, name: &str) {
        if let Some(account) = self.server.state().account_mut(&self.number) {
            account.name = name.to_owned();
        }
    }

    /// Shows a picture to everybody.
    pub fn set_picture(&self, bytes: &[u8]) {
        let picture = self.server.show(bytes.to_vec());
        self.put_picture(picture);
    }

    /// Shows the picture to nobody.
    pub fn hide_picture(&self) {
        self.put_picture(Picture::Hidden);
    }

    /// Takes the picture away.
    pub fn remove_picture(&self) {
        self.put_picture(Picture::None);
    }

    fn put_picture(&self, picture: Picture) {
        if let Some(account) = self.server.state().account_mut(&self.number) {
            account.picture = picture;
        }
    }

    /// What this phone hands to devices that are linked later, and to those that ask for more.
    pub fn remember(&self, chats: Vec<History>) {
        if let Some(account) = self.server.state().account_mut(&self.number) {
            account.history = chats;
        }
    }

    /// The media that this phone was sent is gone from it too: it can't be uploaded again.
    pub fn lose_media(&self, lost: bool) {
        if let Some(account) = self.server.state().account_mut(&self.number) {
            account.lost_media = lost;
        }
    }

    /// Hands chats of old times to a device, whether it asked or not.
    pub async fn hand_over(&self, device: &Address, chats: Vec<History>) -> Result<(), PhoneError> {
        let (done, handed) = oneshot::channel();
        let order = Order::HandOver { device: device.clone(), kind: HistorySyncType::RECENT, chats, done };
        self.orders.send(order).map_err(|_| PhoneError::Gone)?;
        handed.await.map_err(|_| PhoneError::Gone)?
    }

    /// Makes a group with these people. Its address.
    pub fn create_group(&self, subject: &str, members: &[&Self]) -> String {
        let mut state = self.server.state();
        let number = state.groups.len() + 1;
        let mut group = Group::new(number, subject.to_owned(), &self.number, self.server.hides_members());
        for member in members {
            group.members.entry(member.number.clone()).or_insert(Rank::Member);
        }
        let jid = group.jid();
        let everybody: Vec<String> = group.members.keys().cloned().collect();
        let create = el("create").attr("type", "new").children([group.node(&state)]).build();
        state.groups.insert(group.id.clone(), group);
        super::query::tell_group(&self.server, &mut state, &self.address(), &jid, &everybody, create);
        jid.to_string()
    }

    /// Writes a text to a chat: a number, or an address on the wire. The message's id.
    pub async fn say(&self, chat: &str, text: &str) -> Result<String, PhoneError> {
        self.send(chat, Message::text(text)).await
    }

    /// Sends something with a file in it. The message's id.
    pub async fn attach(&self, chat: &str, attachment: &Attachment) -> Result<String, PhoneError> {
        let message = attachment.message(&self.server)?;
        self.send(chat, message).await
    }

    /// Reacts to a message that came.
    pub async fn react(&self, to: &Received, emoji: &str) -> Result<String, PhoneError> {
        let group = to.chat.ends_with("@g.us");
        let key = MessageKey {
            remote_jid: Some(to.chat.clone()),
            from_me: Some(to.from.number == self.number),
            id: Some(to.id.clone()),
            participant: group.then(|| to.from.account().to_string()),
        };
        let reaction = ReactionMessage {
            key: buffa::MessageField::some(key),
            text: Some(emoji.to_owned()),
            sender_timestamp_ms: Some(i64::try_from(now() * 1000).unwrap_or_default()),
            ..Default::default()
        };
        let message = Message { reaction_message: buffa::MessageField::some(reaction), ..Default::default() };
        self.send(&to.chat, message).await
    }

    /// Sends anything. The message's id.
    pub async fn send(&self, chat: &str, message: Message) -> Result<String, PhoneError> {
        let id = format!("3EB0{:016X}", rand::random::<u64>());
        self.send_as(&id, chat, message).await.map(|()| id)
    }

    /// Sends anything under an id of one's choice.
    pub async fn send_as(&self, id: &str, chat: &str, message: Message) -> Result<(), PhoneError> {
        let chat = address_of(chat)?;
        let (done, written) = oneshot::channel();
        let order = Order::Write { chat, id: id.to_owned(), message: Box::new(message), done };
        self.orders.send(order).map_err(|_| PhoneError::Gone)?;
        written.await.map_err(|_| PhoneError::Gone)?
    }

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

/// A chat by number or by its address on the wire.
fn address_of(chat: &str) -> Result<Jid, PhoneError> {
    if chat.contains('@') {
        return chat.parse().map_err(|_| PhoneError::NoChat(chat.to_owned()));
    }
    Ok(Jid::pn(chat))
}
