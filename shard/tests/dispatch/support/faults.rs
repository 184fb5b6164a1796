//! Where a process may die, and which calls of its ports fail: named points before and after each call.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio_util::sync::CancellationToken;

/// Before or after the call that a point is named for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Before,
    After,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Unavailable,
    Refused,
    Fenced,
    Stale,
}

#[derive(Default)]
struct Inner {
    /// The process dies at this point, when it is come to for the nth time.
    die: Option<(String, When, usize)>,
    /// With this probability it dies at any point.
    at_random: Option<(StdRng, f64)>,
    /// The next calls of a point fail so.
    failing: BTreeMap<String, VecDeque<Fault>>,
    /// All calls of a point fail so.
    broken: BTreeMap<String, Fault>,
    /// The next calls of a point are done, but answered so.
    lost: BTreeMap<String, VecDeque<Fault>>,
    calls: BTreeMap<String, usize>,
}

/// What goes wrong around the ports of a world's processes.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Inner>);

impl Faults {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().expect("faults")
    }

    /// Whichever process next comes to this point dies there.
    pub(crate) fn die(&self, point: &str, when: When) {
        self.inner().die = Some((point.to_owned(), when, 1));
    }

    /// Whichever process comes there for the nth time dies.
    pub(crate) fn die_at(&self, point: &str, when: When, nth: usize) {
        self.inner().die = Some((point.to_owned(), when, nth));
    }

    /// Processes die at random from now on; never, with 0.
    pub(crate) fn die_at_random(&self, seed: u64, probability: f64) {
        self.inner().at_random = (probability > 0.0).then(|| (StdRng::seed_from_u64(seed), probability));
    }

    /// The next call fails.
    pub(crate) fn fail(&self, point: &str, fault: Fault) {
        self.inner().failing.entry(point.to_owned()).or_default().push_back(fault);
    }

    /// The next call is done, and its answer is lost.
    pub(crate) fn lose_answer(&self, point: &str, fault: Fault) {
        self.inner().lost.entry(point.to_owned()).or_default().push_back(fault);
    }

    /// All calls fail, until it is mended.
    pub(crate) fn break_down(&self, point: &str, fault: Fault) {
        self.inner().broken.insert(point.to_owned(), fault);
    }

    /// Nothing fails any more.
    pub(crate) fn mend(&self) {
        let mut inner = self.inner();
        inner.failing.clear();
        inner.broken.clear();
    }

    /// How often a point was come to.
    pub(crate) fn calls(&self, point: &str) -> usize {
        self.inner().calls.get(point).copied().unwrap_or(0)
    }

    fn dies(&self, point: &str, when: When) -> bool {
        let mut inner = self.inner();
        if let Some((rng, probability)) = &mut inner.at_random {
            let probability = *probability;
            if rng.random_bool(probability) {
                return true;
            }
        }
        let here = matches!(&inner.die, Some((at, at_when, _)) if at == point && *at_when == when);
        if !here {
            return false;
        }
        let Some((.., left)) = &mut inner.die else { return false };
        *left -= 1;
        let dies = *left == 0;
        if dies {
            inner.die = None;
        }
        dies
    }

    /// To be called before a port's call: whether it fails. Does not return when the process dies here.
    pub(crate) async fn before(&self, point: &str, crash: &CancellationToken) -> Option<Fault> {
        // A process that is dead does nothing more, in whatever order its futures are polled.
        if crash.is_cancelled() || self.dies(point, When::Before) {
            die(crash).await;
        }
        let mut inner = self.inner();
        *inner.calls.entry(point.to_owned()).or_default() += 1;
        let once = inner.failing.get_mut(point).and_then(VecDeque::pop_front);
        once.or_else(|| inner.broken.get(point).copied())
    }

    /// Whether the next look for a delivery fails. Looking is no call: nobody dies there.
    pub(crate) fn next(&self) -> Option<Fault> {
        let mut inner = self.inner();
        let once = inner.failing.get_mut("next").and_then(VecDeque::pop_front);
        once.or_else(|| inner.broken.get("next").copied())
    }

    /// To be called after it: whether its answer is lost.
    pub(crate) async fn after(&self, point: &str, crash: &CancellationToken) -> Option<Fault> {
        if self.dies(point, When::After) {
            die(crash).await;
        }
        self.inner().lost.get_mut(point).and_then(VecDeque::pop_front)
    }
}

/// Nothing of the process runs any more after this.
async fn die(crash: &CancellationToken) {
    crash.cancel();
    std::future::pending::<()>().await;
}
