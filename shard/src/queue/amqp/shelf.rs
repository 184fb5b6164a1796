//! What lies in a parked queue, by lane and place. Pure.
//!
//! A broker's queue gives messages out in one order only, but parked jobs are asked for one lane at a time. So all of
//! them are held here, delivered and unsettled, while the broker keeps them durably: taking some out of the middle is a matter of
//! memory, and an end of the process puts all back. Bodies are kept up to a budget; beyond it only places are, and a body that
//! is asked for is handed back to the broker so that it comes again.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{
    super::Message,
    ledger::Tag,
    wire::{LaneKey, Place},
};

/// A parked message's place: its number in the lane, then its own.
type Spot = (u64, u64);

#[derive(Debug)]
struct Slot {
    tag: Tag,
    message: Option<Message>,
    size: usize,
    digest: u64,
    attempts: u32,
    redelivered: bool,
    out: bool,
    /// Handed back for its body.
    coming: bool,
}

/// A message that is given out.
#[derive(Debug)]
pub(super) struct Given {
    /// Settles it.
    pub(super) number: u64,
    pub(super) message: Message,
    pub(super) redelivered: bool,
}

/// What a lane has to give.
#[derive(Debug)]
pub(super) enum Picked {
    /// These, in order; they are out now.
    Ready(Vec<Given>),
    /// Hand these back to the broker; they come again, with their bodies.
    HandBack(Vec<Tag>),
    /// Some are on their way: ask again at the next arrival.
    Coming,
}

/// All that lies in one parked queue.
#[derive(Debug)]
pub(super) struct Shelf {
    lanes: HashMap<LaneKey, BTreeMap<Spot, Slot>>,
    /// On their way into the queue, or in it and not delivered yet.
    expected: HashMap<LaneKey, HashSet<u64>>,
    out: HashMap<u64, (LaneKey, Spot)>,
    next_out: u64,
    held: usize,
    /// Bytes of bodies that are kept, and that may be.
    kept: usize,
    budget: usize,
}

impl Shelf {
    /// An empty one, with room for so many bytes of bodies.
    pub(super) fn new(budget: usize) -> Self {
        Self {
            lanes: HashMap::new(),
            expected: HashMap::new(),
            out: HashMap::new(),
            next_out: 0,
            held: 0,
            kept: 0,
            budget,
        }
    }

    /// A message with this number is being published into the queue.
    pub(super) fn expect(&mut self, lane: LaneKey, number: u64) {
        self.expected.entry(lane).or_default().insert(number);
    }

    /// It did not get there.
    pub(super) fn not_expected(&mut self, lane: &LaneKey, number: u64) -> bool {
        let Some(numbers) = self.expected.get_mut(lane) else { return false };
        let was = numbers.remove(&number);
        if numbers.is_empty() {
            self.expected.remove(lane);
        }
        was
    }

    /// Messages held, those that are out included.
    pub(super) fn len(&self) -> usize {
        self.held
    }

    /// Whether any is out.
    pub(super) fn has_out(&self) -> bool {
        !self.out.is_empty()
    }

    /// A message was delivered. Returned is one to acknowledge: the older of two copies of a place, left behind by a move
    /// that was cut off between the new copy and the end of the old one.
    pub(super) fn arrived(&mut self, tag: Tag, message: Message, place: Place, redelivered: bool) -> Option<Tag> {
        let (Some(lane), Some(number)) = (place.lane, place.number) else {
            // Put there by somebody else. It has no place, so it is never asked for; the broker keeps it.
            self.held += 1;
            return None;
        };
        let own = self.not_expected(&lane, number);
        let spot = (message.headers.lane_seq.unwrap_or_default(), number);
        let size = message.body.len();
        if let Some(slot) = self.lanes.get_mut(&lane).and_then(|spots| spots.get_mut(&spot)) {
            slot.tag = tag;
            slot.coming = false;
            if slot.message.is_none() {
                slot.message = Some(message);
                self.kept += size;
            }
            return None;
        }
        let mut hasher = DefaultHasher::new();
        message.body.hash(&mut hasher);
        let digest = hasher.finish();
        let attempts = message.headers.attempts;
        let mut copy = None;
        if !own && let Some((other, slot)) = self.twin(&lane, spot.0, digest) {
            if slot.out || attempts <= slot.attempts {
                return Some(tag);
            }
            copy = self.remove(&lane, other);
        }
        let keep = self.kept + size <= self.budget;
        let message = keep.then_some(message);
        self.kept += if keep { size } else { 0 };
        self.held += 1;
        let slot = Slot { tag, message, size, digest, attempts, redelivered, out: false, coming: false };
        self.lanes.entry(lane).or_default().insert(spot, slot);
        copy
    }

    fn twin(&self, lane: &LaneKey, seq: u64, digest: u64) -> Option<(Spot, &Slot)> {
        let spots = self.lanes.get(lane)?;
        spots
            .range((seq, 0)..=(seq, u64::MAX))
            .find(|(_, slot)| slot.digest == digest)
            .map(|(spot, slot)| (*spot, slot))
    }

    fn remove(&mut self, lane: &LaneKey, spot: Spot) -> Option<Tag> {
        let spots = self.lanes.get_mut(lane)?;
        let slot = spots.remove(&spot)?;
        if spots.is_empty() {
            self.lanes.remove(lane);
        }
        self.held -= 1;
        self.kept -= if slot.message.is_some() { slot.size } else { 0 };
        Some(slot.tag)
    }

    /// The first `limit` of a lane that are not out.
    pub(super) fn pick(&mut self, lane: &LaneKey, limit: usize) -> Picked {
        if self.expected.contains_key(lane) {
            return Picked::Coming;
        }
        let Some(spots) = self.lanes.get_mut(lane) else { return Picked::Ready(Vec::new()) };
        let first = || spots.iter().filter(|(_, slot)| !slot.out).take(limit);
        if first().any(|(_, slot)| slot.message.is_none()) {
            let missing: Vec<Spot> =
                first().filter(|(_, slot)| slot.message.is_none() && !slot.coming).map(|(spot, _)| *spot).collect();
            let hand_back = |spot| {
                let slot = spots.get_mut(spot)?;
                slot.coming = true;
                Some(slot.tag)
            };
            let tags: Vec<Tag> = missing.iter().filter_map(hand_back).collect();
            return if tags.is_empty() { Picked::Coming } else { Picked::HandBack(tags) };
        }
        let mut given = Vec::new();
        for (spot, slot) in spots.iter_mut().filter(|(_, slot)| !slot.out).take(limit) {
            let Some(message) = &slot.message else { continue };
            slot.out = true;
            self.next_out += 1;
            self.out.insert(self.next_out, (lane.clone(), *spot));
            given.push(Given { number: self.next_out, message: message.clone(), redelivered: slot.redelivered });
        }
        Picked::Ready(given)
    }

    /// Whether it may be settled.
    pub(super) fn is_out(&self, number: u64) -> bool {
        self.out.contains_key(&number)
    }

    /// It is settled and leaves the queue: what to acknowledge.
    pub(super) fn settled(&mut self, number: u64) -> Option<Tag> {
        let (lane, spot) = self.out.remove(&number)?;
        self.remove(&lane, spot)
    }

    /// It stays where it is. `false` when it was not out.
    pub(super) fn released(&mut self, number: u64) -> bool {
        let Some((lane, spot)) = self.out.remove(&number) else { return false };
        if let Some(slot) = self.lanes.get_mut(&lane).and_then(|spots| spots.get_mut(&spot)) {
            slot.out = false;
        }
        true
    }
}

#[cfg(test)]
mod tests;
