//! How attempts end: what is stored about them, and when their lane goes on.

use std::time::Duration;

use super::{
    DOWN_AFTER, LaneKey, Now, Plan, Site,
    group::{Busy, Rest},
};
use crate::{identity::ChannelId, sink::Destination};

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Outcome {
    /// It was taken, or there is nothing to do about it.
    Done,
    /// Not now.
    Failed {
        error: String,
        /// The receiver's own word on when.
        retry_after: Option<Duration>,
        /// It was answered, but with something that can't be understood: the site is alive.
        malformed: bool,
    },
    /// Never.
    Refused { error: String },
    /// It can't be said yet where it goes; nobody's failure.
    Unknown,
}

/// What is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Write {
    Delivered,
    Failed {
        error: String,
    },
    /// The last failure, if there was one, and why it ends here.
    Buried {
        error: Option<String>,
        reason: String,
    },
}

/// What came of an attempt's end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Settled {
    /// To be stored; then [`Plan::written`].
    pub(in super::super) write: Option<Write>,
    /// Its site is down since now (`true`), or up again.
    pub(in super::super) down: Option<bool>,
}

/// How soon after a failure an event may be tried again since its site came up.
const SOONEST: Duration = Duration::from_secs(5);

impl Plan {
    /// An attempt has ended. `roll`, in 0..1, spreads the retries.
    pub(in super::super) fn finish(&mut self, lane: &LaneKey, outcome: Outcome, now: Now, roll: f64) -> Settled {
        let busy = self.edit(lane.group, |group, _| {
            let busy = group.lanes.get_mut(&lane.conversation)?.busy.take()?;
            group.in_flight -= 1;
            group.events -= 1;
            Some(busy)
        });
        let Some(busy) = busy else { return Settled::default() };
        self.in_flight -= 1;
        let mut settled = Settled { down: self.judge_site(busy.site, &outcome, now), write: None };
        if let Site::Remote(id) = busy.site {
            self.leave_site(id);
        }
        let (write, wait) = self.decide(lane, busy, outcome, now, roll);
        match wait {
            Some(wait) => self.rest(lane, busy, matches!(write, Some(Write::Failed { .. })), wait, now),
            None => {
                self.unwritten.insert((lane.group.0, busy.position));
                self.edit(lane.group, |group, _| {
                    if let Some(lane) = group.lanes.get_mut(&lane.conversation) {
                        (lane.failed, lane.waits) = (None, 0);
                    }
                    group.go_on(&lane.conversation);
                });
            }
        }
        settled.write = write;
        settled
    }

    /// What [`Plan::finish`] gave to be stored for good (delivered, buried) is stored.
    pub(in super::super) fn written(&mut self, destination: Destination, position: u64) {
        if self.unwritten.remove(&(destination, position)) && self.loading.is_some() {
            self.ghosts.insert((destination, position));
        }
    }

    /// A channel's handler was changed, or became known: what waits for it is tried at once.
    pub(in super::super) fn handler_changed(&mut self, channel: ChannelId, now: Now) {
        let group = (Destination::Handler, channel);
        self.hurry(now.mono, |lane, _| (lane.group == group).then_some(Duration::ZERO));
    }

    /// What is stored of it, and how long its lane rests before it is tried again.
    fn decide(
        &mut self,
        lane: &LaneKey,
        busy: Busy,
        outcome: Outcome,
        now: Now,
        roll: f64,
    ) -> (Option<Write>, Option<Duration>) {
        let old = now.wall_ms.saturating_sub(busy.stored_ms) >= self.backoff.give_up_after.as_millis() as i64;
        let failures = busy.failures + 1;
        match outcome {
            Outcome::Done => (Some(Write::Delivered), None),
            Outcome::Refused { error } => (Some(Write::Buried { reason: error.clone(), error: Some(error) }), None),
            Outcome::Failed { error, retry_after, malformed } => {
                let tried = failures.max(self.streak(busy.site));
                let hopeless = malformed && failures >= self.backoff.malformed_limit;
                if hopeless || (old && tried >= self.backoff.least_failures) {
                    let reason = format!("given up after {failures} attempts: {error}");
                    return (Some(Write::Buried { error: Some(error), reason }), None);
                }
                let wait = match retry_after {
                    Some(asked) => asked.max(self.backoff.wait(1, roll)),
                    None => self.backoff.wait(failures, roll),
                };
                (Some(Write::Failed { error }), Some(wait))
            }
            Outcome::Unknown => {
                let waits = self.edit(lane.group, |group, _| {
                    group.lanes.get_mut(&lane.conversation).map_or(1, |lane| {
                        lane.waits = lane.waits.saturating_add(1);
                        lane.waits
                    })
                });
                if old && waits >= self.backoff.least_failures {
                    let reason = "its channel is not known".to_owned();
                    return (Some(Write::Buried { error: None, reason }), None);
                }
                (None, Some(self.backoff.wait(waits, roll)))
            }
        }
    }

    fn rest(&mut self, lane: &LaneKey, busy: Busy, failed: bool, wait: Duration, now: Now) {
        let until = now.mono + wait;
        let down = match busy.site {
            Site::Remote(id) if self.sites.get(&id).is_some_and(|site| site.is_down()) => Some(id),
            _ => None,
        };
        self.edit(lane.group, |group, _| {
            group.fall_behind(&lane.conversation, busy.position);
            if let Some(lane) = group.lanes.get_mut(&lane.conversation) {
                lane.failed = Some((busy.position, busy.failures + u32::from(failed)));
                lane.rest = Some(Rest { since: now.mono, down });
                if failed {
                    lane.waits = 0;
                }
            }
        });
        self.timers.insert((until, lane.clone()));
    }

    /// Lets the lanes whose time has come read their head again.
    pub(super) fn wake(&mut self, now: Now) {
        while let Some((due, _)) = self.timers.first() {
            if *due > now.mono {
                return;
            }
            let Some((_, lane)) = self.timers.pop_first() else { return };
            self.edit(lane.group, |group, _| {
                if let Some(resting) = group.lanes.get_mut(&lane.conversation) {
                    resting.rest = None;
                }
                group.go_on(&lane.conversation);
            });
        }
    }

    fn streak(&self, site: Site) -> u32 {
        match site {
            Site::Local => 0,
            Site::Remote(id) => self.sites.get(&id).map_or(0, |site| site.streak),
        }
    }

    fn judge_site(&mut self, site: Site, outcome: &Outcome, now: Now) -> Option<bool> {
        let Site::Remote(id) = site else { return None };
        let state = self.sites.get_mut(&id)?;
        match outcome {
            Outcome::Failed { malformed: false, .. } => {
                state.streak = state.streak.saturating_add(1);
                (state.streak == DOWN_AFTER).then_some(true)
            }
            Outcome::Unknown => None,
            Outcome::Done | Outcome::Refused { .. } | Outcome::Failed { .. } => {
                let was_down = state.is_down();
                state.streak = 0;
                if was_down {
                    self.hurry(now.mono, |_, rest| (rest.down == Some(id)).then_some(SOONEST));
                }
                was_down.then_some(false)
            }
        }
    }

    /// Brings rests forward: `soonest` says for which lanes, and how long after their failure at the earliest.
    fn hurry(&mut self, now: Duration, soonest: impl Fn(&LaneKey, &Rest) -> Option<Duration>) {
        let mut moved = Vec::new();
        for (due, key) in &self.timers {
            let rest = self.groups.get(&key.group).and_then(|group| group.lanes.get(&key.conversation)?.rest);
            let Some(rest) = rest else { continue };
            let Some(wait) = soonest(key, &rest) else { continue };
            let until = (rest.since + wait).max(now);
            if until < *due {
                moved.push((*due, until, key.clone()));
            }
        }
        for (due, until, key) in moved {
            let group = self.groups.get_mut(&key.group);
            let lane = group.and_then(|group| group.lanes.get_mut(&key.conversation));
            if let Some(rest) = lane.and_then(|lane| lane.rest.as_mut()) {
                rest.down = None;
            }
            let entry = (due, key);
            self.timers.remove(&entry);
            self.timers.insert((until, entry.1));
        }
    }
}
