//! Stamps by which each loop of a shard shows that it gets on. A check-in carries them to the primary, so that "alive"
//! means that work is looked at, not that a timer fires.
//!
//! A loop ticks its stamp at least once in its limit, also when there is nothing to do. Long work belongs into tasks of
//! its own, so that it doesn't hold a tick back.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// All stamps of a process.
#[derive(Debug, Clone)]
pub struct Progress {
    started: Instant,
    stamps: Arc<Mutex<Vec<Arc<Inner>>>>,
}

#[derive(Debug)]
struct Inner {
    name: &'static str,
    limit: Duration,
    started: Instant,
    last_ms: AtomicU64,
}

/// One loop's stamp. Dropping it takes the loop off the list: it has ended as it should.
#[derive(Debug)]
pub struct Stamp {
    inner: Arc<Inner>,
    stamps: Arc<Mutex<Vec<Arc<Inner>>>>,
}

/// A loop that has not ticked within its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stalled {
    /// Which loop.
    pub name: &'static str,
    /// For how long it has not ticked.
    pub silent: Duration,
}

impl Default for Progress {
    fn default() -> Self {
        Self { started: Instant::now(), stamps: Arc::default() }
    }
}

impl Progress {
    /// Puts a loop on the list.
    pub fn register(&self, name: &'static str, limit: Duration) -> Stamp {
        let inner = Arc::new(Inner { name, limit, started: self.started, last_ms: AtomicU64::new(0) });
        self.stamps.lock().expect("stamps").push(inner.clone());
        let stamp = Stamp { inner, stamps: self.stamps.clone() };
        stamp.tick();
        stamp
    }

    /// The loops that do not get on.
    pub fn stalled(&self) -> Vec<Stalled> {
        let now = self.started.elapsed();
        let stamps = self.stamps.lock().expect("stamps");
        let silent = |inner: &Inner| now.saturating_sub(Duration::from_millis(inner.last_ms.load(Ordering::Relaxed)));
        stamps
            .iter()
            .filter(|inner| silent(inner) > inner.limit)
            .map(|inner| Stalled { name: inner.name, silent: silent(inner) })
            .collect()
    }
}

impl Stamp {
    /// The loop gets on.
    pub fn tick(&self) {
        let at = self.inner.started.elapsed().as_millis() as u64;
        self.inner.last_ms.store(at, Ordering::Relaxed);
    }

    /// The limit within which it must tick.
    pub fn limit(&self) -> Duration {
        self.inner.limit
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        self.stamps.lock().expect("stamps").retain(|inner| !Arc::ptr_eq(inner, &self.inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field report R41.
    #[test]
    fn a_loop_that_does_not_tick_is_named() {
        let progress = Progress::default();
        let wedged = progress.register("consume", Duration::ZERO);
        let fine = progress.register("renew", Duration::from_secs(3600));
        wedged.inner.last_ms.store(0, Ordering::Relaxed);
        let deadline = Instant::now() + Duration::from_secs(5);
        while progress.stalled().is_empty() {
            assert!(Instant::now() < deadline, "never noticed");
            std::thread::yield_now();
        }
        assert_eq!(progress.stalled()[0].name, "consume");
        drop(wedged);
        assert_eq!(progress.stalled(), []);
        drop(fine);
    }
}
