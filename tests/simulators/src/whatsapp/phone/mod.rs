//! People: a phone writes, reads, links devices and answers for its account. Everything it says is encrypted in earnest.

mod actor;
mod attachment;
mod history;
mod inbox;
mod link;
mod profile;
mod reading;
mod screen;
mod signal;
mod store;
mod writing;

use std::sync::Arc;

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
    pairing::PairingRefused,
};

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

    /// Writes a text without waiting for what becomes of it.
    pub fn post(&self, chat: &str, text: &str) {
        let Ok(chat) = address_of(chat) else { return };
        let (done, _) = oneshot::channel();
        let order = Order::Write { chat, id: new_id(), message: Box::new(Message::text(text)), done };
        // Whoever does not wait does not hear that the simulator is gone either.
        let _ = self.orders.send(order);
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
        let id = new_id();
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
}

/// An id for a message, of the form that clients have.
fn new_id() -> String {
    format!("3EB0{:016X}", rand::random::<u64>())
}

/// A chat by number or by its address on the wire.
fn address_of(chat: &str) -> Result<Jid, PhoneError> {
    if chat.contains('@') {
        return chat.parse().map_err(|_| PhoneError::NoChat(chat.to_owned()));
    }
    Ok(Jid::pn(chat))
}
