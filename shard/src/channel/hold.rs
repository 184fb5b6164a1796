//! What a shard can prove of one channel's lease: until when, and that it has not been lost.
//!
//! The roster extends it with each renewal; every reader of the platform and every durable write asks it. It is judged
//! by the time since boot, suspension included, so that a process that was stopped knows on waking that it must ask
//! the registry before it touches anything.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    identity::ChannelId,
    registry::{Fence, Lease, Resource, SELF_FENCE},
};

/// A channel's lease in this process's hands.
pub struct Hold {
    fence: Fence,
    clock: Arc<dyn Clock>,
    /// Milliseconds since boot at which the last good claim or renewal *began*.
    proven_ms: AtomicU64,
    lost: CancellationToken,
}

impl Hold {
    /// A lease whose claim began at `began` (time since boot).
    pub fn new(channel: ChannelId, lease: Lease, began: Duration, clock: Arc<dyn Clock>) -> Self {
        let fence = Fence { channel, token: lease.token };
        Self { fence, clock, proven_ms: AtomicU64::new(millis(began)), lost: CancellationToken::new() }
    }

    /// Under what right durable writes are made.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The lease as the registry knows it.
    pub fn lease(&self) -> Lease {
        Lease { resource: Resource::Channel(self.fence.channel), token: self.fence.token }
    }

    /// A renewal that began at `began` succeeded.
    pub fn prove(&self, began: Duration) {
        self.proven_ms.fetch_max(millis(began), Ordering::Relaxed);
    }

    /// It is gone, or can no longer be proven: every connection under it ends.
    pub fn lose(&self) {
        self.lost.cancel();
    }

    /// Whether it was lost.
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Whether it can be proven to be ours at this moment.
    pub fn is_proven(&self) -> bool {
        !self.is_lost() && millis(self.clock.boottime()) < self.proven_ms.load(Ordering::Relaxed) + millis(SELF_FENCE)
    }

    /// Cancelled when it is lost.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    /// Contract: C1.
    #[test]
    fn a_lease_is_proven_for_eight_seconds_from_the_start_of_its_renewal() {
        let clock = ManualClock::at(0);
        let channel: ChannelId = "00000000000000000000000000000001".parse().unwrap();
        let lease = Lease { resource: Resource::Channel(channel), token: 7 };
        let hold = Hold::new(channel, lease, clock.boottime(), Arc::new(clock.clone()));
        clock.advance(Duration::from_millis(7_999));
        assert!(hold.is_proven());
        let began = clock.boottime();
        clock.advance(Duration::from_millis(1));
        assert!(!hold.is_proven(), "stopped for eight seconds");
        hold.prove(began);
        assert!(hold.is_proven(), "asked again");
        hold.lose();
        hold.prove(clock.boottime());
        assert!(!hold.is_proven(), "what was lost stays lost");
    }
}
