//! What is known of the events that are held of the broker, and what is done with each: pure.
//!
//! A queue gives its messages out in one order only, but events are asked for by conversation. So a window of them is held,
//! delivered and unsettled: the broker keeps them durably, and taking one out of the middle is a matter of memory.
//!
//! **Positions.** A reader that has seen everything up to a position never looks before it again. An event has its number
//! as its position, unless something later was *told* (read, or returned by an append) before it came into view: then it
//! gets a new one behind all of that.

mod coming;
mod crowd;
mod recent;

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use bytes::Bytes;
use uuid::Uuid;

use self::recent::{REMEMBERED, Recent};
use super::{
    super::super::{Destination, Scope, Stored},
    names::Group,
    wire::{Letter, Open},
};
use crate::{event::Event, identity::ChannelId};

/// The queue that a message lies in: that of a group, or the main one.
pub(super) type Source = Option<Group>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not known yet whether it is stored.
    Publishing,
    There,
    /// Whoever appended it was told that it was not stored.
    Void,
}

#[derive(Debug)]
struct Entry {
    id: Uuid,
    channel: ChannelId,
    conversation: u64,
    body: Bytes,
    stored_ms: i64,
    open: Open,
    /// The registry knows something of it.
    marked: bool,
    source: Source,
    number: u64,
    tag: Option<u64>,
    session: u64,
    state: State,
}

impl Entry {
    fn key(&self) -> Uuid {
        mark_key(self.id, self.number, self.source.is_some())
    }
}

/// Under which the registry knows a message: one event may lie in several, for a destination each.
pub(super) fn mark_key(event: Uuid, number: u64, aside: bool) -> Uuid {
    Uuid::from_u128(event.as_u128() ^ u128::from(number) ^ (u128::from(aside) << 64))
}

/// Something to be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) source: Source,
    pub(super) tag: u64,
}

/// What became of a settled event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) ack: Option<Ack>,
    /// The mark that is of no more use.
    pub(super) forget: Option<Uuid>,
}

/// What an event was when it was looked up.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Under which the registry knows it.
    pub(super) key: Uuid,
    pub(super) number: u64,
    pub(super) stored_ms: i64,
    pub(super) open: Open,
    pub(super) body: Bytes,
}

/// All that is held.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: BTreeMap<u64, Entry>,
    numbers: HashMap<(Source, u64), u64>,
    ids: HashMap<Uuid, Vec<u64>>,
    done: Recent<(Uuid, Destination)>,
    /// Where events were that have been set aside since.
    moved: Recent<(u64, Destination)>,
    moved_ids: HashMap<u64, Uuid>,
    voided: Recent<(Source, u64)>,
    /// The last position of what came from each queue.
    arrived_to: HashMap<Source, u64>,
    /// What lay there at the start is known.
    settled: bool,
    told: u64,
    last: u64,
    bytes: usize,
}

fn hashed(conversation: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    conversation.hash(&mut hasher);
    hasher.finish()
}

impl Index {
    /// A number above all others: the time, then chance against another process in the same millisecond.
    pub(super) fn number(&mut self, now_ms: i64, roll: u64) -> u64 {
        let fresh = (now_ms.max(0).unsigned_abs() << 20) | (roll & 0xf_ffff);
        self.last = fresh.max(self.last + 1);
        self.last
    }

    /// Events held, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    fn insert(&mut self, position: u64, entry: Entry) {
        self.last = self.last.max(position);
        self.bytes += entry.body.len();
        self.numbers.insert((entry.source, entry.number), position);
        self.ids.entry(entry.id).or_default().push(position);
        self.entries.insert(position, entry);
    }

    fn remove(&mut self, position: u64) -> Option<Entry> {
        let entry = self.entries.remove(&position)?;
        self.bytes -= entry.body.len();
        self.numbers.remove(&(entry.source, entry.number));
        if let Some(positions) = self.ids.get_mut(&entry.id) {
            positions.retain(|other| *other != position);
            if positions.is_empty() {
                self.ids.remove(&entry.id);
            }
        }
        Some(entry)
    }

    fn place(&mut self, number: u64) -> u64 {
        let mut position = if number > self.told && number > 0 { number } else { self.last.max(self.told) + 1 };
        while self.entries.contains_key(&position) {
            position += 1;
        }
        self.last = self.last.max(position);
        position
    }

    /// Tags of an earlier session settle nothing.
    pub(super) fn session_ended(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.tag = None);
    }

    /// Events after a position that are open (for a scope), oldest first.
    pub(super) fn read(&mut self, scope: Option<&Scope>, after: u64, limit: usize) -> Vec<Stored> {
        let wanted = scope.map(|scope| match scope {
            Scope::Destination(_) => (None, None),
            Scope::Channel(_, channel) => (Some(*channel), None),
            Scope::Conversation(_, channel, conversation) => (Some(*channel), Some(hashed(conversation.as_deref()))),
        });
        let mut found = Vec::new();
        for (position, entry) in self.entries.range(after.saturating_add(1)..) {
            if found.len() >= limit {
                break;
            }
            if entry.state != State::There || entry.open.is_empty() {
                continue;
            }
            if let Some((channel, conversation)) = wanted
                && (channel.is_some_and(|channel| channel != entry.channel)
                    || conversation.is_some_and(|conversation| conversation != entry.conversation))
            {
                continue;
            }
            let Ok(event) = serde_json::from_slice(&entry.body) else { continue };
            let stored = Stored { position: *position, stored_ms: entry.stored_ms, event, open: entry.open.list() };
            if scope.is_none_or(|scope| scope.includes(&stored)) {
                found.push(stored);
            }
        }
        let seen_to = if found.len() < limit {
            self.entries.last_key_value().map(|(position, _)| *position)
        } else {
            found.last().map(|stored| stored.position)
        };
        self.told = self.told.max(seen_to.unwrap_or_default());
        found
    }

    /// An event that is open there.
    pub(super) fn find(&self, position: u64, destination: Destination) -> Option<Found> {
        let entry = self.entries.get(&position)?;
        entry.open.get(destination)?;
        Some(Found {
            key: entry.key(),
            number: entry.number,
            stored_ms: entry.stored_ms,
            open: entry.open,
            body: entry.body.clone(),
        })
    }

    /// The registry has been told about it.
    pub(super) fn marked(&mut self, position: u64) {
        if let Some(entry) = self.entries.get_mut(&position) {
            entry.marked = true;
        }
    }

    /// One more failure; what is open then.
    pub(super) fn failed(&mut self, position: u64, destination: Destination) -> Option<(Uuid, Open)> {
        let entry = self.entries.get_mut(&position)?;
        let failures = entry.open.get(destination)?;
        entry.open.set(destination, Some(failures.saturating_add(1)));
        Some((entry.key(), entry.open))
    }

    /// A destination is done with. With `remember` the event is dropped should it come again for it.
    pub(super) fn close(&mut self, position: u64, destination: Destination, remember: bool) -> Closed {
        let Some(entry) = self.entries.get_mut(&position) else {
            if remember
                && self.moved.has(&(position, destination))
                && let Some(id) = self.moved_ids.get(&position)
            {
                self.done.add((*id, destination));
            }
            return Closed::default();
        };
        entry.open.set(destination, None);
        if remember {
            self.done.add((entry.id, destination));
        }
        if !entry.open.is_empty() {
            return Closed::default();
        }
        let (key, marked) = (entry.key(), entry.marked);
        let ack = entry.tag.map(|tag| Ack { source: entry.source, tag });
        // As long as the message is there, so is what is known of it.
        let forget = (marked && ack.is_some()).then_some(key);
        if ack.is_some() {
            self.remove(position);
        }
        Closed { ack, forget }
    }
}

fn entry(event: &Event, letter: &Letter, source: Source, state: State) -> Entry {
    Entry {
        id: event.id,
        channel: event.channel_id,
        conversation: hashed(event.conversation.as_deref()),
        body: letter.body.clone(),
        stored_ms: letter.stored_ms,
        open: letter.open,
        marked: false,
        source,
        number: letter.number,
        tag: None,
        session: 0,
        state,
    }
}

#[cfg(test)]
mod tests;
