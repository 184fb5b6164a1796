//! Leases: who holds a slot or a channel, until when, and the token by which later writes are judged.

use std::{fmt, time::Duration};

use crate::identity::ChannelId;

/// A lease's length, as the registry's own clock sees it.
pub const LEASE: Duration = Duration::from_secs(10);
/// How often leases are renewed.
pub const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How long after the start of the last successful renewal an owner still believes it holds (`CLOCK_BOOTTIME`).
pub const SELF_FENCE: Duration = Duration::from_secs(8);

/// A process that holds things: which worker, in which life.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The worker id: stable over restarts of its slot.
    pub worker: String,
    /// Which life of it; greater for later ones.
    pub incarnation: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.worker, self.incarnation)
    }
}

/// What can be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// A slot of the layout: its holder alone consumes `<base>-<index>`.
    Slot(u32),
    /// A channel's live connection.
    Channel(ChannelId),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(index) => write!(f, "slot/{index}"),
            Self::Channel(id) => write!(f, "channel/{id}"),
        }
    }
}

/// Something held, and the fencing token under which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// What.
    pub resource: Resource,
    /// Only grows; checked at every durable write.
    pub token: u64,
}

/// Under what right a durable write is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The channel concerned.
    pub channel: ChannelId,
    /// The token of the writer's lease on it.
    pub token: u64,
}

/// The answer to one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is ours.
    Held(Lease),
    /// It is somebody's.
    Taken {
        /// Whose.
        by: Holder,
        /// For how long at most, should they not renew.
        remaining: Duration,
    },
}

/// The answer to a renewal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renewal {
    /// Leases that are no longer ours.
    pub lost: Vec<Lease>,
}
