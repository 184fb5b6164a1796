//! The port that knows who owns what: leases, the send guard, lanes that wait, the layout in force.

mod embedded;
mod guard;
mod lease;
mod pool;
#[cfg(feature = "redis")]
mod redis;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use embedded::EmbeddedRegistry;
pub use guard::*;
pub use lease::*;
pub use pool::*;
#[cfg(feature = "redis")]
pub use redis::{RedisOptions, RedisRegistry, RedisUrl, RedisUrlError};

use crate::{
    identity::{ChannelId, QueueName},
    job::{JobId, Lane},
};

/// A lane whose head must wait. Stored before anything of the lane is moved, and read before a restart consumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneFact {
    /// The work queue.
    pub queue: QueueName,
    /// The lane.
    pub lane: Lane,
    /// The job at its head.
    pub head: JobId,
    /// When it is due, in milliseconds since the Unix epoch.
    pub due_ms: i64,
    /// The sequence number that the next parked job gets.
    pub next_seq: u64,
}

/// The shard count in force, with an epoch that grows at each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// How many shards the fleet has.
    pub shard_count: u32,
    /// Grows with each change of the count.
    pub epoch: u64,
}

/// What went wrong, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// It can't be reached just now: keep what can be proven, claim nothing, try again.
    #[error("registry unavailable: {0}")]
    Unavailable(String),
    /// A newer owner exists; nothing was written.
    #[error("fenced: {resource} is held by a newer owner")]
    Fenced {
        /// What is held.
        resource: String,
    },
    /// It can't work until somebody changes something.
    #[error("registry refused: {0}")]
    Refused(String),
}

/// Who owns what. Every method is durable when it returns `Ok`.
#[async_trait]
pub trait Registry: Send + Sync + 'static {
    /// Publishes the count in force; the epoch grows when it differs from the one before. Idempotent.
    async fn publish_layout(&self, shard_count: u32) -> Result<Layout, RegistryError>;

    /// The count in force, if any was published.
    async fn layout(&self) -> Result<Option<Layout>, RegistryError>;

    /// The count of the epoch before, if there was one.
    async fn layout_before(&self) -> Result<Option<u32>, RegistryError>;

    /// Up to which epoch of the layout the first `shards` have all brought what lay in the wrong queues to its owners; 0 when
    /// that is not known of one of them.
    async fn swept(&self, shards: u32) -> Result<u64, RegistryError>;

    /// A shard has done so for what was there at the start of this epoch.
    async fn mark_swept(&self, shard: u32, epoch: u64) -> Result<(), RegistryError>;

    /// Claims resources for a holder, each on its own: those already its own are renewed under the same token, free and
    /// ended ones get a greater token than any before. With `supersede`, a lease of an earlier incarnation of the *same
    /// worker* is taken over at once: the caller has proof that it is dead.
    async fn claim(
        &self,
        holder: &Holder,
        resources: &[Resource],
        supersede: bool,
    ) -> Result<Vec<Claim>, RegistryError>;

    /// Renews all that the holder has, in one round trip. What it names as lost must be dropped at once.
    async fn renew(&self, holder: &Holder, leases: &[Lease]) -> Result<Renewal, RegistryError>;

    /// Gives leases back. Those that are somebody else's by now stay as they are.
    async fn release(&self, holder: &Holder, leases: &[Lease]) -> Result<(), RegistryError>;

    /// Before a send goes on the wire: stores that it is about to. See [`Reservation`].
    async fn reserve(&self, request: Reserve) -> Result<Reservation, RegistryError>;

    /// The send is done: later jobs of the same id are answered with this.
    async fn mark_sent(&self, fence: &Fence, job: &JobId, sent: Sent) -> Result<(), RegistryError>;

    /// The send certainly did not happen: the reservation goes.
    async fn cancel(&self, fence: &Fence, job: &JobId) -> Result<(), RegistryError>;

    /// It is not known whether the send happened; stored before anything else is done about it.
    async fn mark_uncertain(&self, fence: &Fence, job: &JobId, why: &str) -> Result<(), RegistryError>;

    /// Lanes of a queue that wait.
    async fn lane_facts(&self, queue: QueueName) -> Result<Vec<LaneFact>, RegistryError>;

    /// Stores that a lane waits (replaces an older fact of it).
    async fn put_lane_fact(&self, fact: &LaneFact) -> Result<(), RegistryError>;

    /// The lane no longer waits.
    async fn clear_lane_fact(&self, queue: QueueName, lane: &Lane) -> Result<(), RegistryError>;

    /// Raises, for each job, the count of deaths of its process in which it was out, but not above `at_most`; the counts
    /// as they are then. A job that was out in too many deaths is suspected of them.
    async fn count_deaths(&self, jobs: &[(ChannelId, JobId)], at_most: u32) -> Result<Vec<u32>, RegistryError>;

    /// Before events of a channel go into an outbox that lies elsewhere: the place of each in the channel's gapless sequence,
    /// or none for one that is stored already. Asked again before [`Registry::events_stored`], it gives the same places.
    async fn place_events(&self, fence: &Fence, ids: &[Uuid]) -> Result<Vec<Option<u64>>, RegistryError>;

    /// They are stored there, and the channel's platform has been read up to `offset`. Ids are remembered for as long as a
    /// platform may tell of them again.
    async fn events_stored(&self, fence: &Fence, ids: &[Uuid], offset: Option<i64>) -> Result<(), RegistryError>;

    /// How far a channel's platform has been read.
    async fn read_to(&self, channel: ChannelId) -> Result<Option<i64>, RegistryError>;

    /// Notes down what became of events that can't be changed where they lie; `None` when there is nothing more to say.
    async fn mark_events(&self, marks: &[(Uuid, Option<String>)]) -> Result<(), RegistryError>;

    /// What was noted down of events within the last two days.
    async fn event_marks(&self, ids: &[Uuid]) -> Result<Vec<Option<String>>, RegistryError>;

    /// Notes down something about an outbox under a key; `None` takes it away.
    async fn note(&self, outbox: &str, key: &str, note: Option<&str>) -> Result<(), RegistryError>;

    /// All notes about an outbox.
    async fn notes(&self, outbox: &str) -> Result<Vec<(String, String)>, RegistryError>;
}
