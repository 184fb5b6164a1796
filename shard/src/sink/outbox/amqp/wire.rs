//! How an event lies in the broker: its JSON as the body, and beside it what the outbox knows of it.

use bytes::Bytes;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};

use super::super::super::Destination;

const NUMBER: &str = "x-shardvisor-number";
const STORED: &str = "x-shardvisor-stored-ms";
const OPEN: &str = "x-shardvisor-open";
const AGAIN: &str = "x-shardvisor-again";
const MARKER: &str = "x-shardvisor-marker";
const DESTINATION: &str = "x-shardvisor-destination";
const REASON: &str = "x-shardvisor-reason";
const ATTEMPTS: &str = "x-shardvisor-attempts";
/// All headers of a message travel in one frame.
const REASON_MAX: usize = 4096;

pub(super) const BOTH: [Destination; 2] = [Destination::Handler, Destination::Endpoint];

/// Failures for each destination that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Open([Option<u32>; 2]);

impl Open {
    /// Open for these, never failed.
    pub(super) fn fresh(destinations: &[Destination]) -> Self {
        let mut open = Self::default();
        destinations.iter().for_each(|destination| open.set(*destination, Some(0)));
        open
    }

    pub(super) fn get(&self, destination: Destination) -> Option<u32> {
        self.0[destination as usize]
    }

    pub(super) fn set(&mut self, destination: Destination, failures: Option<u32>) {
        self.0[destination as usize] = failures;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == [None, None]
    }

    /// Those that are open, with their failures.
    pub(super) fn list(&self) -> Vec<(Destination, u32)> {
        BOTH.into_iter().filter_map(|destination| Some((destination, self.get(destination)?))).collect()
    }

    /// As text: each open destination with its failures.
    pub(super) fn write(&self) -> String {
        let one = |(destination, failures): (Destination, u32)| format!("{}={failures}", destination.as_str());
        self.list().into_iter().map(one).collect::<Vec<_>>().join(",")
    }

    /// From text.
    pub(super) fn read(text: &str) -> Self {
        let mut open = Self::default();
        for (name, failures) in text.split(',').filter_map(|one| one.split_once('=')) {
            if let Some(destination) = BOTH.into_iter().find(|destination| destination.as_str() == name) {
                open.set(destination, failures.parse().ok());
            }
        }
        open
    }

    /// What is open by both: a mark says what is left of what the message says.
    pub(super) fn and(&self, mark: &Self) -> Self {
        let mut open = Self::default();
        for destination in BOTH {
            let both = self.get(destination).zip(mark.get(destination)).map(|(a, b)| a.max(b));
            open.set(destination, both);
        }
        open
    }
}

/// An event on its way through a queue.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    /// Tells it apart, and orders what is read anew.
    pub(super) number: u64,
    /// When it was stored first.
    pub(super) stored_ms: i64,
    /// Where it still has to go.
    pub(super) open: Open,
    /// Somebody wants it delivered again.
    pub(super) again: bool,
    /// The event.
    pub(super) body: Bytes,
}

impl Letter {
    /// The properties under which it is published.
    pub(super) fn properties(&self) -> BasicProperties {
        let mut table = FieldTable::default();
        table.insert(NUMBER.into(), AMQPValue::LongLongInt(self.number as i64));
        table.insert(STORED.into(), AMQPValue::LongLongInt(self.stored_ms));
        table.insert(OPEN.into(), AMQPValue::LongString(self.open.write().into()));
        if self.again {
            table.insert(AGAIN.into(), AMQPValue::Boolean(true));
        }
        persistent(table)
    }

    /// What was published; none when it was not by an outbox.
    pub(super) fn read(properties: &BasicProperties, body: Vec<u8>) -> Option<Self> {
        let headers = properties.headers().as_ref()?;
        Some(Self {
            number: whole(headers, NUMBER)? as u64,
            stored_ms: whole(headers, STORED)?,
            open: Open::read(&text(headers, OPEN)?),
            again: headers.inner().contains_key(AGAIN),
            body: Bytes::from(body),
        })
    }
}

/// What is said of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Death {
    pub(super) destination: Destination,
    pub(super) reason: String,
    pub(super) attempts: u32,
}

impl Death {
    /// The properties under which it is published.
    pub(super) fn properties(&self) -> BasicProperties {
        let mut end = self.reason.len().min(REASON_MAX);
        while !self.reason.is_char_boundary(end) {
            end -= 1;
        }
        let mut table = FieldTable::default();
        table.insert(DESTINATION.into(), AMQPValue::LongString(self.destination.as_str().into()));
        table.insert(REASON.into(), AMQPValue::LongString(self.reason[..end].into()));
        table.insert(ATTEMPTS.into(), AMQPValue::LongLongInt(self.attempts.into()));
        persistent(table)
    }

    /// What was published.
    pub(super) fn read(properties: &BasicProperties) -> Option<Self> {
        let headers = properties.headers().as_ref()?;
        let name = text(headers, DESTINATION)?;
        Some(Self {
            destination: BOTH.into_iter().find(|destination| destination.as_str() == name)?,
            reason: text(headers, REASON)?,
            attempts: whole(headers, ATTEMPTS)?.clamp(0, u32::MAX.into()) as u32,
        })
    }
}

/// A message that says nothing but that it came through.
pub(super) fn marker(number: u64) -> BasicProperties {
    let mut table = FieldTable::default();
    table.insert(MARKER.into(), AMQPValue::LongLongInt(number as i64));
    persistent(table)
}

/// The number of such a message.
pub(super) fn marked(properties: &BasicProperties) -> Option<u64> {
    whole(properties.headers().as_ref()?, MARKER).map(|number| number as u64)
}

/// When an event was stored, as its message says.
pub(super) fn stored_ms(properties: &BasicProperties) -> Option<i64> {
    whole(properties.headers().as_ref()?, STORED)
}

fn persistent(table: FieldTable) -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2).with_content_type("application/json".into()).with_headers(table)
}

fn whole(headers: &FieldTable, name: &str) -> Option<i64> {
    match headers.inner().get(name)? {
        AMQPValue::LongLongInt(value) => Some(*value),
        _ => None,
    }
}

fn text(headers: &FieldTable, name: &str) -> Option<String> {
    match headers.inner().get(name)? {
        AMQPValue::LongString(value) => Some(String::from_utf8_lossy(value.as_bytes()).into_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_beside_an_event_is_read_back() {
        let mut open = Open::fresh(&BOTH);
        open.set(Destination::Handler, Some(7));
        let letter = Letter { number: 1 << 62, stored_ms: 5, open, again: true, body: Bytes::from_static(b"e") };
        let read = Letter::read(&letter.properties(), b"e".to_vec()).expect("ours");
        assert_eq!((read.number, read.stored_ms, read.open), (1 << 62, 5, open));
        assert!(read.again);
        let death = Death { destination: Destination::Endpoint, reason: "\u{fc}".repeat(3000), attempts: 3 };
        let read = Death::read(&death.properties()).expect("ours");
        assert_eq!((read.destination, read.attempts, read.reason.len()), (Destination::Endpoint, 3, REASON_MAX));
        assert_eq!(marked(&marker(9)), Some(9));
        assert!(Letter::read(&marker(9), Vec::new()).is_none() && Death::read(&marker(9)).is_none());
    }

    #[test]
    fn a_mark_takes_away_and_never_adds() {
        let message = Open::fresh(&[Destination::Endpoint]);
        assert_eq!(message.and(&Open::read("handler=3,endpoint=2")).list(), [(Destination::Endpoint, 2)]);
        assert!(message.and(&Open::read("handler=1")).is_empty());
        assert!(message.and(&Open::read("")).is_empty());
    }
}
