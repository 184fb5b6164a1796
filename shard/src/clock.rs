//! Time, injected: what decides about leases and dues asks a [`Clock`], so that a test can move it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};

/// Where the time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch, for what must survive a restart. It may jump.
    fn wall_ms(&self) -> i64;

    /// Time since boot, suspension included, for what must not jump.
    fn boottime(&self) -> Duration;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall_ms(&self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }

    fn boottime(&self) -> Duration {
        // CLOCK_BOOTTIME exists on every Linux that this runs on; zero would only mean "just booted".
        clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<(i64, Duration)>>);

impl ManualClock {
    /// A clock at a wall time, freshly booted.
    pub fn at(wall_ms: i64) -> Self {
        Self(Arc::new(Mutex::new((wall_ms, Duration::from_secs(1000)))))
    }

    /// Time passes on both clocks.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().expect("clock");
        now.0 += by.as_millis() as i64;
        now.1 += by;
    }

    /// Somebody sets the wall clock.
    pub fn step_wall(&self, by_ms: i64) {
        self.0.lock().expect("clock").0 += by_ms;
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> i64 {
        self.0.lock().expect("clock").0
    }

    fn boottime(&self) -> Duration {
        self.0.lock().expect("clock").1
    }
}
