//! Delivers what lies in the outbox: in order for each conversation and destination, side by side otherwise.
//!
//! [`plan`] decides, [`engine`] performs, [`courier`] knows how one event is delivered. What can't be delivered now stays
//! in the outbox; what can never be becomes a dead letter there.

mod backoff;
mod courier;
mod engine;
mod plan;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::backoff::Backoff;
use self::{
    courier::Courier,
    engine::Engine,
    plan::{Limits, Now, Plan},
};
use super::{Handlers, Outbox, Replies, Stored, settings::Target, webhook::Webhook};
use crate::{clock::Clock, identity::ChannelId, metrics::Metrics, progress::Progress};

/// How events are delivered.
#[derive(Debug, Clone)]
pub struct DeliveryConfig {
    /// The endpoint for everything (`events.url`), with one secret, or two while they are changed.
    pub endpoint: Option<Target>,
    /// How long the endpoint may take to answer.
    pub endpoint_timeout: Duration,
    /// How long an agent may take to answer.
    pub agent_timeout: Duration,
    /// When failures are tried again, and given up.
    pub backoff: Backoff,
    /// Attempts at a time.
    pub in_flight: usize,
    /// Of them to one host.
    pub per_host: usize,
    /// Of them for one channel and destination.
    pub per_channel: usize,
    /// Events held in memory for one destination, shared out between its channels.
    pub window: usize,
    /// Conversations remembered for one destination, shared out between its channels.
    pub conversations: usize,
    /// How long attempts under way may take to end when it stops.
    pub stop_grace: Duration,
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            endpoint_timeout: Duration::from_secs(10),
            agent_timeout: Duration::from_secs(60),
            backoff: Backoff::default(),
            in_flight: 512,
            per_host: 64,
            per_channel: 8,
            window: 2048,
            conversations: 8192,
            stop_grace: Duration::from_secs(5),
        }
    }
}

/// What delivery works with.
pub struct Delivery {
    /// How.
    pub config: DeliveryConfig,
    /// From where.
    pub outbox: Arc<dyn Outbox>,
    /// Who answers.
    pub handlers: Arc<dyn Handlers>,
    /// Where answers go.
    pub replies: Arc<dyn Replies>,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

/// The HTTP client could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no HTTP client for events: {0}")]
pub struct DeliveryError(String);

/// Delivery that runs. Dropping the last one stops it.
#[derive(Clone)]
pub struct DeliveryHandle {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    ended: watch::Receiver<bool>,
    stop: Arc<DropGuard>,
}

/// What the loop and its handles share. The lock is held for a moment, never over an await.
struct Shared {
    plan: Mutex<Plan>,
    wake: Notify,
}

impl Delivery {
    /// Starts delivering, on the runtime it is called in.
    pub fn start(self, progress: &Progress) -> Result<DeliveryHandle, DeliveryError> {
        let Self { config, outbox, handlers, replies, metrics, clock } = self;
        let limits = Limits {
            in_flight: config.in_flight.max(1),
            of_site: config.per_host.max(1),
            of_channel: config.per_channel.max(1),
            window: config.window,
            lanes: config.conversations,
            unwritten: 4096,
        };
        let webhook = Webhook::new(config.per_host.clamp(1, 16)).map_err(DeliveryError)?;
        let shared = Arc::new(Shared { plan: Mutex::new(Plan::new(limits, config.backoff)), wake: Notify::new() });
        let courier = Courier {
            endpoint: config.endpoint,
            endpoint_timeout: config.endpoint_timeout,
            agent_timeout: config.agent_timeout,
            handlers,
            replies,
            webhook,
            clock: clock.clone(),
        };
        let (ended_sender, ended) = watch::channel(false);
        let stop = CancellationToken::new();
        let engine = Engine {
            shared: shared.clone(),
            courier: Arc::new(courier),
            outbox,
            metrics,
            clock: clock.clone(),
            stamp: progress.register("delivery", Duration::from_secs(5)),
            stop: stop.clone(),
            stop_grace: config.stop_grace,
        };
        tokio::spawn(async move {
            engine.run().await;
            // Nobody may be left to hear it.
            let _ = ended_sender.send(true);
        });
        Ok(DeliveryHandle { shared, clock, ended, stop: Arc::new(stop.drop_guard()) })
    }
}

impl DeliveryHandle {
    /// Everything that [`Outbox::append`] returned, events without a destination included, as soon as it returned:
    /// by their gapless `seq` it is seen that none is missing, so that they are delivered without reading them again.
    pub fn on_stored(&self, stored: Vec<Stored>) {
        self.change(|plan| stored.into_iter().for_each(|stored| plan.push(stored)));
    }

    /// A channel's handler was set or changed: what waits for it is tried at once.
    pub fn handler_changed(&self, channel: ChannelId) {
        let now = now(&*self.clock);
        self.change(|plan| plan.handler_changed(channel, now));
    }

    /// Dead letters were opened again. (Without being told, it finds them some seconds later.)
    pub fn rescan(&self) {
        self.change(Plan::rescan);
    }

    /// Begins nothing new, lets what is under way end within the grace period, and returns when all is done. What was not
    /// delivered stays in the outbox.
    pub async fn stop(&self) {
        self.change(Plan::stop);
        self.stop.token().cancel();
        let mut ended = self.ended.clone();
        // An error means that the loop is gone, which is what is waited for.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    fn change(&self, change: impl FnOnce(&mut Plan)) {
        change(&mut self.shared.plan.lock().expect("delivery plan"));
        self.shared.wake.notify_one();
    }
}

fn now(clock: &dyn Clock) -> Now {
    Now { mono: clock.boottime(), wall_ms: clock.wall_ms() }
}

#[cfg(test)]
mod tests;
