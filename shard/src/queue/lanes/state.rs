//! What is known of one lane, and of one channel.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::Arrival;
use crate::{
    identity::ChannelId,
    job::{JobId, Lane},
};

/// A place in the order of arrival. The second number tells those apart that were parked and come in before a barrier.
pub(super) type Order = (u64, u64);

#[derive(Debug)]
pub(super) struct Item {
    pub(super) arrival: Arrival,
    pub(super) order: Order,
    /// Place in the lane.
    pub(super) seq: u64,
    pub(super) since_ms: i64,
}

/// Where a lane stands that has nothing at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Place {
    /// Nowhere: it is at work, a lot is being fetched, or there is nothing to do.
    #[default]
    None,
    /// In its channel's line of lanes with work in memory.
    Ready,
    /// In its channel's line of lanes with parked work that is due.
    Due,
    /// Its time has not come.
    Timer,
    /// A barrier, or another suspect, comes first.
    Blocked,
}

#[derive(Debug, Default)]
pub(super) struct LaneState {
    pub(super) waiting: VecDeque<Item>,
    pub(super) running: Option<Item>,
    pub(super) next_seq: u64,
    pub(super) aside: Option<Aside>,
    pub(super) place: Place,
    /// Parked work of it is in memory.
    pub(super) lot: bool,
}

impl LaneState {
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }
}

/// A lane of which something is, or may be, parked.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) head: JobId,
    pub(super) due_ms: i64,
    pub(super) reserved_to: u64,
    /// A lot is being fetched.
    pub(super) asked: bool,
    /// Parks ordered since the last fetch was: it may have missed them.
    pub(super) parked_since_fetch: bool,
    /// The fact is being cleared.
    pub(super) clearing: bool,
    /// The fact is of an earlier life, whose head may still be in the work queue.
    pub(super) recovered: bool,
    /// It only waits for its channel: it may go on before it is due.
    pub(super) gives_way: bool,
}

/// A barrier that has not finished.
#[derive(Debug)]
pub(super) struct Barrier {
    pub(super) lane: Lane,
    /// Earlier work that lies parked without having to wait: for each lane, up to which place.
    pub(super) cuts: HashMap<Lane, u64>,
}

#[derive(Debug, Default)]
pub(super) struct ChannelState {
    /// All that is in memory.
    pub(super) open: BTreeSet<Order>,
    pub(super) barriers: BTreeMap<Order, Barrier>,
    /// Lanes that a barrier holds.
    pub(super) blocked: BTreeSet<Lane>,
    /// Lanes of which something is parked.
    pub(super) aside: BTreeSet<Lane>,
    pub(super) ready: VecDeque<Lane>,
    pub(super) due: VecDeque<Lane>,
    /// Deliveries at work, and lots being fetched.
    pub(super) busy: usize,
    /// Lanes with parked work in memory.
    pub(super) lots: usize,
    /// It is in the line of channels.
    pub(super) in_turn: bool,
    /// A lane with parked work comes next, when both kinds are there.
    pub(super) due_next: bool,
    /// Its backlog has kept others out: what comes for it while it has its share at work is parked at once.
    pub(super) crowds: bool,
}

impl ChannelState {
    pub(super) fn is_over(&self) -> bool {
        self.open.is_empty() && self.aside.is_empty() && self.busy == 0 && !self.in_turn && self.blocked.is_empty()
    }

    /// Whether a lane's parked work may be fetched: not while a barrier comes first.
    pub(super) fn may_fetch(&self, lane: &Lane) -> bool {
        self.barriers.first_key_value().is_none_or(|(_, barrier)| barrier.cuts.contains_key(lane))
    }

    /// Whether an item may start, as far as barriers go.
    pub(super) fn may_start(&self, item: &Item) -> bool {
        match self.barriers.first_key_value() {
            None => true,
            Some((order, barrier)) if *order == item.order => {
                barrier.cuts.is_empty() && self.open.first() == Some(order)
            }
            Some((order, _)) => item.order < *order,
        }
    }

    /// The lane of a barrier that nothing holds any more.
    pub(super) fn freed_barrier(&self) -> Option<Lane> {
        let (order, barrier) = self.barriers.first_key_value()?;
        (barrier.cuts.is_empty() && self.open.first() == Some(order)).then(|| barrier.lane.clone())
    }
}

pub(super) type Channels = HashMap<ChannelId, ChannelState>;
