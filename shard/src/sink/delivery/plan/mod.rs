//! What is delivered next, to whom, and what is read from the outbox for it: pure.
//!
//! Events wait in *lanes*, one for each conversation and destination; a lane's head is tried until it is delivered or
//! buried, and only then the next. Lanes of one channel and destination form a *group*; what is slow or dead together
//! (a scheme, host and port) is a *site*. Only events that are about to go are held in memory:
//!
//! | a lane is | it holds | it goes on when |
//! |---|---|---|
//! | ready | up to `lane_window` events | its turn comes within the limits of its group and site |
//! | busy | the same, the first one out | the attempt ends |
//! | resting | a position and a time, no event | the time has come; then it is hungry |
//! | hungry | a position, no event | its next events are read from the outbox |
//!
//! An event for which there is no room marks its lane (or its whole group, for a new lane) as *behind*: from there on
//! everything comes from the outbox, in order, until it is read to its end. `read_to` and `behind` keep the invariant that
//! makes this safe: every open event of a group up to `read_to` is in a lane's memory or after that lane's `behind`; no
//! event after `read_to` is.
//!
//! From time to time what came since the last look is *scanned*, for events that nobody told of. A group that is not known
//! has nothing open up to where the scan has come.
//!
//! One read is under way at a time. What was pushed while it ran may be missing in it: such a read is *stale* and does
//! not end anything.

mod group;
mod read;
mod scan;
mod settle;
mod site;

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

pub(super) use self::settle::{Outcome, Write};
use self::{
    group::{Caps, Group},
    read::Loading,
    scan::Scan,
    site::SiteState,
};
use super::backoff::Backoff;
use crate::{
    event::Event,
    identity::ChannelId,
    sink::{Destination, Scope},
};

/// A conversation of a channel; `None` for events without one.
pub(super) type Conversation = Option<Arc<str>>;
pub(super) type GroupKey = (Destination, ChannelId);

/// What is delivered one after another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LaneKey {
    pub(super) group: GroupKey,
    pub(super) conversation: Conversation,
}

/// Both clocks: one for waits, one for ages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) mono: Duration,
    pub(super) wall_ms: i64,
}

/// What is slow or dead together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Site {
    /// Nothing outside this process.
    Local,
    /// A host, by its number.
    Remote(u64),
}

/// One event to be delivered now.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) lane: LaneKey,
    pub(super) position: u64,
    pub(super) event: Arc<Event>,
}

/// What the loop shall do.
#[derive(Debug)]
pub(super) enum Action {
    /// Deliver, and tell by [`Plan::finish`].
    Deliver(Attempt),
    /// Read, and tell by [`Plan::loaded`] or [`Plan::load_failed`].
    Load { scope: Scope, after: u64, limit: usize },
}

/// How much goes on at once, and how much is held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Attempts under way.
    pub(super) in_flight: usize,
    /// Of them to one site.
    pub(super) of_site: usize,
    /// Of them for one channel and destination.
    pub(super) of_channel: usize,
    /// Events in memory for one destination, shared out between the channels that have any.
    pub(super) window: usize,
    /// Lanes in memory for one destination, shared out in the same way.
    pub(super) lanes: usize,
    /// Outcomes that are not stored yet.
    pub(super) unwritten: usize,
}

/// A site with this many failures in a row is down: fewer attempts are made at a time, and what fails now is tried again
/// as soon as it is up.
pub(super) const DOWN_AFTER: u32 = 3;
const OF_DOWN_SITE: usize = 8;

/// The whole state.
#[derive(Debug)]
pub(super) struct Plan {
    limits: Limits,
    backoff: Backoff,
    groups: HashMap<GroupKey, Group>,
    sites: HashMap<u64, SiteState>,
    /// Sites that have room again while groups wait for them.
    freed: Vec<u64>,
    /// Groups with something to deliver.
    turn: VecDeque<GroupKey>,
    /// Groups with something to read.
    reads: VecDeque<GroupKey>,
    scans: Vec<Scan>,
    scan_next: bool,
    loading: Option<Loading>,
    no_load_before: Duration,
    timers: BTreeSet<(Duration, LaneKey)>,
    /// The last `seq` pushed for each channel.
    heard: HashMap<ChannelId, u64>,
    /// The last position pushed.
    pushed: u64,
    in_flight: usize,
    /// Settled, but not yet so in the outbox.
    unwritten: HashSet<(Destination, u64)>,
    /// Settled and stored while a read was under way that may show them as open.
    ghosts: HashSet<(Destination, u64)>,
    held: HashMap<Destination, Held>,
    stopped: bool,
}

impl Plan {
    /// Knows nothing yet: it first reads what the outbox holds.
    pub(super) fn new(limits: Limits, backoff: Backoff) -> Self {
        Self {
            limits,
            backoff,
            groups: HashMap::new(),
            sites: HashMap::new(),
            freed: Vec::new(),
            turn: VecDeque::new(),
            reads: VecDeque::new(),
            scans: vec![Scan::first(Destination::Handler), Scan::first(Destination::Endpoint)],
            scan_next: true,
            loading: None,
            no_load_before: Duration::ZERO,
            timers: BTreeSet::new(),
            heard: HashMap::new(),
            pushed: 0,
            in_flight: 0,
            unwritten: HashSet::new(),
            ghosts: HashSet::new(),
            held: HashMap::new(),
            stopped: false,
        }
    }

    /// What can be done now. `route` says where a group's events go at this moment.
    pub(super) fn poll(&mut self, now: Now, route: &mut dyn FnMut(GroupKey) -> Site, actions: &mut Vec<Action>) {
        self.wake(now);
        if self.stopped {
            return;
        }
        self.call_waiting();
        loop {
            self.deliver(route, actions);
            if !self.call_waiting() {
                break;
            }
        }
        self.load(now, actions);
    }

    /// When to poll again, should nothing happen before.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let timer = self.timers.first().map(|(due, _)| *due);
        let read = (self.loading.is_none() && self.has_reads()).then_some(self.no_load_before);
        [timer, read].into_iter().flatten().min()
    }

    /// Nothing new is begun from here on.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    fn deliver(&mut self, route: &mut dyn FnMut(GroupKey) -> Site, actions: &mut Vec<Action>) {
        while let Some(key) = self.turn.pop_front() {
            if self.in_flight >= self.limits.in_flight || self.unwritten.len() >= self.limits.unwritten {
                self.turn.push_front(key);
                return;
            }
            let site = route(key);
            let waits = match site {
                Site::Local => false,
                Site::Remote(id) => !self.sites.entry(id).or_default().has_room(self.limits.of_site),
            };
            if waits {
                if let Site::Remote(id) = site {
                    self.sites.entry(id).or_default().waiting.push_back(key);
                }
                continue;
            }
            let attempt = self.edit(key, |group, _| {
                group.in_turn = false;
                group.take(site).map(|(conversation, item)| Attempt {
                    lane: LaneKey { group: key, conversation },
                    position: item.position,
                    event: item.event,
                })
            });
            let Some(attempt) = attempt else { continue };
            self.in_flight += 1;
            if let Site::Remote(id) = site {
                self.sites.entry(id).or_default().in_flight += 1;
            }
            actions.push(Action::Deliver(attempt));
        }
    }

    /// Changes a group, and sees to it that whatever it wants now is on the list for it.
    fn edit<R>(&mut self, key: GroupKey, change: impl FnOnce(&mut Group, Caps) -> R) -> R {
        let caps = self.caps(key.0);
        let group = self.groups.entry(key).or_default();
        let held = self.held.entry(key.0).or_default();
        held.forget(group);
        let result = change(group, caps);
        held.count(group);
        if !group.in_turn && group.in_flight < self.limits.of_channel && !group.ready.is_empty() {
            group.in_turn = true;
            self.turn.push_back(key);
        }
        if !group.in_reads && group.wants_read(caps) {
            group.in_reads = true;
            self.reads.push_back(key);
        }
        result
    }

    /// A group's share of what may be held. Nobody's share is so small that others could keep it from going on.
    fn caps(&self, destination: Destination) -> Caps {
        let held = self.held.get(&destination).copied().unwrap_or_default();
        let share = |limit: usize, used: usize, groups: usize| if used < limit { limit / groups.max(1) } else { 0 };
        Caps {
            events: share(self.limits.window, held.events, held.with_events).clamp(LEAST_EVENTS, MOST_EVENTS),
            lanes: share(self.limits.lanes, held.lanes, held.with_lanes).max(LEAST_LANES),
        }
    }
}

const LEAST_EVENTS: usize = 4;
const MOST_EVENTS: usize = 32;
const LEAST_LANES: usize = 8;

/// What all groups of a destination hold together.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    events: usize,
    lanes: usize,
    with_events: usize,
    with_lanes: usize,
}

impl Held {
    fn count(&mut self, group: &Group) {
        self.events += group.events;
        self.lanes += group.lanes.len();
        self.with_events += usize::from(group.events > 0);
        self.with_lanes += usize::from(!group.lanes.is_empty());
    }

    fn forget(&mut self, group: &Group) {
        self.events -= group.events;
        self.lanes -= group.lanes.len();
        self.with_events -= usize::from(group.events > 0);
        self.with_lanes -= usize::from(!group.lanes.is_empty());
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
