//! What the library's bus tells beside messages, put into words: events, how a connection stands, why it ends.

use jiff::Timestamp;
use serde_json::json;
use whatsapp_rust::{
    types::{
        events::{Event as Told, GroupUpdate, Receipt as LibraryReceipt, ServerAck, UndecryptableMessage},
        presence::ReceiptType,
    },
    wacore_binary::NodeRef,
};

use super::{close::End, content::plain};
use crate::{
    event::{Event, EventKind, Other, PairingCode, Receipt},
    identity::ChannelId,
    platform::PlatformKind,
};

/// What the connection's loop has to know.
#[derive(Debug)]
pub(super) enum Seen {
    /// Logged in, and ready to send.
    Connected,
    /// The phone has linked this device.
    Paired,
    /// A code to show to a person.
    Code { method: &'static str, code: String, seconds: u64 },
    /// All codes of this window were shown.
    CodesUsedUp,
    /// No code can be had.
    NoCode { error: String },
    /// The server says why it is about to end the connection.
    Ending(End),
    /// The socket ended.
    Socket { reason: String },
    /// Something to be stored.
    Happened(Box<Event>),
    /// History came.
    History(Box<whatsapp_rust::types::events::LazyHistorySync>),
    /// The server took a message of ours, or refused it.
    Acked { id: String, error: Option<String> },
}

/// A stanza that ends the connection, or none such.
pub(super) fn ending(node: &NodeRef<'_>) -> Option<End> {
    let attr = |name: &str| node.get_attr(name).map(|value| value.as_str().to_string());
    match node.tag.as_ref() {
        "stream:error" => {
            let conflict = node.get_optional_child("conflict");
            let conflict = conflict
                .map(|child| child.get_attr("type").map(|value| value.as_str().to_string()).unwrap_or_default());
            let code = attr("code").filter(|code| !code.is_empty());
            // An unacknowledged stanza is named without a code; the server goes on, or closes by itself.
            let is_notice = code.is_none() && conflict.is_none() && node.get_optional_child("ack").is_some();
            (!is_notice).then_some(End::StreamError { code, conflict })
        }
        "failure" => {
            let number = |name: &str| attr(name).and_then(|text| text.parse::<u64>().ok());
            let reason = number("reason").and_then(|reason| u32::try_from(reason).ok());
            Some(End::Failure { reason, expires_in: number("expire") })
        }
        _ => None,
    }
}

/// What an event of the bus means here; `None` for what is told elsewhere, or is nobody's business.
pub(super) fn read(channel: ChannelId, told: &Told) -> Option<Seen> {
    match told {
        Told::Connected(_) => Some(Seen::Connected),
        Told::PairSuccess(_) => Some(Seen::Paired),
        Told::PairingQrCode(code) => {
            Some(Seen::Code { method: "qr", code: code.code.clone(), seconds: code.timeout.as_secs() })
        }
        Told::PairingCode(code) => {
            Some(Seen::Code { method: "code", code: code.code.clone(), seconds: code.timeout.as_secs() })
        }
        Told::PairingCodeError(error) => Some(Seen::NoCode { error: error.error.clone() }),
        Told::PairingQrCodesExhausted(_) => Some(Seen::CodesUsedUp),
        Told::Disconnected(gone) => Some(Seen::Socket { reason: gone.reason.to_string() }),
        Told::RawNode(node) => ending(node.get()).map(Seen::Ending),
        Told::ServerAck(ack) => acked(ack),
        Told::Receipt(seen) => receipt(channel, seen).map(|event| Seen::Happened(Box::new(event))),
        Told::GroupUpdate(update) => Some(Seen::Happened(Box::new(group(channel, update)))),
        Told::UndecryptableMessage(message) => Some(Seen::Happened(Box::new(undecryptable(channel, message)))),
        Told::HistorySync(history) => Some(Seen::History(history.clone())),
        _ => None,
    }
}

fn acked(ack: &ServerAck) -> Option<Seen> {
    let is_message = ack.class.as_deref().is_none_or(|class| class == "message");
    is_message.then(|| Seen::Acked { id: ack.id.clone(), error: ack.error.clone() })
}

fn receipt(channel: ChannelId, receipt: &LibraryReceipt) -> Option<Event> {
    let status = match receipt.r#type {
        ReceiptType::Delivered => "delivered",
        ReceiptType::Read => "read",
        ReceiptType::Played => "played",
        // What our own devices have read, and what the protocol asks of itself.
        _ => return None,
    };
    let chat = plain(&receipt.source.chat);
    let participant = receipt.source.is_group.then(|| plain(&receipt.source.sender));
    let at = Timestamp::from_second(receipt.timestamp.timestamp()).unwrap_or_default();
    let key = format!(
        "receipt/{status}/{chat}/{}/{}",
        participant.as_deref().unwrap_or_default(),
        receipt.message_ids.join(",")
    );
    let told = Receipt {
        chat_id: chat.clone(),
        message_ids: receipt.message_ids.clone(),
        status: status.to_owned(),
        participant,
    };
    Some(Event::new(channel, PlatformKind::Whatsapp, Some(chat), at, &key, EventKind::Receipt(told)))
}

fn group(channel: ChannelId, update: &GroupUpdate) -> Event {
    let chat = plain(&update.group_jid);
    let at = Timestamp::from_second(update.timestamp.timestamp()).unwrap_or_default();
    let id = update.notification_id.clone().unwrap_or_else(|| at.as_second().to_string());
    let key = format!("group/{chat}/{id}/{}", update.action_index);
    let raw = json!({
        "group_id": chat,
        "by": update.participant.as_ref().map(plain),
        "action": serde_json::to_value(&update.action).unwrap_or_default(),
    });
    let kind = EventKind::Other(Other { update: "group.updated".to_owned(), raw });
    Event::new(channel, PlatformKind::Whatsapp, Some(chat), at, &key, kind)
}

/// It is asked for again by the protocol itself; that somebody wrote is worth telling all the same.
fn undecryptable(channel: ChannelId, message: &UndecryptableMessage) -> Event {
    let (chat, sender) = (plain(&message.info.source.chat), plain(&message.info.source.sender));
    let at = Timestamp::from_second(message.info.timestamp.timestamp()).unwrap_or_default();
    let key = format!("undecryptable/{chat}/{sender}/{}", message.info.id);
    let raw = json!({ "chat_id": chat, "from": sender, "message_id": message.info.id });
    let kind = EventKind::Other(Other { update: "message.undecryptable".to_owned(), raw });
    Event::new(channel, PlatformKind::Whatsapp, Some(chat), at, &key, kind)
}

/// A code, as an event.
pub(super) fn code_event(channel: ChannelId, method: &str, code: &str, seconds: u64) -> Event {
    let kind =
        EventKind::PairingCode(PairingCode { method: method.to_owned(), code: code.to_owned(), expires_in: seconds });
    let key = format!("code/{code}");
    Event::new(channel, PlatformKind::Whatsapp, None, Timestamp::now(), &key, kind)
}
