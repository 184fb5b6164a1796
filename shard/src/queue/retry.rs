//! When a failed job is tried again: 8 attempts over about ten minutes, pure.

use std::time::Duration;

/// How often and how late.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all; after the last one the job is buried.
    pub attempts: u32,
    /// The wait after the first failure.
    pub first: Duration,
    /// By what each wait is longer than the one before.
    pub factor: f64,
    /// The longest wait.
    pub cap: Duration,
    /// By how much a wait may differ, as a share of it (0.2 = ± 20 %).
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        // 2.3 s · 2.3ⁿ for n = 0..=6 adds up to 600 s.
        Self {
            attempts: 8,
            first: Duration::from_millis(2300),
            factor: 2.3,
            cap: Duration::from_secs(600),
            jitter: 0.2,
        }
    }
}

impl RetryPolicy {
    /// The wait after the `failures`-th failure (from 1), or `None` when that was the last attempt.
    /// `random` is uniform in 0..1.
    pub fn after(&self, failures: u32, random: f64) -> Option<Duration> {
        if failures >= self.attempts {
            return None;
        }
        let exponent = failures.saturating_sub(1).min(64) as i32;
        let plain = (self.first.as_secs_f64() * self.factor.powi(exponent)).min(self.cap.as_secs_f64());
        Some(Duration::from_secs_f64(plain * (1.0 - self.jitter + 2.0 * self.jitter * random)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Contract: Q4.
    #[test]
    fn eight_attempts_take_about_ten_minutes() {
        let policy = RetryPolicy::default();
        let waits: Vec<_> = (1..).map_while(|failures| policy.after(failures, 0.5)).collect();
        assert_eq!(waits.len(), 7, "the eighth failure is the last");
        let total: Duration = waits.iter().sum();
        assert!((540..660).contains(&total.as_secs()), "{total:?}");
    }

    proptest! {
        #[test]
        fn waits_stay_within_jitter_and_cap(failures in 1u32..100, random in 0.0f64..1.0) {
            let policy = RetryPolicy { attempts: 1000, ..RetryPolicy::default() };
            let wait = policy.after(failures, random).expect("attempts left");
            let longest = policy.cap.mul_f64(1.0 + policy.jitter);
            prop_assert!(wait >= policy.first.mul_f64(1.0 - policy.jitter - 0.001) && wait <= longest);
        }
    }
}
