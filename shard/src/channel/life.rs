//! One channel's life cycle, decided: (state, event, now, chance) → (state, actions). No runtime, no clock, no I/O.
//!
//! | state        | meaning                                     | leaves by                                              | timer                      |
//! |--------------|---------------------------------------------|--------------------------------------------------------|----------------------------|
//! | Stopped      | not wanted (any more)                       | Start                                                  | none                       |
//! | Connecting   | first try since it is wanted or was kicked  | Up → Connected, Ended → by its reason                  | start delay                |
//! | Connected    | the platform answered                       | Ended → by its reason                                  | none                       |
//! | Reconnecting | it ended and may work again                 | Up → Connected, Ended → by its reason                  | 1 s … 5 min                |
//! | Replaced     | somebody else uses the identity, repeatedly | 30 s of Up → Connected                                 | 30 s … 5 min, for ever     |
//! | LoggedOut    | the credentials are dead                    | Kick, Restart (new token)                              | none                       |
//! | Banned       | until a known time, or not known            | Kick, Restart, its end                                 | its end, if known          |
//! | NeedsPairing | a device must be linked                     | Kick, Restart; while a code is shown: Up, Ended        | none                       |
//! | Parked       | set up wrongly, or refused too often        | Kick, Restart, a probe that gets through → Connected   | 5–10 min, or 30–33 min     |
//!
//! How an end is judged: `Transient` (also: nobody asked, yet it ended) backs off exponentially with jitter, but never
//! sooner than the platform said; it never parks, so that an hour without network heals by itself. `Rejected` backs off
//! the same way and parks after 20 in a row. The first `Replaced` is taken as the rest of a predecessor and retried at
//! once; from the second on the state says so, once, and retries go on for ever between 30 s and 5 min. A counter starts
//! again only after a connection that lasted 30 s: a brief `Up` proves nothing. `Fenced` and `Lost` end the life without
//! a word, since nothing may be written under a lease that is somebody else's.
//!
//! There is one timer and at most one connection; a second wish to connect joins the first.

use std::time::Duration;

use super::state::{Action, Event, Policy, State};
use crate::platform::Closed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Down,
    Dialing,
    Up { since: Duration },
    Closing { again: bool },
}

/// A channel's life.
#[derive(Debug, Clone)]
pub struct Life {
    policy: Policy,
    state: State,
    reason: Option<String>,
    link: Link,
    wanted: bool,
    lost: bool,
    armed: bool,
    failures: u32,
    replaced: u32,
    rejected: u32,
}

impl Life {
    /// A channel that nobody has asked for yet.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            state: State::Stopped,
            reason: None,
            link: Link::Down,
            wanted: false,
            lost: false,
            armed: false,
            failures: 0,
            replaced: 0,
            rejected: 0,
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Whether a timer is set.
    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Whether there is a connection, or a try.
    pub fn is_linked(&self) -> bool {
        self.link != Link::Down
    }

    /// What follows from an event. `chance` is uniform in 0..1.
    pub fn on(&mut self, event: Event, now: Duration, chance: f64) -> Vec<Action> {
        let mut out = Vec::new();
        match event {
            Event::Start { delay } => self.start(delay, &mut out),
            Event::Stop => self.stop(&mut out),
            Event::Lost => {
                self.lost = true;
                self.stop(&mut out);
            }
            Event::Kick if self.wanted && self.link == Link::Down => self.afresh(&mut out),
            Event::Restart { .. } if self.wanted && self.link == Link::Down => self.afresh(&mut out),
            Event::Restart { changed } if self.wanted => self.reconnect(changed, &mut out),
            Event::Up => self.up(now, &mut out),
            Event::Waits => self.waits(&mut out),
            Event::Due => self.due(&mut out),
            Event::Ended(closed) => self.ended(closed, now, chance, &mut out),
            Event::Kick | Event::Restart { .. } => {}
        }
        out
    }

    fn start(&mut self, delay: Duration, out: &mut Vec<Action>) {
        if self.wanted || self.lost || self.link != Link::Down {
            return;
        }
        self.wanted = true;
        if delay.is_zero() {
            self.connect(out);
        } else {
            self.arm(delay, out);
        }
        self.turn(State::Connecting, None, out);
    }

    fn stop(&mut self, out: &mut Vec<Action>) {
        self.wanted = false;
        self.disarm(out);
        match self.link {
            Link::Down => self.gone(out),
            Link::Dialing | Link::Up { .. } => {
                self.link = Link::Closing { again: false };
                out.push(Action::HangUp);
            }
            Link::Closing { .. } => self.link = Link::Closing { again: false },
        }
    }

    fn gone(&mut self, out: &mut Vec<Action>) {
        if self.lost {
            self.state = State::Stopped;
            self.reason = None;
        } else {
            self.turn(State::Stopped, None, out);
        }
        out.push(Action::Gone);
    }

    /// Connects as if nothing had been.
    fn afresh(&mut self, out: &mut Vec<Action>) {
        self.forget();
        self.disarm(out);
        self.connect(out);
        self.turn(State::Connecting, None, out);
    }

    fn reconnect(&mut self, changed: bool, out: &mut Vec<Action>) {
        let useless = changed || matches!(self.link, Link::Up { .. });
        if useless && matches!(self.link, Link::Dialing | Link::Up { .. }) {
            self.disarm(out);
            self.link = Link::Closing { again: true };
            out.push(Action::HangUp);
        }
    }

    fn up(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.link != Link::Dialing {
            return;
        }
        self.link = Link::Up { since: now };
        if self.state == State::Replaced {
            self.arm(self.policy.stable, out);
        } else {
            self.turn(State::Connected, None, out);
        }
    }

    fn waits(&mut self, out: &mut Vec<Action>) {
        if self.link == Link::Dialing {
            self.turn(State::NeedsPairing, Some("a code is shown".to_owned()), out);
        }
    }

    fn due(&mut self, out: &mut Vec<Action>) {
        if !self.armed {
            return;
        }
        self.armed = false;
        match self.link {
            Link::Down if self.wanted => self.connect(out),
            Link::Up { .. } => {
                self.forget();
                self.turn(State::Connected, None, out);
            }
            _ => {}
        }
    }

    fn ended(&mut self, closed: Closed, now: Duration, chance: f64, out: &mut Vec<Action>) {
        let link = std::mem::replace(&mut self.link, Link::Down);
        match link {
            Link::Down => return,
            Link::Closing { again: true } if self.wanted && closed != Closed::Fenced => {
                self.forget();
                self.connect(out);
                self.turn(State::Connecting, None, out);
                return;
            }
            Link::Closing { .. } => {
                self.lost |= closed == Closed::Fenced;
                self.gone(out);
                return;
            }
            Link::Up { since } if now.saturating_sub(since) >= self.policy.stable => self.forget(),
            Link::Up { .. } | Link::Dialing => {}
        }
        self.disarm(out);
        match closed {
            Closed::Asked => self.transient("the connection ended".to_owned(), None, chance, out),
            Closed::Transient { reason, after } => self.transient(reason, after, chance, out),
            Closed::Rejected { reason } => {
                self.rejected = self.rejected.saturating_add(1);
                if self.rejected >= self.policy.park_after {
                    self.turn(State::Parked, Some(reason), out);
                    self.arm(self.policy.park_probe.mul_f64(1.0 + chance / 10.0), out);
                } else {
                    self.transient(reason, None, chance, out);
                }
            }
            Closed::Replaced { reason } => {
                self.replaced = self.replaced.saturating_add(1);
                if self.replaced == 1 && !self.state.is_sticky() {
                    self.turn(State::Reconnecting, Some(reason), out);
                    self.arm(self.policy.backoff_first.mul_f64(1.0 + chance), out);
                } else {
                    self.turn(State::Replaced, Some(reason), out);
                    self.arm(self.replaced_delay(chance), out);
                }
            }
            Closed::LoggedOut { reason } => self.turn(State::LoggedOut, Some(reason), out),
            Closed::NeedsPairing { reason } => self.turn(State::NeedsPairing, Some(reason), out),
            Closed::Banned { reason, until } => {
                self.turn(State::Banned, Some(reason), out);
                if let Some(until) = until {
                    self.arm(until + self.policy.stable.mul_f64(chance), out);
                }
            }
            Closed::Misconfigured { reason } => {
                self.turn(State::Parked, Some(reason), out);
                self.arm(self.policy.misconfigured_probe.mul_f64(1.0 + chance), out);
            }
            Closed::Fenced => {
                self.lost = true;
                self.wanted = false;
                self.gone(out);
            }
        }
    }

    fn transient(&mut self, reason: String, after: Option<Duration>, chance: f64, out: &mut Vec<Action>) {
        self.failures = self.failures.saturating_add(1);
        let full = doubled(self.policy.backoff_first, self.failures - 1, self.policy.backoff_cap);
        let mut delay = full.mul_f64(0.5 + chance / 2.0);
        match self.state {
            State::Replaced => delay = delay.max(self.replaced_delay(chance)),
            State::Parked | State::Banned => delay = self.policy.misconfigured_probe.mul_f64(1.0 + chance),
            _ => self.turn(State::Reconnecting, Some(reason), out),
        }
        self.arm(delay.max(after.unwrap_or_default()), out);
    }

    /// At least `replaced_first`, at most the cap; jitter goes upwards.
    fn replaced_delay(&self, chance: f64) -> Duration {
        let limit = self.policy.backoff_cap.mul_f64(0.8);
        let doublings = self.replaced.saturating_sub(2);
        doubled(self.policy.replaced_first, doublings, limit).mul_f64(1.0 + chance / 4.0)
    }

    fn forget(&mut self) {
        self.failures = 0;
        self.replaced = 0;
        self.rejected = 0;
    }

    fn connect(&mut self, out: &mut Vec<Action>) {
        self.link = Link::Dialing;
        out.push(Action::Connect);
    }

    fn arm(&mut self, delay: Duration, out: &mut Vec<Action>) {
        self.armed = true;
        out.push(Action::Arm(delay));
    }

    fn disarm(&mut self, out: &mut Vec<Action>) {
        if std::mem::take(&mut self.armed) {
            out.push(Action::Disarm);
        }
    }

    /// A new state is told; the same state with another reason is a repeat, and only noted.
    fn turn(&mut self, state: State, reason: Option<String>, out: &mut Vec<Action>) {
        self.reason = reason;
        if self.state != state {
            self.state = state;
            out.push(Action::Tell);
        }
    }
}

fn doubled(first: Duration, doublings: u32, cap: Duration) -> Duration {
    first.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(cap)
}

#[cfg(test)]
#[path = "life_tests.rs"]
mod tests;
