//! What the limits of all platforms are made of: a rate, and whether it is one's turn. Pure: the caller has the clock, and
//! waits.

use std::time::Duration;

/// A limiter (generic cell rate): when the next place is, and how far ahead places may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) interval: Duration,
    pub(super) burst: u32,
}

impl Rate {
    /// How long until there is a place.
    pub(super) fn delay(self, next: Duration, now: Duration) -> Duration {
        next.saturating_sub(self.interval * self.burst.saturating_sub(1)).saturating_sub(now)
    }

    /// Takes the place at `at`.
    pub(super) fn take(self, next: &mut Duration, at: Duration) {
        *next = (*next).max(at) + self.interval;
    }
}

/// Whether a send may go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// After this wait, which may be zero. The place is taken.
    In(Duration),
    /// Not before this time is over. No place is taken.
    NotBefore(Duration),
}
