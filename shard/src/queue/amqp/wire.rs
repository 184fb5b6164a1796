//! How a message lies in a broker: its headers as AMQP headers, named `x-shardvisor-…`.
//!
//! Headers of a producer are kept when they are texts, numbers or truth values; what the broker itself wrote (`x-death`,
//! `x-delivery-count`) is read where it says something and not carried on. The broker's count of deliveries is not the count of attempts.

use bytes::Bytes;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use sha2::{Digest, Sha256};

use super::super::{Headers, Message};
use crate::job::Lane;

const ATTEMPTS: &str = "x-shardvisor-attempts";
const FIRST_ERROR: &str = "x-shardvisor-first-error";
const LAST_ERROR: &str = "x-shardvisor-last-error";
const REASON: &str = "x-shardvisor-reason";
const ORIGIN: &str = "x-shardvisor-origin";
const DIED_AT: &str = "x-shardvisor-died-at";
const SEQ: &str = "x-shardvisor-lane-seq";
const LANE_CHANNEL: &str = "x-shardvisor-lane-channel";
const LANE_CHAT: &str = "x-shardvisor-lane-chat";
/// Tells apart what lies in a parked or dead-letter queue.
const NUMBER: &str = "x-shardvisor-number";
const OURS: &str = "x-shardvisor-";
/// Written by the broker.
const BROKERS: [&str; 5] = ["x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count"];

/// The message id and type of a producer, carried among its headers.
const MESSAGE_ID: &str = "amqp-message-id";
const TYPE: &str = "amqp-type";

/// All headers of a message travel in one frame: no text may fill it.
const TEXT_MAX: usize = 4096;
/// A longer name of a conversation travels as its hash.
const CHAT_MAX: usize = 512;
/// A producer's headers beyond this are left behind.
const FOREIGN_MAX: usize = 64 * 1024;

fn text(value: &str) -> AMQPValue {
    let mut end = value.len().min(TEXT_MAX);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    AMQPValue::LongString(value[..end].into())
}

/// Where a message lies beside a work queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// In a parked queue: its lane (channel, chat).
    pub(super) lane: Option<LaneKey>,
    /// In a parked or dead-letter queue: its number.
    pub(super) number: Option<u64>,
}

/// A lane within one queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    channel: String,
    chat: Option<String>,
}

impl From<&Lane> for LaneKey {
    fn from(lane: &Lane) -> Self {
        let chat = lane.chat.as_ref().map(|chat| match chat.len() {
            0..=CHAT_MAX => chat.clone(),
            _ => Sha256::digest(chat.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect(),
        });
        Self { channel: lane.channel.to_string(), chat }
    }
}

/// The properties under which a message is published.
pub(super) fn encode(headers: &Headers, place: &Place) -> BasicProperties {
    let mut table = FieldTable::default();
    let mut put = |name: &str, value: AMQPValue| {
        table.insert(name.into(), value);
    };
    let mut properties = BasicProperties::default();
    let mut room = FOREIGN_MAX;
    for (name, value) in &headers.foreign {
        let Some(left) = room.checked_sub(name.len() + value.len()) else { continue };
        room = left;
        match name.as_str() {
            MESSAGE_ID => properties = properties.with_message_id(short(value)),
            TYPE => properties = properties.with_type(short(value)),
            _ if name.len() <= 255 => put(name, AMQPValue::LongString(value.as_str().into())),
            _ => {}
        }
    }
    if headers.attempts > 0 {
        put(ATTEMPTS, AMQPValue::LongLongInt(headers.attempts.into()));
    }
    let texts = [
        (FIRST_ERROR, &headers.first_error),
        (LAST_ERROR, &headers.last_error),
        (REASON, &headers.reason),
        (ORIGIN, &headers.origin),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            put(name, text(value));
        }
    }
    if let Some(at) = headers.died_at_ms {
        put(DIED_AT, AMQPValue::LongLongInt(at));
    }
    if let Some(seq) = headers.lane_seq {
        put(SEQ, AMQPValue::LongLongInt(seq as i64));
    }
    if let Some(lane) = &place.lane {
        put(LANE_CHANNEL, text(&lane.channel));
        if let Some(chat) = &lane.chat {
            put(LANE_CHAT, AMQPValue::LongString(chat.as_str().into()));
        }
    }
    if let Some(number) = place.number {
        put(NUMBER, AMQPValue::LongLongInt(number as i64));
    }
    properties.with_delivery_mode(2).with_content_type("application/json".into()).with_headers(table)
}

fn short(value: &str) -> lapin::types::ShortString {
    let mut end = value.len().min(255);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value[..end].into()
}

/// What was published, and where it lies.
pub(super) fn decode(properties: BasicProperties, body: Vec<u8>) -> (Message, Place) {
    let mut headers = Headers::default();
    let mut place = Place::default();
    let (mut channel, mut chat) = (None, None);
    for (name, value) in properties.headers().as_ref().into_iter().flatten() {
        let name = name.as_str();
        match name {
            ATTEMPTS => headers.attempts = whole(value).unwrap_or_default().clamp(0, u32::MAX.into()) as u32,
            FIRST_ERROR => headers.first_error = plain(value),
            LAST_ERROR => headers.last_error = plain(value),
            REASON => headers.reason = plain(value),
            ORIGIN => headers.origin = plain(value),
            DIED_AT => headers.died_at_ms = whole(value),
            SEQ => headers.lane_seq = whole(value).map(|seq| seq as u64),
            NUMBER => place.number = whole(value).map(|number| number as u64),
            LANE_CHANNEL => channel = plain(value),
            LANE_CHAT => chat = plain(value),
            _ if name.starts_with(OURS) => {}
            _ if BROKERS.iter().any(|broker| name.starts_with(broker)) => {
                if name == "x-first-death-reason" && headers.reason.is_none() {
                    headers.reason = plain(value);
                }
            }
            _ => {
                if let Some(value) = plain(value) {
                    headers.foreign.insert(name.to_owned(), value);
                }
            }
        }
    }
    for (name, value) in [(MESSAGE_ID, properties.message_id()), (TYPE, properties.kind())] {
        if let Some(value) = value {
            headers.foreign.insert(name.to_owned(), value.to_string());
        }
    }
    place.lane = channel.map(|channel| LaneKey { channel, chat });
    (Message { body: Bytes::from(body), headers }, place)
}

fn whole(value: &AMQPValue) -> Option<i64> {
    Some(match value {
        AMQPValue::ShortShortInt(value) => (*value).into(),
        AMQPValue::ShortShortUInt(value) => (*value).into(),
        AMQPValue::ShortInt(value) => (*value).into(),
        AMQPValue::ShortUInt(value) => (*value).into(),
        AMQPValue::LongInt(value) => (*value).into(),
        AMQPValue::LongUInt(value) => (*value).into(),
        AMQPValue::LongLongInt(value) => *value,
        AMQPValue::Timestamp(value) => i64::try_from(*value).ok()?,
        _ => return None,
    })
}

fn plain(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::LongString(value) => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        AMQPValue::ShortString(value) => value.to_string(),
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        other => whole(other)?.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_back_as_they_were_written() {
        let mut headers = Headers {
            attempts: 7,
            first_error: Some("first".into()),
            last_error: Some("l\u{e4}st".into()),
            reason: Some("exhausted".into()),
            origin: Some("whatsapp-1".into()),
            died_at_ms: Some(1_900_000_000_000),
            lane_seq: Some(u64::MAX),
            ..Headers::default()
        };
        for (name, value) in [("x-trace", "t1"), (MESSAGE_ID, "j1"), (TYPE, "send"), ("empty", "")] {
            headers.foreign.insert(name.into(), value.into());
        }
        let lane = LaneKey { channel: "c".into(), chat: Some(String::new()) };
        let place = Place { lane: Some(lane.clone()), number: Some(u64::MAX - 1) };
        let properties = encode(&headers, &place);
        let (message, read) = decode(properties, b"body".to_vec());
        assert_eq!(message.headers, headers);
        assert_eq!((read.lane, read.number), (Some(lane), Some(u64::MAX - 1)));
        assert_eq!(decode(encode(&Headers::default(), &Place::default()), Vec::new()).0, Message::new(""));
    }

    /// Field report R27: the broker's own count is not ours.
    #[test]
    fn what_the_broker_wrote_is_read_for_the_reason_alone() {
        let mut table = FieldTable::default();
        table.insert("x-delivery-count".into(), AMQPValue::LongLongInt(20));
        table.insert("x-first-death-reason".into(), text("delivery_limit"));
        table.insert("x-death".into(), AMQPValue::FieldTable(FieldTable::default()));
        table.insert("priority".into(), AMQPValue::LongInt(3));
        let (message, _) = decode(BasicProperties::default().with_headers(table), Vec::new());
        assert_eq!(message.headers.attempts, 0);
        assert_eq!(message.headers.reason.as_deref(), Some("delivery_limit"));
        assert_eq!(message.headers.foreign, [("priority".to_owned(), "3".to_owned())].into());
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let headers = Headers { last_error: Some("\u{e4}".repeat(3000)), ..Headers::default() };
        let (message, _) = decode(encode(&headers, &Place::default()), Vec::new());
        assert_eq!(message.headers.last_error.map(|text| text.len()), Some(TEXT_MAX));
    }
}
