//! The order of work within one queue, pure: which delivery may start, which must wait, which moves aside.
//!
//! | situation | what happens |
//! |---|---|
//! | a delivery arrives, its lane is free | it starts |
//! | its lane is busy | it waits in memory, in order |
//! | the head of a lane must be tried later | the fact (lane, head, due) is stored; then the head and all of the lane move to the parked queue |
//! | a lane has a long backlog and its head does not get on | the same with `due` = now: the backlog makes room for other lanes |
//! | a delivery arrives for a lane that has a fact | it is parked behind the others; unless it is the head itself, which had not moved yet when its process died: it goes first |
//! | a lane's time has come | its parked deliveries come back in small lots, in order, before anything newer |
//! | nothing of the lane is parked any more | the fact is cleared |
//! | a barrier (`connect`, `disconnect`, `resync_history`) | starts when all earlier work of its channel that is not parked is finished; nothing later of the channel starts before it is |
//! | a suspect (out in more than one death of its shard) | starts only when no other suspect runs |
//!
//! A lane that is not due holds nothing in memory, so that the prefetch is never used up by what must wait.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::{
    identity::{ChannelId, QueueName},
    job::{JobId, Lane},
    registry::LaneFact,
};

/// The loop's name for a delivery that is out.
pub type Key = u64;

/// How much may be in memory and at work.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Jobs at work at a time.
    pub running: usize,
    /// A backlog over this may be moved aside.
    pub spill_over: usize,
    /// A backlog that has waited this long is moved aside when the prefetch is used up.
    pub spill_after_ms: i64,
    /// How many parked deliveries come back at a time.
    pub lot: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { running: 256, spill_over: 4, spill_after_ms: 250, lot: 16 }
    }
}

/// A delivery as the engine sees it.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The loop's name for it.
    pub key: Key,
    /// The job's id.
    pub id: JobId,
    /// Its lane.
    pub lane: Lane,
    /// Whether nothing else of the channel may run beside it.
    pub barrier: bool,
    /// Whether it may be what killed its shard.
    pub suspect: bool,
}

/// What the loop has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Begin the work.
    Start(Key),
    /// Store that a lane waits; before the moves that follow.
    StoreFact(LaneFact),
    /// Move a delivery to the parked queue.
    Park {
        /// Which.
        key: Key,
        /// Its lane.
        lane: Lane,
        /// Its place in the lane.
        seq: u64,
    },
    /// Fetch parked deliveries of a lane and hand them in with [`Lanes::unparked`].
    Unpark {
        /// Which lane.
        lane: Lane,
        /// How many at most.
        limit: usize,
    },
    /// The lane no longer waits; answer with [`Lanes::cleared`].
    ClearFact(Lane),
}

/// How many sequence numbers a stored fact reserves: after a restart numbering goes on above all that were used.
const SEQ_BLOCK: u64 = 1 << 20;

#[derive(Debug)]
struct Item {
    arrival: Arrival,
    /// Order of arrival within the engine, for barriers.
    order: u64,
    /// Place in the lane.
    seq: u64,
    since_ms: i64,
}

#[derive(Debug, Default)]
struct LaneState {
    waiting: VecDeque<Item>,
    running: Option<Item>,
    next_seq: u64,
    aside: Option<Aside>,
    queued: bool,
}

/// A lane of which something is, or may be, parked.
#[derive(Debug)]
struct Aside {
    head: JobId,
    due_ms: i64,
    reserved_to: u64,
    /// A lot is being fetched.
    fetching: bool,
    /// Parks ordered since the last fetch was: it may have missed them.
    parked_since_fetch: bool,
    clearing: bool,
    /// The fact is of an earlier life, whose head may still be in the work queue.
    recovered: bool,
}

#[derive(Debug, Default)]
struct ChannelState {
    open: BTreeSet<u64>,
    barriers: BTreeSet<u64>,
    lanes: BTreeSet<Lane>,
}

/// The lanes of one queue.
#[derive(Debug)]
pub struct Lanes {
    queue: QueueName,
    limits: Limits,
    lanes: HashMap<Lane, LaneState>,
    channels: HashMap<ChannelId, ChannelState>,
    /// Where each key that is in memory is.
    keys: HashMap<Key, Lane>,
    ready: VecDeque<Lane>,
    running: usize,
    suspects_running: usize,
    order: u64,
    /// Whatever an earlier life left unsettled has arrived.
    caught_up: bool,
}

impl Lanes {
    /// An engine that knows which lanes waited when the last process ended.
    pub fn new(queue: QueueName, limits: Limits, facts: Vec<LaneFact>) -> Self {
        let mut this = Self {
            queue,
            limits,
            lanes: HashMap::new(),
            channels: HashMap::new(),
            keys: HashMap::new(),
            ready: VecDeque::new(),
            running: 0,
            suspects_running: 0,
            order: 0,
            caught_up: false,
        };
        for fact in facts {
            let aside = Aside {
                head: fact.head,
                due_ms: fact.due_ms,
                reserved_to: fact.next_seq,
                fetching: false,
                parked_since_fetch: true,
                clearing: false,
                recovered: true,
            };
            let state = LaneState { next_seq: fact.next_seq, aside: Some(aside), ..LaneState::default() };
            this.lanes.insert(fact.lane, state);
        }
        this
    }

    /// Whether something of a lane is, or may be, parked.
    pub fn waits(&self, lane: &Lane) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.aside.is_some())
    }

    /// Deliveries at work.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Deliveries that wait in memory.
    pub fn waiting(&self) -> Vec<Key> {
        let mut waiting: Vec<_> =
            self.lanes.values().flat_map(|lane| &lane.waiting).map(|item| (item.order, item.arrival.key)).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, key)| key).collect()
    }

    /// When [`Lanes::tick`] has something to do next for a lane that waits.
    pub fn next_due_ms(&self) -> Option<i64> {
        let idle = |lane: &LaneState| lane.waiting.is_empty() && lane.running.is_none();
        self.lanes
            .values()
            .filter(|lane| idle(lane))
            .filter_map(|lane| lane.aside.as_ref().filter(|aside| !aside.fetching && !aside.clearing))
            .filter(|aside| self.caught_up || !aside.recovered)
            .map(|aside| aside.due_ms)
            .min()
    }

    /// A fresh delivery from the work queue.
    pub fn arrived(&mut self, arrival: Arrival, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        let name = arrival.lane.clone();
        let lane = self.lanes.entry(name.clone()).or_default();
        match &lane.aside {
            None => {
                let seq = lane.next_seq + 1;
                lane.next_seq = seq;
                self.hold(arrival, seq, now_ms, false);
                self.start(&mut actions);
            }
            Some(aside) if aside.recovered && aside.head == arrival.id && now_ms >= aside.due_ms => {
                // The head had not moved when its process died. It goes before everything that is parked.
                lane.aside.as_mut().expect("matched").recovered = false;
                self.hold(arrival, 0, now_ms, true);
                self.start(&mut actions);
            }
            Some(aside) => {
                let first = aside.recovered && aside.head == arrival.id;
                self.park_arrival(arrival, first, &mut actions);
                self.fetch(&name, now_ms, &mut actions);
            }
        }
        actions
    }

    fn park_arrival(&mut self, arrival: Arrival, first: bool, actions: &mut Vec<Action>) {
        let lane = self.lanes.get_mut(&arrival.lane).expect("a lane that waits");
        let seq = if first {
            0
        } else {
            lane.next_seq += 1;
            lane.next_seq
        };
        let aside = lane.aside.as_mut().expect("a lane that waits");
        aside.parked_since_fetch = true;
        aside.recovered &= !first;
        if seq >= aside.reserved_to {
            aside.reserved_to = seq + SEQ_BLOCK;
            actions.push(Action::StoreFact(LaneFact {
                queue: self.queue,
                lane: arrival.lane.clone(),
                head: aside.head.clone(),
                due_ms: aside.due_ms,
                next_seq: aside.reserved_to,
            }));
        }
        actions.push(Action::Park { key: arrival.key, lane: arrival.lane, seq });
    }

    /// The work is done and settled, or has gone somewhere else for good.
    pub fn finished(&mut self, key: Key, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(item) = self.take_running(key) {
            let name = item.arrival.lane.clone();
            self.fetch(&name, now_ms, &mut actions);
            self.forget_if_empty(&name);
            let held = |state: &ChannelState| item.arrival.barrier || !state.barriers.is_empty();
            if self.channels.get(&name.channel).is_some_and(held) {
                self.queue_channel(name.channel);
            }
            self.start(&mut actions);
        }
        actions
    }

    /// The work must be tried again at `due_ms`.
    pub fn postponed(&mut self, key: Key, due_ms: i64, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(item) = self.take_running(key) else { return actions };
        let name = item.arrival.lane.clone();
        self.set_aside(&name, item.arrival.id.clone(), due_ms, &mut actions);
        let lane = self.lanes.get_mut(&name).expect("the lane that ran it");
        if let Some(aside) = &mut lane.aside {
            aside.parked_since_fetch = true;
        }
        actions.push(Action::Park { key, lane: name.clone(), seq: item.seq });
        self.park_waiting(&name, &mut actions);
        self.fetch(&name, now_ms, &mut actions);
        self.queue_channel(name.channel);
        self.start(&mut actions);
        actions
    }

    /// Parked deliveries of a lane, as [`Action::Unpark`] asked for; fewer than the limit means that there were no more.
    pub fn unparked(&mut self, name: &Lane, lot: Vec<(Arrival, u64)>, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(lane) = self.lanes.get_mut(name) else { return actions };
        let Some(aside) = lane.aside.as_mut() else { return actions };
        aside.fetching = false;
        if lot.is_empty() {
            if aside.parked_since_fetch {
                self.fetch(name, now_ms, &mut actions);
            } else if lane.running.is_none() && lane.waiting.is_empty() {
                aside.clearing = true;
                actions.push(Action::ClearFact(name.clone()));
            }
            return actions;
        }
        if now_ms < aside.due_ms {
            // Its head was postponed meanwhile: all of it stays parked.
            aside.parked_since_fetch = true;
            actions.extend(lot.into_iter().map(|(arrival, seq)| Action::Park {
                key: arrival.key,
                lane: arrival.lane,
                seq,
            }));
            return actions;
        }
        for (arrival, seq) in lot {
            self.hold(arrival, seq, now_ms, false);
        }
        self.start(&mut actions);
        actions
    }

    /// The fact is gone, as [`Action::ClearFact`] asked for.
    pub fn cleared(&mut self, name: &Lane, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(lane) = self.lanes.get_mut(name) else { return actions };
        match &mut lane.aside {
            Some(aside) if aside.parked_since_fetch => {
                // Something was parked while the fact was being cleared: it must be there again before a restart.
                aside.clearing = false;
                actions.push(Action::StoreFact(LaneFact {
                    queue: self.queue,
                    lane: name.clone(),
                    head: aside.head.clone(),
                    due_ms: aside.due_ms,
                    next_seq: aside.reserved_to,
                }));
                self.fetch(name, now_ms, &mut actions);
            }
            _ => {
                lane.aside = None;
                self.forget_if_empty(name);
            }
        }
        actions
    }

    /// Whatever an earlier life left unsettled in the work queue has arrived: from now on recovered lanes may go on,
    /// since their head, if it had not moved, is among it.
    pub fn caught_up(&mut self, now_ms: i64) -> Vec<Action> {
        self.caught_up = true;
        self.tick(now_ms, false)
    }

    /// Time has passed. `full` says that the prefetch is used up, so that other lanes may be kept out.
    pub fn tick(&mut self, now_ms: i64, full: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        let due: Vec<Lane> = self
            .lanes
            .iter()
            .filter(|(_, lane)| lane.aside.as_ref().is_some_and(|aside| aside.due_ms <= now_ms && !aside.fetching))
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            self.fetch(&name, now_ms, &mut actions);
        }
        if full {
            let long = |lane: &LaneState| {
                lane.aside.is_none()
                    && lane.waiting.len() > self.limits.spill_over
                    && lane.waiting.front().is_some_and(|item| now_ms - item.since_ms >= self.limits.spill_after_ms)
            };
            let spilling: Vec<Lane> =
                self.lanes.iter().filter(|(_, lane)| long(lane)).map(|(name, _)| name.clone()).collect();
            for name in spilling {
                let lane = &self.lanes[&name];
                let head = lane.running.as_ref().or(lane.waiting.front()).map(|item| item.arrival.id.clone());
                if let Some(head) = head {
                    self.set_aside(&name, head, now_ms, &mut actions);
                    self.park_waiting(&name, &mut actions);
                    self.fetch(&name, now_ms, &mut actions);
                    // Barriers of the channel may have waited for what is parked now.
                    self.queue_channel(name.channel);
                }
            }
            self.start(&mut actions);
        }
        actions
    }

    fn set_aside(&mut self, name: &Lane, head: JobId, due_ms: i64, actions: &mut Vec<Action>) {
        let lane = self.lanes.get_mut(name).expect("a known lane");
        let reserved_to = match &lane.aside {
            Some(aside) => aside.reserved_to.max(lane.next_seq + 1),
            None => lane.next_seq + SEQ_BLOCK,
        };
        actions.push(Action::StoreFact(LaneFact {
            queue: self.queue,
            lane: name.clone(),
            head: head.clone(),
            due_ms,
            next_seq: reserved_to,
        }));
        let fetching = lane.aside.as_ref().is_some_and(|aside| aside.fetching);
        lane.aside = Some(Aside {
            head,
            due_ms,
            reserved_to,
            fetching,
            parked_since_fetch: true,
            clearing: false,
            recovered: false,
        });
    }

    /// Orders everything that waits in memory into the parked queue.
    fn park_waiting(&mut self, name: &Lane, actions: &mut Vec<Action>) {
        let lane = self.lanes.get_mut(name).expect("a known lane");
        let waiting = std::mem::take(&mut lane.waiting);
        for item in waiting {
            self.leave(&item);
            self.keys.remove(&item.arrival.key);
            actions.push(Action::Park { key: item.arrival.key, lane: name.clone(), seq: item.seq });
        }
    }

    /// Asks for a lot when the lane is due and has nothing in memory.
    fn fetch(&mut self, name: &Lane, now_ms: i64, actions: &mut Vec<Action>) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        let idle = lane.running.is_none() && lane.waiting.is_empty();
        if let Some(aside) = &mut lane.aside
            && idle
            && !aside.fetching
            && !aside.clearing
            && aside.due_ms <= now_ms
            && (self.caught_up || !aside.recovered)
        {
            aside.fetching = true;
            aside.parked_since_fetch = false;
            actions.push(Action::Unpark { lane: name.clone(), limit: self.limits.lot });
        }
    }

    fn hold(&mut self, arrival: Arrival, seq: u64, now_ms: i64, first: bool) {
        self.order += 1;
        let item = Item { order: self.order, seq, since_ms: now_ms, arrival };
        let name = item.arrival.lane.clone();
        let channel = self.channels.entry(name.channel).or_default();
        channel.open.insert(item.order);
        if item.arrival.barrier {
            channel.barriers.insert(item.order);
        }
        channel.lanes.insert(name.clone());
        self.keys.insert(item.arrival.key, name.clone());
        let lane = self.lanes.entry(name.clone()).or_default();
        if first {
            lane.waiting.push_front(item);
        } else {
            lane.waiting.push_back(item);
        }
        self.queue_lane(&name);
    }

    /// The item no longer counts for barriers.
    fn leave(&mut self, item: &Item) {
        if let Some(channel) = self.channels.get_mut(&item.arrival.lane.channel) {
            channel.open.remove(&item.order);
            channel.barriers.remove(&item.order);
        }
    }

    fn take_running(&mut self, key: Key) -> Option<Item> {
        let name = self.keys.remove(&key)?;
        let item = self.lanes.get_mut(&name)?.running.take()?;
        debug_assert_eq!(item.arrival.key, key);
        self.running -= 1;
        if item.arrival.suspect {
            self.suspects_running -= 1;
        }
        self.leave(&item);
        self.queue_lane(&name);
        Some(item)
    }

    fn forget_if_empty(&mut self, name: &Lane) {
        let empty = self
            .lanes
            .get(name)
            .is_some_and(|lane| lane.running.is_none() && lane.waiting.is_empty() && lane.aside.is_none());
        if empty {
            self.lanes.remove(name);
            if let Some(channel) = self.channels.get_mut(&name.channel) {
                channel.lanes.remove(name);
                if channel.open.is_empty() {
                    self.channels.remove(&name.channel);
                }
            }
        }
    }

    fn queue_lane(&mut self, name: &Lane) {
        if let Some(lane) = self.lanes.get_mut(name)
            && !lane.queued
        {
            lane.queued = true;
            self.ready.push_back(name.clone());
        }
    }

    /// Something of the channel has ended: lanes that a barrier held may go on. Without barriers nothing was held.
    fn queue_channel(&mut self, channel: ChannelId) {
        let Some(state) = self.channels.get(&channel) else { return };
        let names: Vec<Lane> = state.lanes.iter().cloned().collect();
        for name in names {
            if self.lanes.get(&name).is_some_and(|lane| lane.running.is_none() && !lane.waiting.is_empty()) {
                self.queue_lane(&name);
            }
        }
    }

    fn may_start(&self, item: &Item) -> bool {
        let channel = &self.channels[&item.arrival.lane.channel];
        let no_earlier_barrier = channel.barriers.range(..item.order).next().is_none();
        let alone = !item.arrival.barrier || channel.open.first() == Some(&item.order);
        no_earlier_barrier && alone && !(item.arrival.suspect && self.suspects_running > 0)
    }

    fn start(&mut self, actions: &mut Vec<Action>) {
        let mut held = Vec::new();
        while self.running < self.limits.running {
            let Some(name) = self.ready.pop_front() else { break };
            let Some(lane) = self.lanes.get_mut(&name) else { continue };
            lane.queued = false;
            if lane.running.is_some() || lane.waiting.is_empty() {
                continue;
            }
            let lane = &self.lanes[&name];
            let suspect = lane.waiting[0].arrival.suspect;
            if !self.may_start(&lane.waiting[0]) {
                if suspect {
                    held.push(name);
                }
                continue;
            }
            let lane = self.lanes.get_mut(&name).expect("just looked at");
            if let Some(item) = lane.waiting.pop_front() {
                self.running += 1;
                self.suspects_running += usize::from(item.arrival.suspect);
                actions.push(Action::Start(item.arrival.key));
                lane.running = Some(item);
            }
        }
        // Suspects wait for a place of their own; they are looked at again whenever something ends.
        for name in held {
            self.queue_lane(&name);
        }
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
