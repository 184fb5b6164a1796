//! Passes through all that is open: at start, and when something was opened again behind everybody's back.

use super::{
    Conversation, Plan,
    group::{Group, Item, Offer},
    read::{Want, items},
};
use crate::sink::{Destination, Scope, Stored};

/// How many events are read at once.
const PAGE: usize = 256;

/// A pass through all that is open for a destination.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) destination: Destination,
    after: u64,
    /// At start: nothing of this destination is known before it has ended, and pushes are left to it.
    /// Otherwise it looks for what was opened again behind everybody's back.
    first: bool,
    pub(super) done: bool,
    /// Another pass was asked for while this one runs.
    again: bool,
}

impl Scan {
    pub(super) fn first(destination: Destination) -> Self {
        Self { destination, after: 0, first: true, done: false, again: false }
    }

    fn restart(&mut self) {
        *self = Self { first: false, ..Self::first(self.destination) };
    }
}

impl Plan {
    /// Looks through the outbox once more, for what was opened again (a dead letter that was replayed).
    pub(in super::super) fn rescan(&mut self) {
        for scan in &mut self.scans {
            if scan.done {
                scan.restart();
            } else {
                scan.again = true;
            }
        }
    }

    pub(super) fn scan(&mut self) -> Option<(Want, Scope, u64, usize)> {
        let scan = self.scans.iter().find(|scan| !scan.done)?;
        Some((Want::Scan(scan.destination), Scope::Destination(scan.destination), scan.after, PAGE))
    }

    pub(super) fn scanned(&mut self, destination: Destination, page: Vec<Stored>, last: bool) {
        let Some(scan) = self.scans.iter_mut().find(|scan| scan.destination == destination) else { return };
        let first = scan.first;
        scan.after = page.last().map_or(scan.after, |stored| stored.position);
        scan.done = last;
        if last && scan.again {
            scan.restart();
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
                self.edit(key, |group, _| found_again(group, &item, settled));
            }
        }
    }

    pub(super) fn in_first_scan(&self, destination: Destination) -> bool {
        self.scans.iter().any(|scan| scan.destination == destination && scan.first && !scan.done)
    }
}

/// An open event that a later scan came by: known, or opened again.
fn found_again(group: &mut Group, item: &Item, settled: bool) {
    if item.position > group.read_to {
        group.behind = true;
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
