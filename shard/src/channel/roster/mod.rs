//! All channels of a shard: what is wanted is held and runs, what is not is closed and given back.
//!
//! One loop owns the members. It asks the directory, claims and renews leases in one call each, starts an actor for
//! each lease and takes the lease back only after the actor has ended. Slow answers are awaited beside the loop, never
//! in it, so that a lease that can no longer be proven is noticed within a second whatever else hangs.

mod answers;
mod handle;
mod members;
mod run;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::sync::{mpsc, watch};

pub use handle::{ChannelStatus, RosterHandle};

use self::handle::{Book, Request};
use super::{OnChanged, Policy, Ramp, RampConfig, actor::Env, inbox::Keeper};
use crate::{
    clock::Clock,
    directory::Directory,
    identity::ShardId,
    metrics::Metrics,
    platform::{Platform, PlatformKind},
    progress::Progress,
    registry::{Holder, Registry},
    sink::{OnStored, Outbox},
};

/// How a shard's roster behaves.
#[derive(Debug, Clone)]
pub struct RosterConfig {
    /// Whose channels.
    pub shard: ShardId,
    /// Who holds them.
    pub holder: Holder,
    /// The slot's lock is held, which proves every earlier life of it dead: its leases are taken over at once.
    pub supersede: bool,
    /// Nothing of the fleet ran just before: the first channels start spread over [`RampConfig::jitter`].
    pub cold_start: bool,
    /// Whether an endpoint for all events is configured.
    pub endpoint: bool,
    /// How often the directory is asked without a cause.
    pub reconcile_every: Duration,
    /// How fast channels may connect.
    pub ramp: RampConfig,
    /// By what their life cycles decide.
    pub policy: Policy,
}

impl RosterConfig {
    /// The defaults for a shard and its holder.
    pub fn new(shard: ShardId, holder: Holder) -> Self {
        Self {
            shard,
            holder,
            supersede: false,
            cold_start: true,
            endpoint: false,
            reconcile_every: Duration::from_secs(30),
            ramp: RampConfig::default(),
            policy: Policy::default(),
        }
    }
}

/// What a roster works with.
#[derive(Clone)]
pub struct RosterPorts {
    /// Who owns what.
    pub registry: Arc<dyn Registry>,
    /// What is wanted.
    pub directory: Arc<dyn Directory>,
    /// Where events go.
    pub outbox: Arc<dyn Outbox>,
    /// The networks that this build knows.
    pub platforms: Vec<Arc<dyn Platform>>,
    /// Told of each batch of stored events.
    pub on_stored: OnStored,
    /// Told of each channel whose settings or whose lease came, changed or went.
    pub on_changed: OnChanged,
    /// Where it counts.
    pub metrics: Arc<Metrics>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where its loops show that they get on.
    pub progress: Progress,
}

/// All channels of a shard. [`Roster::run`] is its loop.
pub struct Roster {
    config: RosterConfig,
    ports: RosterPorts,
    env: Arc<Env>,
    platforms: HashMap<PlatformKind, Arc<dyn Platform>>,
    book: Arc<Book>,
    requests: mpsc::UnboundedReceiver<Request>,
    ready: watch::Sender<bool>,
    handle: RosterHandle,
}

impl Roster {
    /// A roster that holds nothing yet.
    pub fn new(config: RosterConfig, ports: RosterPorts) -> Self {
        let keeper = Arc::new(Keeper {
            outbox: ports.outbox.clone(),
            on_stored: ports.on_stored.clone(),
            endpoint: config.endpoint,
            metrics: ports.metrics.clone(),
            clock: ports.clock.clone(),
        });
        let ramp = Arc::new(Ramp::new(&config.ramp));
        let env = Arc::new(Env { keeper, ramp, policy: config.policy.clone() });
        let platforms = ports.platforms.iter().map(|platform| (platform.kind(), platform.clone())).collect();
        let book = Arc::new(Book::new(ports.on_changed.clone()));
        let (sender, requests) = mpsc::unbounded_channel();
        let (ready, is_ready) = watch::channel(false);
        let handle = RosterHandle::new(book.clone(), sender, is_ready, &ports);
        Self { config, ports, env, platforms, book, requests, ready, handle }
    }

    /// What the rest of the shard asks and tells it by.
    pub fn handle(&self) -> RosterHandle {
        self.handle.clone()
    }
}
