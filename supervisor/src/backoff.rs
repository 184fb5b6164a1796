//! How long a slot waits before its next life: nothing after a stable run, then twice as long each time, with jitter.
//!
//! The jitter keeps shards that fall together (a broker gone, a full disk) from coming back together for ever.

use std::time::Duration;

/// The schedule of restarts after deaths that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The wait before the second restart; the first one is immediate.
    pub first: Duration,
    /// No wait is longer.
    pub cap: Duration,
    /// A life that was ready for this long makes the next death a first one again.
    pub stable: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(200), cap: Duration::from_secs(30), stable: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The wait after `failures` earlier deaths in a row. `unit` is a random number in 0..1; the wait lies between half
    /// of the nominal one and all of it.
    pub fn delay(&self, failures: u32, unit: f64) -> Duration {
        if failures == 0 {
            return Duration::ZERO;
        }
        let doubled = self.first.saturating_mul(1u32.checked_shl(failures - 1).unwrap_or(u32::MAX));
        doubled.min(self.cap).mul_f64(0.5 + 0.5 * unit.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Contract: P5.
    #[test]
    fn the_first_restart_does_not_wait() {
        assert_eq!(Backoff::default().delay(0, 0.9), Duration::ZERO);
    }

    #[test]
    fn waits_double_up_to_the_cap() {
        let backoff = Backoff::default();
        let nominal: Vec<u64> = (1..=9).map(|n| backoff.delay(n, 1.0).as_millis() as u64).collect();
        assert_eq!(nominal, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
    }

    proptest! {
        #[test]
        fn a_wait_is_at_least_half_of_the_nominal_and_never_above_the_cap(failures in 1u32.., unit in 0.0f64..1.0) {
            let backoff = Backoff::default();
            let wait = backoff.delay(failures, unit);
            prop_assert!(wait >= backoff.first / 2 && wait <= backoff.cap);
            prop_assert!(wait >= backoff.delay(failures, 1.0) / 2);
        }
    }
}
