//! What is slow or dead together: a limit for all attempts to one host, and the memory of how it fares.

use std::collections::VecDeque;

use super::{DOWN_AFTER, GroupKey, OF_DOWN_SITE, Plan};

/// One site.
#[derive(Debug, Default)]
pub(super) struct SiteState {
    pub(super) in_flight: usize,
    /// Failures since the last success.
    pub(super) streak: u32,
    /// Groups that wait for room.
    pub(super) waiting: VecDeque<GroupKey>,
}

impl SiteState {
    pub(super) fn room(&self, limit: usize) -> usize {
        let limit = if self.is_down() { limit.min(OF_DOWN_SITE) } else { limit };
        limit.saturating_sub(self.in_flight)
    }

    pub(super) fn has_room(&self, limit: usize) -> bool {
        self.room(limit) > 0
    }

    pub(super) fn is_down(&self) -> bool {
        self.streak >= DOWN_AFTER
    }
}

impl Plan {
    /// An attempt at a site has ended.
    pub(super) fn leave_site(&mut self, id: u64) {
        if let Some(site) = self.sites.get_mut(&id) {
            site.in_flight -= 1;
            if !site.waiting.is_empty() {
                self.freed.push(id);
            } else if site.in_flight == 0 && site.streak == 0 {
                self.sites.remove(&id);
            }
        }
    }

    /// Lets as many groups as there is room for have their turn at sites that were full. A group that turns out to want
    /// nothing there leaves its room to the next one: hence it is asked again until nobody moves.
    pub(super) fn call_waiting(&mut self) -> bool {
        if self.in_flight >= self.limits.in_flight || self.unwritten.len() >= self.limits.unwritten {
            return false;
        }
        let mut moved = false;
        let mut still = Vec::new();
        for id in std::mem::take(&mut self.freed) {
            let Some(site) = self.sites.get_mut(&id) else { continue };
            let room = site.room(self.limits.of_site).min(site.waiting.len());
            for key in site.waiting.drain(..room) {
                self.turn.push_back(key);
                moved = true;
            }
            if !site.waiting.is_empty() && !still.contains(&id) {
                still.push(id);
            }
        }
        self.freed = still;
        moved
    }
}
