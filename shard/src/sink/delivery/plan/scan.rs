//! Passes through all that is open: at start, and from time to time over what came since, for what was stored or opened
//! again without anybody telling (a dead letter that was replayed, a task that was killed before it told).

use super::{
    Conversation, Plan,
    group::{Group, Item, Offer},
    read::{Want, items},
};
use crate::sink::{Destination, Scope, Stored};

/// How many events are read at once.
const PAGE: usize = 256;

/// The passes through what is open for a destination.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) destination: Destination,
    /// Every open event up to here was seen: a group that is not known has none of them, and one that isn't behind has
    /// looked at them.
    pub(super) to: u64,
    /// At start: nothing of this destination is known before it has ended, and pushes are left to it.
    first: bool,
    pub(super) done: bool,
}

impl Scan {
    pub(super) fn first(destination: Destination) -> Self {
        Self { destination, to: 0, first: true, done: false }
    }
}

impl Plan {
    /// Looks for what nobody told of.
    pub(in super::super) fn rescan(&mut self) {
        for n in 0..self.scans.len() {
            let destination = self.scans[n].destination;
            self.scans[n].done = false;
            self.now_stale(&Want::Scan(destination));
        }
    }

    pub(super) fn scan(&mut self) -> Option<(Want, Scope, u64, usize)> {
        let scan = self.scans.iter().find(|scan| !scan.done)?;
        Some((Want::Scan(scan.destination), Scope::Destination(scan.destination), scan.to, PAGE))
    }

    /// `pushed` is the last position that had been pushed when the page was asked for.
    pub(super) fn scanned(&mut self, destination: Destination, page: Vec<Stored>, last: bool, pushed: u64) {
        let Some(scan) = self.scans.iter_mut().find(|scan| scan.destination == destination) else { return };
        let (first, before) = (scan.first, scan.to);
        scan.to = page.last().map_or(scan.to, |stored| stored.position);
        if last {
            scan.to = scan.to.max(pushed);
            (scan.first, scan.done) = (false, true);
        }
        for (key, item) in items(page, destination) {
            if first {
                self.edit(key, |group, caps| {
                    if item.position > group.read_to && !group.behind {
                        let position = item.position;
                        match group.offer(item, caps) {
                            Offer::Full => group.behind = true,
                            Offer::Taken | Offer::Left => group.read_to = position,
                        }
                    }
                });
            } else {
                let settled = self.is_settled(destination, item.position);
                let known = self.groups.contains_key(&key);
                self.edit(key, |group, _| {
                    let seen_to = if known { before } else { item.position - 1 };
                    found_again(group, &item, settled, seen_to);
                });
            }
        }
    }

    pub(super) fn in_first_scan(&self, destination: Destination) -> bool {
        self.scans.iter().any(|scan| scan.destination == destination && scan.first)
    }

    pub(super) fn scanned_to(&self, destination: Destination) -> u64 {
        self.scans.iter().find(|scan| scan.destination == destination).map_or(0, |scan| scan.to)
    }
}

/// An open event that a later scan came by: known, or not told of.
fn found_again(group: &mut Group, item: &Item, settled: bool, seen_to: u64) {
    if item.position > group.read_to {
        group.is_behind(seen_to);
        return;
    }
    let conversation: Conversation = item.conversation();
    let known = group.lanes.get(&conversation).is_some_and(|lane| {
        lane.behind.is_some_and(|behind| behind < item.position)
            || lane.busy.is_some_and(|busy| busy.position == item.position)
            || lane.queue.iter().any(|held| held.position == item.position)
    });
    if !known && !settled {
        group.fall_behind(&conversation, item.position);
        group.go_on(&conversation);
    }
}
