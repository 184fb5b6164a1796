//! What is known of the events that are held of the broker, and what is done with each: pure.
//!
//! A queue gives its messages out in one order only, but events are asked for by conversation. So a window of them is held,
//! delivered and unsettled: the broker keeps them durably, and taking one out of the middle is a matter of memory.
//!
//! **Positions.** A reader that has seen everything up to a position never looks before it again. An event has its number
//! as its position, unless something later was *told* (read, or returned by an append) before it came into view: then it
//! gets a new one behind all of that.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use bytes::Bytes;
use uuid::Uuid;

use super::{
    super::super::{Destination, Scope, Stored},
    names::Group,
    wire::{Letter, Open},
};
use crate::{event::Event, identity::ChannelId};

/// Ids of events whose delivery or removal is remembered, in case they come again.
const REMEMBERED: usize = 8192;

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

/// A bounded memory: the oldest goes.
#[derive(Debug)]
struct Recent<K>(HashSet<K>, VecDeque<K>);

impl<K: Hash + Eq + Clone> Default for Recent<K> {
    fn default() -> Self {
        Self(HashSet::new(), VecDeque::new())
    }
}

impl<K: Hash + Eq + Clone> Recent<K> {
    fn add(&mut self, key: K) {
        if self.0.insert(key.clone()) {
            self.1.push_back(key);
        }
        if self.1.len() > REMEMBERED
            && let Some(oldest) = self.1.pop_front()
        {
            self.0.remove(&oldest);
        }
    }

    fn has(&self, key: &K) -> bool {
        self.0.contains(key)
    }
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

    /// An event is being published into the main queue.
    pub(super) fn publishing(&mut self, event: &Event, letter: &Letter) {
        let position = self.place(letter.number);
        self.insert(position, entry(event, letter, None, State::Publishing));
    }

    /// They are stored, by their numbers. Gives the positions that they have from now on; with `tell` the readers know.
    pub(super) fn published(&mut self, numbers: &[u64], tell: bool) -> Vec<u64> {
        let positions: Vec<u64> =
            numbers.iter().filter_map(|number| self.numbers.get(&(None, *number)).copied()).collect();
        let late = positions.iter().any(|position| *position <= self.told);
        let mut now = Vec::with_capacity(positions.len());
        for mut position in positions {
            if late {
                position = self.move_behind(position, 0);
            }
            if let Some(entry) = self.entries.get_mut(&position) {
                entry.state = State::There;
            }
            now.push(position);
        }
        if tell && let Some(last) = now.last() {
            self.told = self.told.max(*last);
        }
        now
    }

    /// Gives an event another position, behind all that was told and behind one more.
    fn move_behind(&mut self, position: u64, behind: u64) -> u64 {
        let Some(entry) = self.remove(position) else { return position };
        let to = self.place(if behind == 0 { 0 } else { behind + 1 });
        self.insert(to, entry);
        to
    }

    /// They count as not stored, wherever they came to lie.
    pub(super) fn void(&mut self, numbers: &[u64]) -> Vec<Ack> {
        let mut acks = Vec::new();
        for number in numbers {
            let Some(position) = self.numbers.get(&(None, *number)).copied() else { continue };
            let Some(entry) = self.entries.get_mut(&position) else { continue };
            entry.state = State::Void;
            if let Some(tag) = entry.tag {
                acks.push(Ack { source: entry.source, tag });
                self.remove(position);
            }
        }
        acks
    }

    /// The same for what went where nothing is held.
    pub(super) fn void_number(&mut self, source: Source, number: u64) {
        self.voided.add((source, number));
    }

    /// A message has come. Returned is what to acknowledge at once; whether it is something that nobody was told of.
    pub(super) fn arrived(
        &mut self,
        event: &Event,
        letter: &Letter,
        source: Source,
        tag: u64,
        session: u64,
        marked: bool,
    ) -> (Option<Ack>, bool) {
        let ack = Some(Ack { source, tag });
        if let Some(position) = self.numbers.get(&(source, letter.number)).copied() {
            let position = self.in_order(source, position);
            let Some(entry) = self.entries.get_mut(&position) else { return (None, false) };
            (entry.tag, entry.session) = (Some(tag), session);
            entry.marked |= marked;
            if entry.state == State::Void || entry.open.is_empty() {
                self.remove(position);
                return (ack, false);
            }
            return (None, false);
        }
        if self.voided.has(&(source, letter.number)) {
            return (ack, false);
        }
        let mut letter = letter.clone();
        for (destination, _) in letter.open.list() {
            let twin = self.ids.get(&event.id).into_iter().flatten().any(|position| {
                self.entries
                    .get(position)
                    .is_some_and(|entry| entry.state != State::Void && entry.open.get(destination).is_some())
            });
            if twin || (!letter.again && self.done.has(&(event.id, destination))) {
                letter.open.set(destination, None);
            }
        }
        if letter.open.is_empty() {
            return (ack, false);
        }
        // A queue's order counts, whatever the clock was that gave the numbers.
        let before = self.arrived_to.get(&source).copied().unwrap_or_default();
        let position = self.place(letter.number.max(before + 1));
        self.arrived_to.insert(source, position);
        let mut entry = entry(event, &letter, source, State::There);
        (entry.tag, entry.session, entry.marked) = (Some(tag), session, marked);
        self.insert(position, entry);
        (None, true)
    }

    /// Before anything is read, what we append ourselves may be known before what lies in the queue before it.
    fn in_order(&mut self, source: Source, position: u64) -> u64 {
        let before = self.arrived_to.get(&source).copied().unwrap_or_default();
        let position = if !self.settled && position <= before { self.move_behind(position, before) } else { position };
        self.arrived_to.insert(source, position.max(before));
        position
    }

    /// All that had come before `number` has come again: what did not is not there any more.
    pub(super) fn caught_up(&mut self, session: u64, number: u64) {
        let gone: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.session != session && entry.state != State::Publishing)
            .filter(|(_, entry)| entry.source.is_some() || entry.number < number)
            .map(|(position, _)| *position)
            .collect();
        for position in gone {
            self.remove(position);
        }
        if !std::mem::replace(&mut self.settled, true) {
            let before = self.arrived_to.get(&None).copied().unwrap_or_default();
            let early = |(position, entry): (&u64, &Entry)| {
                (entry.source.is_none() && entry.session != session && *position <= before).then_some(*position)
            };
            let early: Vec<u64> = self.entries.iter().filter_map(early).collect();
            for position in early {
                self.move_behind(position, before);
            }
        }
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

    /// How many events of each group are held of the main queue.
    pub(super) fn crowd(&self) -> HashMap<Group, usize> {
        let mut crowd = HashMap::new();
        for entry in self.entries.values().filter(|entry| entry.source.is_none() && entry.state == State::There) {
            for (destination, _) in entry.open.list() {
                *crowd.entry(Group::of(entry.channel, destination)).or_default() += 1;
            }
        }
        crowd
    }

    /// The events of a group in the main queue, oldest first: those after the first `keep`, from a number on.
    pub(super) fn tail(&self, group: Group, keep: usize, from: u64, limit: usize) -> Vec<(u64, Found)> {
        let destination = group.destination();
        let of_group = |entry: &&Entry| {
            entry.source.is_none()
                && entry.state == State::There
                && entry.open.get(destination).is_some()
                && Group::of(entry.channel, destination) == group
        };
        let positions = self.entries.iter().filter(|(_, entry)| of_group(entry) && entry.number >= from);
        let tail = positions.skip(keep).take(limit).map(|(position, _)| *position);
        tail.filter_map(|position| Some((position, self.find(position, destination)?))).collect()
    }

    /// A group's event was set aside: it is closed here, and comes again from there.
    pub(super) fn set_aside(&mut self, position: u64, destination: Destination) -> Closed {
        let Some(entry) = self.entries.get(&position) else { return Closed::default() };
        let id = entry.id;
        self.moved.add((position, destination));
        self.moved_ids.insert(position, id);
        if self.moved_ids.len() > 2 * REMEMBERED {
            let moved = &self.moved;
            self.moved_ids.retain(|position, _| {
                super::wire::BOTH.iter().any(|destination| moved.has(&(*position, *destination)))
            });
        }
        self.close(position, destination, false)
    }

    /// Whether anything of a queue is held.
    pub(super) fn holds(&self, source: Source) -> bool {
        self.entries.values().any(|entry| entry.source == source)
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
