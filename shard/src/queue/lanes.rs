//! The order of work within one queue, pure: which delivery may start, which must wait, which moves aside.
//!
//! | situation | what happens |
//! |---|---|
//! | a delivery arrives, its lane is free | it starts |
//! | its lane is busy | it waits in memory, in order |
//! | the head of a lane must be tried later | the fact (lane, head, due) is stored; then the head and all of the lane move to the parked queue |
//! | the prefetch is used up, and a lane's backlog does not get on | the same with `due` = now: the backlog makes room for other lanes |
//! | a delivery arrives for a lane that has a fact | it is parked behind the others; unless it is the head itself, which had not moved yet when its process died: it goes first |
//! | a lane's time has come, and there is room for it at work | its parked deliveries come back in small lots, in order, before anything newer |
//! | nothing of the lane is parked any more | the fact is cleared |
//! | a barrier (`connect`, `disconnect`, `resync_history`) | starts when all earlier work of its channel is finished that does not wait for a later time; nothing later of the channel starts before it is |
//! | a suspect (out in more than one death of its shard) | starts only when no other suspect runs |
//! | a channel has its share of work going on | its other lanes wait for it, whatever the other channels do |
//!
//! A lane that is not due holds nothing in memory, so that the prefetch is never used up by what must wait. Channels take
//! turns, and so do a channel's lanes. No step looks at more lanes than it moves.

mod moves;
mod state;
mod turns;

use std::collections::{BTreeSet, HashMap, VecDeque};

use self::state::{Aside, Channels, LaneState, Place};
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
    /// Of these, jobs of one channel; never more than half.
    pub running_per_channel: usize,
    /// A backlog that has waited this long is moved aside when the prefetch is used up.
    pub spill_after_ms: i64,
    /// How many parked deliveries of a lane come back at a time.
    pub lot: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { running: 256, running_per_channel: 64, spill_after_ms: 250, lot: 16 }
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

/// The lanes of one queue.
#[derive(Debug)]
pub struct Lanes {
    queue: QueueName,
    limits: Limits,
    lanes: HashMap<Lane, LaneState>,
    channels: Channels,
    /// Where each key that is in memory is.
    keys: HashMap<Key, Lane>,
    /// Channels with something to begin.
    turn: VecDeque<ChannelId>,
    /// Lanes whose time has not come.
    timers: BTreeSet<(i64, Lane)>,
    /// Channels whose parked work waits until less of it is in memory.
    starved: Vec<ChannelId>,
    /// Lanes that wait for other suspects to end.
    suspects: VecDeque<Lane>,
    /// Deliveries at work.
    running: usize,
    /// Those, and lots being fetched.
    busy: usize,
    /// Lanes with parked work in memory.
    lots: usize,
    suspects_running: usize,
    order: u64,
    /// Lanes of an earlier life, until whatever it left unsettled has arrived.
    recovered: Vec<Lane>,
    caught_up: bool,
}

impl Lanes {
    /// An engine that knows which lanes waited when the last process ended.
    pub fn new(queue: QueueName, limits: Limits, facts: Vec<LaneFact>) -> Self {
        let half = limits.running.div_ceil(2).max(1);
        let limits = Limits { running_per_channel: limits.running_per_channel.clamp(1, half), ..limits };
        let mut this = Self {
            queue,
            limits,
            lanes: HashMap::new(),
            channels: HashMap::new(),
            keys: HashMap::new(),
            turn: VecDeque::new(),
            timers: BTreeSet::new(),
            starved: Vec::new(),
            suspects: VecDeque::new(),
            running: 0,
            busy: 0,
            lots: 0,
            suspects_running: 0,
            order: 0,
            recovered: Vec::new(),
            caught_up: false,
        };
        for fact in facts {
            let aside = Aside {
                head: fact.head,
                due_ms: fact.due_ms,
                reserved_to: fact.next_seq,
                asked: false,
                parked_since_fetch: true,
                clearing: false,
                recovered: true,
                gives_way: false,
            };
            this.channels.entry(fact.lane.channel).or_default().aside.insert(fact.lane.clone());
            this.recovered.push(fact.lane.clone());
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

    /// Whether all places are taken while somebody could use one.
    pub fn is_crowded(&self) -> bool {
        self.busy >= self.limits.running && !self.turn.is_empty()
    }

    /// Deliveries that wait in memory, in order.
    pub fn waiting(&self) -> Vec<Key> {
        let waits = |(key, name): (&Key, &Lane)| {
            let item = self.lanes[name].waiting.iter().find(|item| item.arrival.key == *key)?;
            Some((item.order, *key))
        };
        let mut waiting: Vec<_> = self.keys.iter().filter_map(waits).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, key)| key).collect()
    }

    /// When [`Lanes::tick`] has something to do next for a lane that waits.
    pub fn next_due_ms(&self) -> Option<i64> {
        self.timers.first().map(|(due_ms, _)| *due_ms)
    }

    /// A fresh delivery from the work queue.
    pub fn arrived(&mut self, arrival: Arrival, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        let name = arrival.lane.clone();
        let crowded = !arrival.barrier && self.has_its_share(name.channel);
        let lane = self.lanes.entry(name.clone()).or_default();
        match &mut lane.aside {
            None => {
                lane.next_seq += 1;
                let seq = lane.next_seq;
                if crowded && lane.is_idle() {
                    self.set_aside(&name, arrival.id, now_ms, false, &mut actions);
                    actions.push(Action::Park { key: arrival.key, lane: name.clone(), seq });
                } else {
                    self.hold(arrival, seq, now_ms);
                }
            }
            Some(aside) if aside.recovered && aside.head == arrival.id && now_ms >= aside.due_ms => {
                // The head had not moved when its process died. It goes before everything that is parked.
                aside.recovered = false;
                self.hold_head(arrival, now_ms);
            }
            Some(_) => self.park_arrival(arrival, &mut actions),
        }
        self.place(&name, now_ms);
        self.start(now_ms, &mut actions);
        actions
    }

    /// The work is done and settled, or has gone somewhere else for good.
    pub fn finished(&mut self, key: Key, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(item) = self.take_running(key) {
            self.left(&item, now_ms);
            self.place(&item.arrival.lane, now_ms);
            self.start(now_ms, &mut actions);
        }
        actions
    }

    /// The work must be tried again at `due_ms`.
    pub fn postponed(&mut self, key: Key, due_ms: i64, now_ms: i64) -> Vec<Action> {
        self.put_off(key, due_ms, false, now_ms)
    }

    /// The channel is not up, and others need the room: tried again at `due_ms`, or when [`Lanes::channel_is_up`].
    pub fn gives_way(&mut self, key: Key, due_ms: i64, now_ms: i64) -> Vec<Action> {
        self.put_off(key, due_ms, true, now_ms)
    }

    /// What waits for its channel alone goes on.
    pub fn channel_is_up(&mut self, channel: ChannelId, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        let aside = self.channels.get(&channel).map(|channel| channel.aside.clone()).unwrap_or_default();
        for name in aside {
            let Some(lane) = self.lanes.get_mut(&name) else { continue };
            let Some(aside) = lane.aside.as_mut().filter(|aside| aside.gives_way) else { continue };
            let due_ms = std::mem::replace(&mut aside.due_ms, now_ms);
            if lane.place == Place::Timer {
                self.timers.remove(&(due_ms, name.clone()));
                lane.place = Place::None;
                self.place(&name, now_ms);
            }
        }
        self.start(now_ms, &mut actions);
        actions
    }

    /// Whatever an earlier life left unsettled in the work queue has arrived: from now on recovered lanes may go on,
    /// since their head, if it had not moved, is among it.
    pub fn caught_up(&mut self, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        self.caught_up = true;
        for name in std::mem::take(&mut self.recovered) {
            self.place(&name, now_ms);
        }
        self.start(now_ms, &mut actions);
        actions
    }

    /// Time has passed. `full` says that the prefetch is used up, so that other lanes may be kept out.
    pub fn tick(&mut self, now_ms: i64, full: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((due_ms, name)) = self.timers.pop_first() {
            if due_ms > now_ms {
                self.timers.insert((due_ms, name));
                break;
            }
            if let Some(lane) = self.lanes.get_mut(&name) {
                lane.place = Place::None;
            }
            self.place(&name, now_ms);
        }
        if full {
            self.spill(now_ms, &mut actions);
        }
        self.start(now_ms, &mut actions);
        actions
    }
}

#[cfg(test)]
impl Lanes {
    /// Whether nothing is remembered of whatever was.
    fn is_forgotten(&self) -> bool {
        let lines = self.turn.len() + self.timers.len() + self.suspects.len() + self.starved.len();
        let counts = self.running + self.busy + self.lots + self.suspects_running;
        self.lanes.is_empty() && self.channels.is_empty() && self.keys.is_empty() && lines + counts == 0
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
