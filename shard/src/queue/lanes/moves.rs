//! Into the parked queue and back: what is ordered, and in which order it must be done.

use std::collections::BTreeSet;

use super::{
    Action, Arrival, Key, Lanes, SEQ_BLOCK,
    state::{Aside, Order, Place},
};
use crate::{
    job::{JobId, Lane},
    registry::LaneFact,
};

impl Lanes {
    fn fact(&self, name: &Lane, aside: &Aside) -> LaneFact {
        LaneFact {
            queue: self.queue,
            lane: name.clone(),
            head: aside.head.clone(),
            due_ms: aside.due_ms,
            next_seq: aside.reserved_to,
        }
    }

    /// Parks a fresh delivery of a lane that waits.
    pub(super) fn park_arrival(&mut self, arrival: Arrival, actions: &mut Vec<Action>) {
        let Some(lane) = self.lanes.get_mut(&arrival.lane) else { return };
        let Some(aside) = lane.aside.as_mut() else { return };
        let first = aside.recovered && aside.head == arrival.id;
        let seq = if first {
            aside.recovered = false;
            0
        } else {
            lane.next_seq += 1;
            lane.next_seq
        };
        aside.parked_since_fetch = true;
        // A fact that is being cleared must be there again before this one moves.
        let mut store = std::mem::take(&mut aside.clearing);
        if seq >= aside.reserved_to {
            aside.reserved_to = seq + SEQ_BLOCK;
            store = true;
        }
        if store {
            let aside = self.lanes[&arrival.lane].aside.as_ref();
            actions.extend(aside.map(|aside| Action::StoreFact(self.fact(&arrival.lane, aside))));
        }
        actions.push(Action::Park { key: arrival.key, lane: arrival.lane, seq });
    }

    /// The head must be tried later: it and all behind it move.
    pub(super) fn put_off(&mut self, key: Key, due_ms: i64, gives_way: bool, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(item) = self.take_running(key) else { return actions };
        let name = item.arrival.lane.clone();
        self.set_aside(&name, item.arrival.id.clone(), due_ms, gives_way, &mut actions);
        actions.push(Action::Park { key, lane: name.clone(), seq: item.seq });
        self.park_waiting(&name, now_ms, &mut actions);
        if due_ms > now_ms {
            self.uncut(&name, u64::MAX);
        }
        self.left(&item, now_ms);
        self.place(&name, now_ms);
        self.start(now_ms, &mut actions);
        actions
    }

    pub(super) fn set_aside(
        &mut self,
        name: &Lane,
        head: JobId,
        due_ms: i64,
        gives_way: bool,
        actions: &mut Vec<Action>,
    ) {
        let lane = self.lanes.entry(name.clone()).or_default();
        let before = lane.aside.as_ref();
        let aside = Aside {
            head,
            due_ms,
            reserved_to: before.map_or(lane.next_seq + SEQ_BLOCK, |aside| aside.reserved_to.max(lane.next_seq + 1)),
            asked: before.is_some_and(|aside| aside.asked),
            parked_since_fetch: true,
            clearing: false,
            recovered: false,
            gives_way,
        };
        let fact = Action::StoreFact(self.fact(name, &aside));
        actions.push(fact);
        self.channels.entry(name.channel).or_default().aside.insert(name.clone());
        if let Some(lane) = self.lanes.get_mut(name) {
            lane.aside = Some(aside);
        }
    }

    /// Orders everything of a lane that waits in memory into the parked queue.
    fn park_waiting(&mut self, name: &Lane, now_ms: i64, actions: &mut Vec<Action>) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        let mut freed = false;
        for item in std::mem::take(&mut lane.waiting) {
            if let Some(channel) = self.channels.get_mut(&name.channel) {
                channel.open.remove(&item.order);
                freed |= channel.barriers.remove(&item.order).is_some();
            }
            self.keys.remove(&item.arrival.key);
            actions.push(Action::Park { key: item.arrival.key, lane: name.clone(), seq: item.seq });
        }
        self.end_lot(name);
        if freed {
            self.unblock_all(name.channel, now_ms);
        }
    }

    /// Backlogs that have waited for long make room for other lanes. A barrier stays where it is, since its place among
    /// the channel's lanes is known in memory alone.
    pub(super) fn spill(&mut self, now_ms: i64, actions: &mut Vec<Action>) {
        let in_memory: BTreeSet<Lane> = self.keys.values().cloned().collect();
        for name in in_memory {
            let Some(lane) = self.lanes.get(&name) else { continue };
            let oldest = lane.waiting.front().map(|item| item.since_ms);
            let long = oldest.is_some_and(|since_ms| now_ms - since_ms >= self.limits.spill_after_ms);
            let barrier = lane.waiting.iter().any(|item| item.arrival.barrier);
            if lane.aside.is_some() || !long || barrier {
                continue;
            }
            let head = lane.running.as_ref().or(lane.waiting.front()).map(|item| item.arrival.id.clone());
            let Some(head) = head else { continue };
            self.keep_before_barriers(&name);
            self.set_aside(&name, head, now_ms, false, actions);
            self.park_waiting(&name, now_ms, actions);
            self.free_barrier(name.channel, now_ms);
            if self.channels.get(&name.channel).is_some_and(|channel| channel.busy >= self.limits.running_per_channel) {
                self.channels.entry(name.channel).or_default().crowds = true;
            }
            self.place(&name, now_ms);
        }
    }

    /// What waits in memory before a barrier stays before it when it is parked.
    fn keep_before_barriers(&mut self, name: &Lane) {
        let Some(lane) = self.lanes.get(name) else { return };
        let Some(channel) = self.channels.get_mut(&name.channel) else { return };
        for (order, barrier) in &mut channel.barriers {
            let before = lane.waiting.iter().filter(|item| item.order < *order).map(|item| item.seq).max();
            if let Some(seq) = before {
                barrier.cuts.insert(name.clone(), seq);
            }
        }
    }

    /// Parked deliveries of a lane, as [`Action::Unpark`] asked for, in order. None of them means that there were no
    /// more, unless `more` says that some were found and could not be handed in.
    pub fn unparked(&mut self, name: &Lane, lot: Vec<(Arrival, u64)>, more: bool, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        self.busy -= 1;
        if let Some(channel) = self.channels.get_mut(&name.channel) {
            channel.busy -= 1;
        }
        let lane = self.lanes.entry(name.clone()).or_default();
        let mut wait = false;
        if let Some(aside) = &mut lane.aside {
            aside.asked = false;
            aside.parked_since_fetch |= more;
            // Its head was postponed meanwhile: all of it stays parked.
            wait = now_ms < aside.due_ms;
        }
        let channel = self.channels.get(&name.channel);
        let may_come = !wait && channel.is_none_or(|channel| channel.may_fetch(name));
        let first = channel.and_then(|channel| channel.barriers.first_key_value());
        let before = first.map(|(order, barrier)| (*order, barrier.cuts.get(name).copied().unwrap_or_default()));
        let (none, mut fetched) = (lot.is_empty(), 0);
        for (arrival, seq) in lot {
            match before {
                // A barrier came while these were fetched, or stands between two of them.
                Some((_, cut)) if may_come && seq > cut => {
                    fetched = fetched.max(cut);
                    self.park_again(arrival, seq, &mut actions);
                }
                _ if !may_come => self.park_again(arrival, seq, &mut actions),
                _ => {
                    fetched = seq;
                    self.hold_parked(arrival, seq, before.map(|(order, _)| order), now_ms);
                }
            }
        }
        self.uncut(name, fetched);
        let over = |aside: &Aside| none && !aside.parked_since_fetch && !wait;
        if self.lanes.get(name).is_some_and(|lane| lane.is_idle() && lane.aside.as_ref().is_some_and(over)) {
            self.uncut(name, u64::MAX);
            self.clear(name, &mut actions);
        }
        self.free_barrier(name.channel, now_ms);
        self.join(name.channel);
        self.place(name, now_ms);
        self.start(now_ms, &mut actions);
        actions
    }

    fn park_again(&mut self, arrival: Arrival, seq: u64, actions: &mut Vec<Action>) {
        if let Some(aside) = self.lanes.get_mut(&arrival.lane).and_then(|lane| lane.aside.as_mut()) {
            aside.parked_since_fetch = true;
        }
        actions.push(Action::Park { key: arrival.key, lane: arrival.lane, seq });
    }

    fn clear(&mut self, name: &Lane, actions: &mut Vec<Action>) {
        if let Some(aside) = self.lanes.get_mut(name).and_then(|lane| lane.aside.as_mut()) {
            aside.clearing = true;
            actions.push(Action::ClearFact(name.clone()));
        }
    }

    /// The fact is gone, as [`Action::ClearFact`] asked for.
    pub fn cleared(&mut self, name: &Lane, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(lane) = self.lanes.get_mut(name) else { return actions };
        // Otherwise it has been stored again since.
        if lane.aside.as_ref().is_some_and(|aside| aside.clearing) {
            lane.aside = None;
            if lane.place == Place::Timer {
                lane.place = Place::None;
            }
            if let Some(channel) = self.channels.get_mut(&name.channel) {
                channel.aside.remove(name);
            }
            self.place(name, now_ms);
            self.start(now_ms, &mut actions);
        }
        actions
    }

    /// Barriers no longer wait for a lane's parked work up to a place: it has come in, or has to wait itself.
    fn uncut(&mut self, name: &Lane, fetched: u64) {
        let Some(channel) = self.channels.get_mut(&name.channel) else { return };
        for barrier in channel.barriers.values_mut() {
            if barrier.cuts.get(name).is_some_and(|cut| fetched >= *cut) {
                barrier.cuts.remove(name);
            }
        }
    }

    /// What lies parked before a barrier that has just come.
    pub(super) fn cut_off(&mut self, order: Order, barrier: &Lane, now_ms: i64) {
        let Some(channel) = self.channels.get_mut(&barrier.channel) else { return };
        let Some(entry) = channel.barriers.get_mut(&order) else { return };
        for name in channel.aside.iter().filter(|name| *name != barrier) {
            let Some(lane) = self.lanes.get(name) else { continue };
            if lane.aside.as_ref().is_some_and(|aside| aside.due_ms <= now_ms && !aside.clearing) {
                entry.cuts.insert(name.clone(), lane.next_seq);
            }
        }
    }
}
