//! The time by which lanes wait. The wall clock may be set while they do, and a wait must not become longer or shorter by
//! that: it is asked once, when a session begins, and whenever a due time is stored.

use std::{sync::Arc, time::Duration};

use crate::clock::Clock;

/// Whatever was stored, nothing waits longer than this after a restart: the wall clock may have been wrong.
const LONGEST: i64 = 24 * 3600 * 1000;

/// Milliseconds since the Unix epoch, as far as was known when the session began.
#[derive(Clone)]
pub(super) struct LaneTime {
    clock: Arc<dyn Clock>,
    wall_ms: i64,
    boottime: Duration,
}

impl LaneTime {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { wall_ms: clock.wall_ms(), boottime: clock.boottime(), clock }
    }

    pub(super) fn now(&self) -> i64 {
        self.wall_ms + self.clock.boottime().saturating_sub(self.boottime).as_millis() as i64
    }

    /// How long until a due time.
    pub(super) fn until(&self, due_ms: i64) -> Duration {
        Duration::from_millis(due_ms.saturating_sub(self.now()).max(0) as u64)
    }

    /// A due time as it is stored.
    pub(super) fn wall(&self, due_ms: i64) -> i64 {
        self.clock.wall_ms().saturating_add(due_ms.saturating_sub(self.now()))
    }

    /// A stored due time, as far as it can be believed.
    pub(super) fn believed(&self, due_ms: i64) -> i64 {
        due_ms.min(self.now() + LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    /// Contract: Q4. Field report R40.
    #[test]
    fn setting_the_wall_clock_moves_no_wait() {
        let clock = ManualClock::at(1_000_000);
        let time = LaneTime::new(Arc::new(clock.clone()));
        let due = time.now() + 5_000;
        clock.step_wall(-3_600_000);
        clock.advance(Duration::from_secs(2));
        assert_eq!(time.until(due), Duration::from_secs(3));
        assert_eq!(time.wall(due), clock.wall_ms() + 3_000, "stored as the wall clock has it now");
        clock.advance(Duration::from_secs(4));
        assert_eq!(time.until(due), Duration::ZERO);
    }

    /// Contract: Q4. Field report R40.
    #[test]
    fn a_stored_wait_of_years_is_not_believed() {
        let time = LaneTime::new(Arc::new(ManualClock::at(1_000_000)));
        assert_eq!(time.believed(time.now() + 10), time.now() + 10);
        assert_eq!(time.believed(i64::MAX), time.now() + LONGEST);
    }
}
