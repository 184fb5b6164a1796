//! Where events come from: pushed when they are stored, or read from the outbox.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::{
    Action, GroupKey, LaneKey, Now, Plan,
    group::{Item, Offer},
};
use crate::sink::{Destination, Scope, Stored};

/// How many events of a channel are read at once.
const CHANNEL_PAGE: usize = 32;
const LOAD_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Who wants to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Want {
    Scan(Destination),
    Group(GroupKey),
    Lane(LaneKey),
}

/// A read under way.
#[derive(Debug)]
pub(super) struct Loading {
    want: Want,
    limit: usize,
    /// The last position that had been pushed when it began: it shows everything up to there.
    pushed: u64,
    /// Something was stored since that it may not show.
    stale: bool,
}

impl Plan {
    /// An event was stored just now. Events of a channel come in the order of their `seq`, or else are read.
    pub(in super::super) fn push(&mut self, stored: Stored) {
        let channel = stored.event.channel_id;
        let heard = self.heard.entry(channel).or_default();
        let gap = stored.event.seq != *heard + 1;
        *heard = stored.event.seq.max(*heard);
        let Stored { position, stored_ms, event, open } = stored;
        self.pushed = self.pushed.max(position);
        let event = Arc::new(event);
        for destination in [Destination::Handler, Destination::Endpoint] {
            let key = (destination, channel);
            let failures = open.iter().find(|(to, _)| *to == destination).map(|(_, failures)| *failures);
            if self.in_first_scan(destination) {
                if failures.is_some() {
                    self.now_stale(&Want::Scan(destination));
                }
                continue;
            }
            let known = self.groups.contains_key(&key);
            if (gap && known) || (failures.is_some() && !known) {
                // Something before it is still on its way here, or may be: only the outbox knows their order.
                let seen_to = self.scanned_to(destination);
                self.edit(key, |group, _| group.is_behind(seen_to));
                self.now_stale(&Want::Group(key));
            }
            if let (Some(failures), true) = (failures, known) {
                self.take_pushed(key, Item { position, event: event.clone(), failures, stored_ms });
            }
        }
    }

    fn take_pushed(&mut self, key: GroupKey, item: Item) {
        let lane = Want::Lane(LaneKey { group: key, conversation: item.conversation() });
        let left = self.edit(key, |group, caps| {
            if item.position <= group.read_to {
                return None;
            }
            if group.behind {
                return Some(Want::Group(key));
            }
            let position = item.position;
            match group.offer(item, caps) {
                Offer::Full => group.behind = true,
                taken => {
                    group.read_to = position;
                    return (taken == Offer::Left).then_some(lane);
                }
            }
            None
        });
        if let Some(want) = left {
            self.now_stale(&want);
        }
    }

    /// What was asked for. `page` holds events of that scope, oldest first, at most as many as asked for.
    pub(in super::super) fn loaded(&mut self, page: Vec<Stored>) {
        let Some(loading) = self.loading.take() else { return };
        let last = page.len() < loading.limit && !loading.stale;
        match loading.want {
            Want::Scan(destination) => self.scanned(destination, page, last, loading.pushed),
            Want::Group(key) => self.group_read(key, page, last),
            Want::Lane(lane) => self.lane_read(lane, page, last),
        }
        self.ghosts.clear();
    }

    /// It could not be read: it will be tried again.
    pub(in super::super) fn load_failed(&mut self, now: Now) {
        self.no_load_before = now.mono + LOAD_AGAIN_AFTER;
        let Some(loading) = self.loading.take() else { return };
        self.ghosts.clear();
        match loading.want {
            Want::Scan(_) => {}
            Want::Group(key) => self.edit(key, |_, _| ()),
            Want::Lane(LaneKey { group, conversation }) => self.edit(group, |group, _| group.go_on(&conversation)),
        }
    }

    pub(super) fn has_reads(&self) -> bool {
        !self.reads.is_empty() || self.scans.iter().any(|scan| !scan.done)
    }

    /// Begins a read, if there is none and somebody wants one.
    pub(super) fn load(&mut self, now: Now, actions: &mut Vec<Action>) {
        if self.loading.is_some() || now.mono < self.no_load_before {
            return;
        }
        self.scan_next = !self.scan_next || self.reads.is_empty();
        let next =
            if self.scan_next { self.scan().or_else(|| self.read()) } else { self.read().or_else(|| self.scan()) };
        let Some((want, scope, after, limit)) = next else { return };
        self.loading = Some(Loading { want, limit, pushed: self.pushed, stale: false });
        actions.push(Action::Load { scope, after, limit });
    }

    fn read(&mut self) -> Option<(Want, Scope, u64, usize)> {
        while let Some(key) = self.reads.pop_front() {
            let (destination, channel) = key;
            let caps = self.caps(destination);
            let group = self.groups.get_mut(&key)?;
            // It stays on no list while it reads; what it wants afterwards is seen when the read has ended.
            group.in_reads = false;
            group.lane_next = !group.lane_next;
            let (lanes, more) = (group.wants_lane(caps), group.wants_more(caps));
            if lanes
                && (group.lane_next || !more)
                && let Some((conversation, after, limit)) = group.next_hungry()
            {
                let scope = Scope::Conversation(destination, channel, conversation.clone());
                return Some((Want::Lane(LaneKey { group: key, conversation }), scope, after, limit));
            }
            if more {
                return Some((Want::Group(key), Scope::Channel(destination, channel), group.read_to, CHANNEL_PAGE));
            }
        }
        None
    }

    fn group_read(&mut self, key: GroupKey, page: Vec<Stored>, last: bool) {
        let page = items(page, key.0);
        self.edit(key, |group, caps| {
            for (_, item) in page {
                if item.position <= group.read_to {
                    continue;
                }
                let position = item.position;
                if group.offer(item, caps) == Offer::Full {
                    return;
                }
                group.read_to = position;
            }
            group.behind = !last;
        });
    }

    fn lane_read(&mut self, lane: LaneKey, page: Vec<Stored>, last: bool) {
        let LaneKey { group: key, conversation } = lane;
        let positions = page.iter().map(|stored| stored.position);
        let settled: HashSet<u64> = positions.filter(|position| self.is_settled(key.0, *position)).collect();
        let page = items(page, key.0);
        self.edit(key, |group, _| {
            let Some(lane) = group.lanes.get_mut(&conversation) else { return };
            let mut ended = last;
            let mut to = lane.behind.take();
            for (_, mut item) in page {
                if item.position > group.read_to {
                    // The group will come to it in its own order.
                    ended = true;
                    break;
                }
                to = Some(item.position);
                if settled.contains(&item.position) {
                    continue;
                }
                if let Some(lane) = group.lanes.get_mut(&conversation) {
                    match lane.failed {
                        Some((position, failures)) if position == item.position => {
                            item.failures = item.failures.max(failures);
                        }
                        _ => (lane.failed, lane.waits) = (None, 0),
                    }
                }
                group.hold(conversation.clone(), item);
            }
            if let Some(lane) = group.lanes.get_mut(&conversation) {
                lane.behind = if ended { None } else { to };
            }
            group.go_on(&conversation);
        });
    }

    pub(super) fn is_settled(&self, destination: Destination, position: u64) -> bool {
        self.unwritten.contains(&(destination, position)) || self.ghosts.contains(&(destination, position))
    }

    /// A read of theirs that is under way may not show what was stored just now.
    pub(super) fn now_stale(&mut self, want: &Want) {
        if let Some(loading) = self.loading.as_mut().filter(|loading| loading.want == *want) {
            loading.stale = true;
        }
    }
}

pub(super) fn items(page: Vec<Stored>, destination: Destination) -> impl Iterator<Item = (GroupKey, Item)> {
    page.into_iter().filter_map(move |Stored { position, stored_ms, event, open }| {
        let (_, failures) = open.into_iter().find(|(to, _)| *to == destination)?;
        let key = (destination, event.channel_id);
        Some((key, Item { position, event: Arc::new(event), failures, stored_ms }))
    })
}
