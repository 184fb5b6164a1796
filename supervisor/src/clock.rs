//! The two clocks of the primary: since boot (suspension included) for all that it decides, the wall for nothing but
//! the number of a life.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

/// CLOCK_BOOTTIME: it goes on while the machine sleeps and never jumps.
pub fn boottime() -> Duration {
    // It exists on every Linux that this runs on; zero would only mean "just booted".
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// Milliseconds since the epoch.
pub(crate) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
