//! How many restarts in which period are still an accident. Past that the slot is broken, and is treated as such.

use std::{collections::VecDeque, time::Duration};

/// At most `restarts` in any `period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intensity {
    /// How many are tolerated.
    pub restarts: u32,
    /// In how long a window.
    pub period: Duration,
}

impl Default for Intensity {
    fn default() -> Self {
        Self { restarts: 5, period: Duration::from_secs(60) }
    }
}

/// The restarts of one slot that are still in the window.
#[derive(Debug, Clone, Default)]
pub struct Window(VecDeque<Duration>);

impl Window {
    /// Notes a death at `now` and says whether it is one too many.
    pub fn exceeded(&mut self, limit: &Intensity, now: Duration) -> bool {
        self.0.push_back(now);
        while self.0.front().is_some_and(|at| now.saturating_sub(*at) >= limit.period) {
            self.0.pop_front();
        }
        // One more than the limit already answers the question: nothing older needs to be kept.
        while self.0.len() > limit.restarts as usize + 1 {
            self.0.pop_front();
        }
        self.0.len() > limit.restarts as usize
    }

    /// Forgets everything: an operator has asked for a fresh start.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sixth_death_in_a_minute_is_one_too_many() {
        let (limit, mut window) = (Intensity::default(), Window::default());
        let seen: Vec<bool> = (0..6).map(|s| window.exceeded(&limit, Duration::from_secs(s))).collect();
        assert_eq!(seen, [false, false, false, false, false, true]);
    }

    #[test]
    fn deaths_that_lie_apart_are_never_too_many() {
        let (limit, mut window) = (Intensity::default(), Window::default());
        assert!((0..100).all(|n| !window.exceeded(&limit, Duration::from_secs(12 * n))));
    }

    proptest! {
        #[test]
        fn it_agrees_with_counting(gaps in proptest::collection::vec(0u64..40, 1..60), restarts in 0u32..6) {
            let limit = Intensity { restarts, period: Duration::from_secs(60) };
            let mut window = Window::default();
            let mut all: Vec<u64> = Vec::new();
            for gap in gaps {
                let at = all.last().copied().unwrap_or(0) + gap;
                all.push(at);
                let counted = all.iter().filter(|t| at - **t < 60).count() > restarts as usize;
                prop_assert_eq!(window.exceeded(&limit, Duration::from_secs(at)), counted);
            }
        }
    }
}
