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
mod tests {
    use super::*;
    use crate::{
        identity::{ChannelId, QueueBase},
        job::Lane,
    };

    fn lane(chat: &str) -> LaneKey {
        let channel: ChannelId = "0b7c1f3e-0000-4000-8000-000000000001".parse().expect("id");
        LaneKey::from(&Lane { base: QueueBase::Main, channel, chat: Some(chat.to_owned()) })
    }

    fn put(shelf: &mut Shelf, tag: Tag, chat: &str, seq: u64, body: &str, attempts: u32) -> Option<Tag> {
        let mut message = Message::new(body.to_owned());
        message.headers.lane_seq = Some(seq);
        message.headers.attempts = attempts;
        let place = Place { lane: Some(lane(chat)), number: Some(1000 + tag) };
        shelf.arrived(tag, message, place, false)
    }

    fn given(shelf: &mut Shelf, chat: &str, limit: usize) -> Vec<(u64, String)> {
        match shelf.pick(&lane(chat), limit) {
            Picked::Ready(given) => given
                .into_iter()
                .map(|given| (given.number, String::from_utf8_lossy(&given.message.body).into_owned()))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    fn bodies(given: &[(u64, String)]) -> Vec<&str> {
        given.iter().map(|(_, body)| body.as_str()).collect()
    }

    /// Contract: Q3.
    #[test]
    fn a_lane_comes_in_the_order_of_its_places_and_others_stay() {
        let mut shelf = Shelf::new(1000);
        for (tag, chat, seq) in [(1, "a", 3), (2, "b", 1), (3, "a", 1), (4, "a", 2)] {
            assert_eq!(put(&mut shelf, tag, chat, seq, &format!("{chat}{seq}"), 0), None);
        }
        let first = given(&mut shelf, "a", 2);
        assert_eq!(bodies(&first), ["a1", "a2"]);
        let rest = given(&mut shelf, "a", 9);
        assert_eq!(bodies(&rest), ["a3"]);
        assert!(shelf.released(first[1].0) && !shelf.released(first[1].0));
        assert_eq!(shelf.settled(first[0].0), Some(3));
        assert_eq!(bodies(&given(&mut shelf, "a", 9)), ["a2"]);
        assert_eq!(shelf.len(), 3);
    }

    /// Contract: Q3. The process ended between the new copy and the end of the old one.
    #[test]
    fn of_two_copies_the_one_that_was_tried_more_often_stays() {
        for (first, second, gone) in [(0, 1, 1), (1, 0, 2), (1, 1, 2)] {
            let mut shelf = Shelf::new(1000);
            assert_eq!(put(&mut shelf, 1, "a", 1, "job", first), None);
            assert_eq!(put(&mut shelf, 2, "a", 1, "job", second), Some(gone));
            assert_eq!(shelf.len(), 1);
        }
    }

    /// Contract: Q3.
    #[test]
    fn a_copy_of_our_own_is_no_left_behind_one_and_is_waited_for() {
        let mut shelf = Shelf::new(1000);
        put(&mut shelf, 1, "a", 1, "job", 0);
        let out = given(&mut shelf, "a", 1);
        shelf.expect(lane("a"), 1002);
        assert!(matches!(shelf.pick(&lane("a"), 1), Picked::Coming));
        assert_eq!(put(&mut shelf, 2, "a", 1, "job", 1), None, "the old one is acknowledged by who parked it again");
        assert_eq!(shelf.settled(out[0].0), Some(1));
        assert_eq!(bodies(&given(&mut shelf, "a", 9)), ["job"]);
    }

    #[test]
    fn bodies_beyond_the_budget_are_fetched_again_when_asked_for() {
        let mut shelf = Shelf::new(6);
        for tag in 1..=3 {
            put(&mut shelf, tag, "a", tag, "12345", 0);
        }
        assert_eq!(bodies(&given(&mut shelf, "a", 1)), ["12345"]);
        let Picked::HandBack(tags) = shelf.pick(&lane("a"), 9) else { panic!("no bodies") };
        assert_eq!(tags, [2, 3]);
        assert!(matches!(shelf.pick(&lane("a"), 9), Picked::Coming));
        for (tag, number) in [(4, 1002), (5, 1003)] {
            let mut message = Message::new("12345");
            message.headers.lane_seq = Some(number - 1000);
            let place = Place { lane: Some(lane("a")), number: Some(number) };
            assert_eq!(shelf.arrived(tag, message, place, true), None);
        }
        let rest = given(&mut shelf, "a", 9);
        assert_eq!(rest.len(), 2);
        assert_eq!(shelf.settled(rest[1].0), Some(5), "under its new tag");
        assert_eq!(shelf.len(), 2);
    }
}
