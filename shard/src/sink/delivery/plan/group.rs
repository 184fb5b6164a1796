//! The lanes of one channel and destination.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{Conversation, Site};
use crate::event::Event;

/// How many events of a conversation are held at once.
pub(super) const LANE_WINDOW: usize = 8;

/// How much a group may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caps {
    pub(super) events: usize,
    pub(super) lanes: usize,
}

/// One channel and destination.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) lanes: HashMap<Conversation, Lane>,
    /// Lanes whose head can go.
    pub(super) ready: VecDeque<Conversation>,
    /// Lanes whose next events must be read.
    pub(super) hungry: VecDeque<Conversation>,
    /// Events held, those under way included.
    pub(super) events: usize,
    pub(super) in_flight: usize,
    /// Every open event up to here has been looked at.
    pub(super) read_to: u64,
    /// There may be events after `read_to` that only the outbox holds.
    pub(super) behind: bool,
    /// On the list of those with something to deliver, or waiting for a site.
    pub(super) in_turn: bool,
    pub(super) in_reads: bool,
    /// Whose turn it is to read: a hungry lane's, or the group's own.
    pub(super) lane_next: bool,
}

/// One conversation and destination.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) queue: VecDeque<Item>,
    pub(super) busy: Option<Busy>,
    /// Events after this position must be read before newer ones are taken.
    pub(super) behind: Option<u64>,
    pub(super) rest: Option<Rest>,
    /// The head that failed, and how often: the outbox may not know the last time yet.
    pub(super) failed: Option<(u64, u32)>,
    /// How often the head had to wait for its channel to be known.
    pub(super) waits: u32,
    in_ready: bool,
    in_hungry: bool,
}

/// A loaded event.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) position: u64,
    pub(super) event: Arc<Event>,
    pub(super) failures: u32,
    pub(super) stored_ms: i64,
}

/// An attempt under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Busy {
    pub(super) position: u64,
    pub(super) failures: u32,
    pub(super) stored_ms: i64,
    pub(super) site: Site,
}

/// A wait before the next attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    pub(super) since: Duration,
    /// The site that was down when it failed.
    pub(super) down: Option<u64>,
}

/// What became of an event that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    /// It is held.
    Taken,
    /// Its lane will read it.
    Left,
    /// No room: the group is behind from here on.
    Full,
}

impl Item {
    pub(super) fn conversation(&self) -> Conversation {
        self.event.conversation.as_deref().map(Arc::from)
    }
}

impl Group {
    /// Takes an event that is the next one after `read_to`, if there is room.
    pub(super) fn offer(&mut self, item: Item, caps: Caps) -> Offer {
        let conversation = item.conversation();
        let lanes = self.lanes.len();
        match self.lanes.get_mut(&conversation) {
            Some(lane) if lane.behind.is_some() => return Offer::Left,
            Some(lane) if lane.queue.len() >= LANE_WINDOW => {
                lane.behind = Some(item.position - 1);
                return Offer::Left;
            }
            None if lanes >= caps.lanes => return Offer::Full,
            _ => {}
        }
        if self.events >= caps.events {
            return Offer::Full;
        }
        self.hold(conversation, item);
        Offer::Taken
    }

    /// There is something that only the outbox holds. Open events up to `seen_to` have been looked at, if it was not behind.
    pub(super) fn is_behind(&mut self, seen_to: u64) {
        if !self.behind {
            self.behind = true;
            self.read_to = self.read_to.max(seen_to);
        }
    }

    /// Puts an event at the end of its lane.
    pub(super) fn hold(&mut self, conversation: Conversation, item: Item) {
        self.events += 1;
        self.lanes.entry(conversation.clone()).or_default().queue.push_back(item);
        self.go_on(&conversation);
    }

    /// Takes the next head out, to be delivered.
    pub(super) fn take(&mut self, site: Site) -> Option<(Conversation, Item)> {
        while let Some(conversation) = self.ready.pop_front() {
            let Some(lane) = self.lanes.get_mut(&conversation) else { continue };
            lane.in_ready = false;
            if lane.busy.is_some() {
                continue;
            }
            let Some(item) = lane.queue.pop_front() else {
                self.go_on(&conversation);
                continue;
            };
            let Item { position, failures, stored_ms, .. } = item;
            lane.busy = Some(Busy { position, failures, stored_ms, site });
            self.in_flight += 1;
            return Some((conversation, item));
        }
        None
    }

    /// Puts a lane where it belongs now; one that holds nothing and misses nothing is forgotten.
    pub(super) fn go_on(&mut self, conversation: &Conversation) {
        let Some(lane) = self.lanes.get_mut(conversation) else { return };
        if lane.busy.is_some() || lane.rest.is_some() {
            return;
        }
        if !lane.queue.is_empty() {
            if !lane.in_ready {
                lane.in_ready = true;
                self.ready.push_back(conversation.clone());
            }
        } else if lane.behind.is_some() {
            if !lane.in_hungry {
                lane.in_hungry = true;
                self.hungry.push_back(conversation.clone());
            }
        } else {
            self.lanes.remove(conversation);
        }
    }

    /// Drops what a lane holds and lets it read that again, and everything from `position` on.
    pub(super) fn fall_behind(&mut self, conversation: &Conversation, position: u64) {
        let lane = self.lanes.entry(conversation.clone()).or_default();
        self.events -= lane.queue.len();
        let held = lane.queue.drain(..).map(|item| item.position).min().unwrap_or(position);
        let before = position.min(held) - 1;
        lane.behind = Some(lane.behind.map_or(before, |behind| behind.min(before)));
    }

    /// Whether there is something to read, and room for it.
    pub(super) fn wants_read(&self, caps: Caps) -> bool {
        self.wants_lane(caps) || self.wants_more(caps)
    }

    pub(super) fn wants_lane(&self, caps: Caps) -> bool {
        !self.hungry.is_empty() && self.events < caps.events
    }

    pub(super) fn wants_more(&self, caps: Caps) -> bool {
        self.behind && self.events * 2 <= caps.events && self.lanes.len() < caps.lanes
    }

    /// The next lane to read for, and from where on.
    pub(super) fn next_hungry(&mut self) -> Option<(Conversation, u64, usize)> {
        while let Some(conversation) = self.hungry.pop_front() {
            let Some(lane) = self.lanes.get_mut(&conversation) else { continue };
            lane.in_hungry = false;
            let idle = lane.queue.is_empty() && lane.busy.is_none() && lane.rest.is_none();
            if let (true, Some(behind)) = (idle, lane.behind) {
                // After a failure only the head is wanted: what comes after it would be dropped should it fail again.
                let limit = if lane.failed.is_some() || lane.waits > 0 { 1 } else { LANE_WINDOW };
                return Some((conversation, behind, limit));
            }
        }
        None
    }
}
