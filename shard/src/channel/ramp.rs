//! How fast a shard may connect: so many logins in flight and so many a second for each platform, whatever their cause.
//!
//! A start that does one login after the other takes minutes; one that does all at once is a storm at the platform's
//! door. Each platform has a gate of its own, so that one that hangs never holds another up.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::platform::PlatformKind;

/// The limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RampConfig {
    /// Logins in flight for each platform.
    pub in_flight: usize,
    /// Logins that may begin in a second for each platform.
    pub per_second: u32,
    /// Over how long a cold start is spread, all channels side by side.
    pub jitter: Duration,
}

impl Default for RampConfig {
    fn default() -> Self {
        Self { in_flight: 50, per_second: 300, jitter: Duration::from_secs(5) }
    }
}

/// Books starting times at an even rate. Pure: the caller waits.
#[derive(Debug, Clone)]
pub struct Pace {
    interval: Duration,
    next: Duration,
}

impl Pace {
    /// So many a second.
    pub fn new(per_second: u32) -> Self {
        Self { interval: Duration::from_secs(1) / per_second.max(1), next: Duration::ZERO }
    }

    /// Takes the next place; how long to wait for it.
    pub fn book(&mut self, now: Duration) -> Duration {
        let at = self.next.max(now);
        self.next = at + self.interval;
        at - now
    }
}

/// A login in flight; dropping it makes room for another.
pub type Permit = OwnedSemaphorePermit;

struct Gate {
    platform: PlatformKind,
    room: Arc<Semaphore>,
    pace: Mutex<Pace>,
}

/// The gates of a shard.
pub struct Ramp {
    began: Instant,
    gates: Vec<Gate>,
}

impl Ramp {
    /// Gates for all platforms.
    pub fn new(config: &RampConfig) -> Self {
        let gate = |platform| Gate {
            platform,
            room: Arc::new(Semaphore::new(config.in_flight.max(1))),
            pace: Mutex::new(Pace::new(config.per_second)),
        };
        let gates = [PlatformKind::Whatsapp, PlatformKind::Slack, PlatformKind::Telegram].map(gate).into();
        Self { began: Instant::now(), gates }
    }

    /// Waits for a place, first come, first served. Cancel-safe. `None` only for a platform without a gate.
    pub async fn admit(&self, platform: PlatformKind) -> Option<Permit> {
        let gate = self.gates.iter().find(|gate| gate.platform == platform)?;
        let permit = gate.room.clone().acquire_owned().await.ok()?;
        let wait = gate.pace.lock().expect("pace").book(self.began.elapsed());
        tokio::time::sleep(wait).await;
        Some(permit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Field report R09.
    #[tokio::test(start_paused = true)]
    async fn five_hundred_logins_of_200_ms_ten_at_a_time_take_less_than_20_s() {
        let config = RampConfig { in_flight: 10, ..RampConfig::default() };
        let ramp = Arc::new(Ramp::new(&config));
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let begun = Instant::now();
        let mut logins = tokio::task::JoinSet::new();
        for _ in 0..500 {
            let (ramp, now, most) = (ramp.clone(), now.clone(), most.clone());
            logins.spawn(async move {
                let _permit = ramp.admit(PlatformKind::Telegram).await.unwrap();
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(200)).await;
                now.fetch_sub(1, Ordering::SeqCst);
            });
        }
        logins.join_all().await;
        assert_eq!(most.load(Ordering::SeqCst), 10);
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(10) && took < Duration::from_secs(20), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_platform_that_hangs_holds_no_other_up() {
        let ramp = Ramp::new(&RampConfig { in_flight: 1, ..RampConfig::default() });
        let _hung = ramp.admit(PlatformKind::Slack).await.unwrap();
        let other = tokio::time::timeout(Duration::from_secs(1), ramp.admit(PlatformKind::Telegram)).await;
        assert!(other.is_ok());
    }

    #[test]
    fn the_pace_is_even_and_an_idle_time_saves_nothing_up() {
        let mut pace = Pace::new(10);
        let at = Duration::from_secs(5);
        let waits: Vec<_> = (0..3).map(|_| pace.book(at).as_millis()).collect();
        assert_eq!(waits, [0, 100, 200]);
        assert_eq!(pace.book(Duration::from_secs(60)), Duration::ZERO);
        assert_eq!(pace.book(Duration::from_secs(60)).as_millis(), 100);
    }
}
