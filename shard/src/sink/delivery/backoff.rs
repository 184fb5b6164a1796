//! When a failed delivery is tried again, and when it is given up: pure.

use std::time::Duration;

/// The schedule of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure; it doubles with each further one.
    pub first: Duration,
    /// The longest wait.
    pub cap: Duration,
    /// From which age on a failing event is given up.
    pub give_up_after: Duration,
    /// How many failures at least before age counts: an event that grew old while nothing ran gets its chance.
    pub least_failures: u32,
    /// After how many answers that make no sense an event is given up.
    pub malformed_limit: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            cap: Duration::from_secs(600),
            give_up_after: Duration::from_secs(24 * 3600),
            least_failures: 8,
            malformed_limit: 5,
        }
    }
}

impl Backoff {
    /// The wait after the `failures`-th failure. `roll`, in 0..1, spreads it over 80 to 120 percent.
    pub fn wait(&self, failures: u32, roll: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(32);
        let wait = self.first.saturating_mul(2u32.saturating_pow(doublings)).min(self.cap);
        wait.mul_f64(0.8 + 0.4 * roll.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let waits: Vec<_> = (1..=12).map(|failures| Backoff::default().wait(failures, 0.5).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
    }

    proptest! {
        #[test]
        fn a_wait_is_never_zero_nor_far_over_the_cap(failures in 0u32.., roll in 0.0..1.0f64) {
            let wait = Backoff::default().wait(failures, roll);
            prop_assert!(wait >= Duration::from_millis(800) && wait <= Duration::from_secs(720));
        }
    }
}
