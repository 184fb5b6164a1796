//! Where jobs meet channels: takes deliveries from the queue port, orders them by lane, has them done by a channel's
//! sender behind the send guard, and settles each exactly once.
//!
//! It is the one room that joins `queue`, `registry`, `channel` and `sink`; what decides (lanes, retry) is pure and lives
//! in `queue/`.

mod forward;
mod guarded;
mod joins;
mod lane_time;
mod mover;
mod outcome;
mod patience;
mod perform;
mod session;
mod stragglers;
mod tell;
mod work;
mod worker;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

#[cfg(feature = "amqp")]
pub use joins::RegistryBook;
pub use joins::{QueuedReplies, RosterHandlers};
pub use stragglers::{Stragglers, older_jobs_first};
pub use worker::{QueueWorker, WorkerOptions};

use crate::{
    clock::Clock,
    directory::{ChannelSpec, DirectoryError},
    identity::{ChannelId, QueueName, ShardId},
    metrics::Metrics,
    platform::{Platform, Sender},
    queue::{Queue, RetryPolicy},
    registry::{Fence, Holder, Registry},
    sink::{Destination, Outbox, Stored},
    standing::Standing,
};

/// What a channel can do for a job right now.
pub enum Availability {
    /// It can work.
    Ready(Ready),
    /// It is wanted and ours, but not up yet.
    Starting,
    /// The directory knows it, and says that it shall not run.
    Disabled,
    /// The directory does not know it.
    Unknown,
}

/// A channel that can work.
#[derive(Clone)]
pub struct Ready {
    /// Its settings.
    pub spec: Arc<ChannelSpec>,
    /// The right under which what comes of it is written.
    pub fence: Fence,
    /// Its network.
    pub platform: Arc<dyn Platform>,
    /// What does the work.
    pub sender: Arc<dyn Sender>,
}

/// The channels of this shard, as jobs need them.
#[async_trait]
pub trait Channels: Send + Sync + 'static {
    /// What a channel can do.
    fn availability(&self, channel: ChannelId) -> Availability;

    /// Returns when any channel's availability may have changed since the last call. Cancel-safe.
    async fn changed(&self);

    /// Makes a channel wanted, and starts it. `false` when the directory does not know it.
    async fn connect(&self, channel: ChannelId) -> Result<bool, DirectoryError>;

    /// Makes a channel unwanted, and returns when it has stopped. `false` when the directory does not know it.
    async fn disconnect(&self, channel: ChannelId, logout: bool) -> Result<bool, DirectoryError>;
}

/// What all workers of a shard share.
pub struct Context {
    /// Which slot this is.
    pub shard: ShardId,
    /// Told which queues are subscribed.
    pub standing: Standing,
    /// Which process, in which life.
    pub holder: Holder,
    /// Where jobs come from.
    pub queue: Arc<dyn Queue>,
    /// Who owns what; the send guard.
    pub registry: Arc<dyn Registry>,
    /// The channels of this shard.
    pub channels: Arc<dyn Channels>,
    /// Where events go.
    pub outbox: Arc<dyn Outbox>,
    /// Told of every stored event, so that delivery needs no look into the store.
    pub on_stored: Arc<dyn Fn(Vec<Stored>) + Send + Sync>,
    /// Where job events go: to the endpoint for everything, or nowhere, and then there are none.
    pub job_events_to: Vec<Destination>,
    /// When to try again.
    pub retry: RetryPolicy,
    /// How long a job waits for a channel that is starting before that counts as a failed attempt.
    pub patience: Duration,
    /// How long running jobs may take to end when the shard stops.
    pub grace: Duration,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Context {
    /// A queue is read.
    pub(crate) fn subscribed(&self, queue: QueueName) {
        self.metrics.queue_subscribed.with_label_values(&[queue.base.as_str()]).set(1);
        self.standing.has(&format!("queue {queue}"));
    }

    /// A queue is not read, and why.
    pub(crate) fn unsubscribed(&self, queue: QueueName, why: &str) {
        self.metrics.queue_subscribed.with_label_values(&[queue.base.as_str()]).set(0);
        self.standing.lacks(&format!("queue {queue}"), why);
    }
}

/// How many deaths of its process a job may be out in before it is run alone.
pub(crate) const SUSPECTED_FROM: u32 = 2;
/// How many before it is buried.
pub(crate) const CONDEMNED_FROM: u32 = 5;
