//! A shard from its first to its last moment: start order, the loop, drain order.
//!
//! | step | why in this place |
//! |---|---|
//! | publish the layout | a producer with another count must be refused from the first moment |
//! | claim the slot | only its holder may read the slot's queues; until then this is a warm standby |
//! | delivery, roster | events flow before jobs do, and channels are claimed in one pass |
//! | workers | only now is a job taken from a queue; at the start of a layout the jobs of the one before come first |
//! | ready | the first claim pass is over and every queue is subscribed |
//! | … drain: workers | consumption stops at once, what has not begun goes back, what runs gets its grace |
//! | roster | connections are closed, then their leases given back |
//! | delivery | what is under way ends; the rest lies in the outbox |
//! | the slot's lease | last, when nothing is left that it protects |

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    task::JoinSet,
    time::{Instant, interval_at, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    channel::{Roster, RosterConfig, RosterPorts},
    clock::Clock,
    directory::Directory,
    dispatch::{Context, QueueWorker, QueuedReplies, RosterHandlers, Stragglers, WorkerOptions, older_jobs_first},
    identity::{QueueBase, QueueName, ShardId},
    metrics::Metrics,
    platform::Platform,
    progress::Progress,
    queue::{Limits, Queue, QueueError, RetryPolicy},
    registry::{Claim, Holder, LEASE, Layout, Lease, RENEW_EVERY, Registry, Resource, SELF_FENCE},
    sink::{Delivery, DeliveryConfig, DeliveryHandle, Destination, Outbox, Stored},
    standing::Standing,
};

/// How a shard works.
#[derive(Debug, Clone)]
pub struct ShardSettings {
    /// The roster's settings, with which slot this is and who holds it.
    pub roster: RosterConfig,
    /// How events are delivered.
    pub delivery: DeliveryConfig,
    /// Jobs of one queue in hand.
    pub prefetch: u16,
    /// When a failed job is tried again.
    pub retry: RetryPolicy,
    /// How long running jobs may take to end when the shard stops.
    pub grace: Duration,
    /// How long a job waits for a channel that is starting before that counts as a failed attempt.
    pub patience: Duration,
    /// How long events without a destination are kept.
    pub retention: Duration,
}

/// What a shard works with.
#[derive(Clone)]
pub struct ShardPorts {
    /// Where jobs come from.
    pub queue: Arc<dyn Queue>,
    /// Who owns what.
    pub registry: Arc<dyn Registry>,
    /// Which channels are wanted.
    pub directory: Arc<dyn Directory>,
    /// Where events go.
    pub outbox: Arc<dyn Outbox>,
    /// The networks that this build knows.
    pub platforms: Vec<Arc<dyn Platform>>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where loops show that they get on.
    pub progress: Progress,
}

/// What is lacking when leases can't be renewed.
const REGISTRY: &str = "registry";

/// Why a shard ended other than by being asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// Somebody else holds the slot now.
    #[error("slot {0} is held by somebody else now")]
    SlotLost(u32),
    /// Events can't be delivered at all.
    #[error("{0}")]
    Delivery(String),
}

/// Runs a shard until `stop`.
pub async fn run(
    settings: ShardSettings,
    ports: ShardPorts,
    standing: Standing,
    stop: CancellationToken,
) -> Result<(), ShardError> {
    let (shard, holder) = (settings.roster.shard, settings.roster.holder.clone());
    let waited = waiting_before(&ports, shard).await;
    let Some(layout) = publish_layout(&ports, shard, &standing, &stop).await else { return Ok(()) };
    standing.published(layout);
    let Some(slot) = claim_slot(&settings, &ports, &standing, &stop).await else { return Ok(()) };

    let delivery: Arc<OnceLock<DeliveryHandle>> = Arc::default();
    let on_stored: Arc<dyn Fn(Vec<Stored>) + Send + Sync> = {
        let delivery = delivery.clone();
        // What is stored before the delivery runs lies in the outbox, where it looks first.
        Arc::new(move |stored| {
            if let Some(delivery) = delivery.get() {
                delivery.on_stored(stored);
            }
        })
    };
    let roster = Roster::new(
        settings.roster.clone(),
        RosterPorts {
            registry: ports.registry.clone(),
            directory: ports.directory.clone(),
            outbox: ports.outbox.clone(),
            platforms: ports.platforms.clone(),
            on_stored: on_stored.clone(),
            on_changed: {
                let delivery = delivery.clone();
                Arc::new(move |channel| {
                    if let Some(delivery) = delivery.get() {
                        delivery.handler_changed(channel);
                    }
                })
            },
            metrics: ports.metrics.clone(),
            clock: ports.clock.clone(),
            progress: ports.progress.clone(),
        },
    );
    let handle = roster.handle();
    let started = Delivery {
        config: settings.delivery.clone(),
        outbox: ports.outbox.clone(),
        handlers: Arc::new(RosterHandlers::new(handle.clone())),
        replies: Arc::new(QueuedReplies::new(shard, ports.queue.clone())),
        metrics: ports.metrics.clone(),
        clock: ports.clock.clone(),
    }
    .start(&ports.progress)
    .map_err(|error| ShardError::Delivery(error.to_string()))?;
    let _ = delivery.set(started.clone());
    let roster_loop = tokio::spawn(roster.run());

    let context = Arc::new(Context {
        shard,
        standing: standing.clone(),
        holder: holder.clone(),
        queue: ports.queue.clone(),
        registry: ports.registry.clone(),
        channels: Arc::new(handle.clone()),
        outbox: ports.outbox.clone(),
        on_stored,
        job_events_to: settings.delivery.endpoint.iter().map(|_| Destination::Endpoint).collect(),
        retry: settings.retry,
        patience: settings.patience,
        grace: settings.grace,
        clock: ports.clock.clone(),
        metrics: ports.metrics.clone(),
    });
    let work_stop = CancellationToken::new();
    let mut workers = start_workers(&context, layout, waited, &settings, &ports, &work_stop).await;
    standing.holds(handle.clone());

    let mut is_ready = handle.ready();
    let mut ready_told = false;
    ports.metrics.registry_reachable.set(1);
    let renewing = keep_slot(&ports, &standing, &holder, slot);
    tokio::pin!(renewing);
    let mut prune_at = interval_at(Instant::now() + Duration::from_secs(60), Duration::from_secs(3600));
    let ended = loop {
        tokio::select! {
            () = stop.cancelled() => break Ok(()),
            lost = &mut renewing => break Err(lost),
            changed = is_ready.wait_for(|ready| *ready), if !ready_told => {
                ready_told = true;
                if changed.is_ok() {
                    info!(shard = shard.index, channels = handle.states().len(), "ready");
                    standing.claimed();
                }
            }
            _ = prune_at.tick() => prune(&ports, settings.retention).await,
        }
    };
    standing.stops();
    // On an error somebody else may own all this by now: the caller ends the process, so that nothing more is done.
    ended?;
    info!(shard = shard.index, "draining");
    work_stop.cancel();
    while workers.join_next().await.is_some() {}
    handle.drain().await;
    let _ = roster_loop.await;
    started.stop().await;
    if let Err(error) = ports.registry.release(&holder, &[slot]).await {
        warn!(%error, "the slot's lease could not be given back; it ends by itself");
    }
    Ok(())
}

/// How many jobs lie in the own queues before the layout is published: what comes later was written by the new one.
async fn waiting_before(ports: &ShardPorts, shard: ShardId) -> [u64; 3] {
    let mut waiting = [0; 3];
    for (count, base) in waiting.iter_mut().zip(QueueBase::ALL) {
        // A queue that is missing holds none; one that can't be asked now is taken for one that holds as many as it likes.
        *count = match ports.queue.depth(shard.queue(base)).await {
            Ok(depth) => depth.ready,
            Err(QueueError::Missing { .. }) => 0,
            Err(_) => u64::MAX,
        };
    }
    waiting
}

async fn publish_layout(
    ports: &ShardPorts,
    shard: ShardId,
    standing: &Standing,
    stop: &CancellationToken,
) -> Option<Layout> {
    loop {
        match ports.registry.publish_layout(shard.count).await {
            Ok(layout) => return Some(layout),
            Err(error) => {
                warn!(%error, "the layout can't be published; trying again");
                standing.waits_for(Some(error.to_string()));
                tokio::select! {
                    () = stop.cancelled() => return None,
                    () = sleep(Duration::from_secs(1)) => {}
                }
            }
        }
    }
}

/// Waits until the slot is ours. While somebody else holds it this process is a warm standby.
async fn claim_slot(
    settings: &ShardSettings,
    ports: &ShardPorts,
    standing: &Standing,
    stop: &CancellationToken,
) -> Option<Lease> {
    let RosterConfig { shard, holder, supersede, .. } = &settings.roster;
    let mut told = String::new();
    loop {
        let (why, pause) = match ports.registry.claim(holder, &[Resource::Slot(shard.index)], *supersede).await {
            Ok(claims) => match claims.into_iter().next() {
                Some(Claim::Held(lease)) => {
                    standing.waits_for(None);
                    return Some(lease);
                }
                Some(Claim::Taken { by, remaining }) => {
                    (format!("slot {} is held by {}", shard.index, by.worker), remaining.min(Duration::from_secs(1)))
                }
                None => ("the registry gave no answer to a claim".to_owned(), Duration::from_secs(1)),
            },
            Err(error) => (error.to_string(), Duration::from_secs(1)),
        };
        if told != why {
            info!(shard = shard.index, why = %why, "waiting for the slot");
            told.clone_from(&why);
        }
        standing.waits_for(Some(why));
        tokio::select! {
            () = stop.cancelled() => return None,
            () = sleep(pause.max(Duration::from_millis(50))) => {}
        }
    }
}

async fn start_workers(
    context: &Arc<Context>,
    layout: Layout,
    waited: [u64; 3],
    settings: &ShardSettings,
    ports: &ShardPorts,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    let sorted = CancellationToken::new();
    for base in QueueBase::ALL {
        context.unsubscribed(context.shard.queue(base), "not subscribed yet");
    }
    join_all(QueueBase::ALL.map(|base| declare(context, context.shard.queue(base), stop))).await;
    for base in QueueBase::ALL {
        let queue = context.shard.queue(base);
        let (name, running) = match base {
            QueueBase::Main => ("consume", 256),
            QueueBase::Media => ("consume_media", 16),
            QueueBase::Avatars => ("consume_avatars", 16),
        };
        let limits = Limits { running, ..Limits::default() };
        let options = WorkerOptions { prefetch: settings.prefetch, limits };
        let stamp = ports.progress.register(name, Duration::from_secs(5));
        let (context, sorted, stop) = (context.clone(), sorted.clone(), stop.clone());
        workers.spawn(async move {
            context.unsubscribed(queue, "jobs of the layout before come first");
            older_jobs_first(&context, layout.epoch, &sorted, &stamp, &stop).await;
            QueueWorker::new(context, queue, options).run(stamp, stop).await;
        });
    }
    let stamp = ports.progress.register("stragglers", Duration::from_secs(30));
    workers.spawn(Stragglers::new(context.clone(), layout.epoch, waited, sorted).run(stamp, stop.clone()));
    workers
}

async fn declare(context: &Context, queue: QueueName, stop: &CancellationToken) {
    let mut told = false;
    while let Err(error) = context.queue.declare(queue).await {
        context.unsubscribed(queue, &error.to_string());
        if !std::mem::replace(&mut told, true) {
            warn!(queue = %queue, %error, "a queue can't be declared; trying again");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Renews the slot's lease; returns when it is lost, or can no longer be proven.
async fn keep_slot(ports: &ShardPorts, standing: &Standing, holder: &Holder, slot: Lease) -> ShardError {
    let Resource::Slot(index) = slot.resource else { return ShardError::SlotLost(0) };
    let mut proven = ports.clock.boottime();
    let mut pause = RENEW_EVERY;
    let mut told = false;
    loop {
        sleep(pause).await;
        let began = ports.clock.boottime();
        if began.saturating_sub(proven) >= LEASE {
            // It slept past its lease: somebody else may hold the slot by now. Nothing is done before that is known.
            warn!(shard = index, "the slot's lease ended while this process did not run");
        }
        match ports.registry.renew(holder, &[slot]).await {
            Ok(renewal) if renewal.lost.is_empty() => {
                (proven, pause, told) = (began, RENEW_EVERY, false);
                ports.metrics.registry_reachable.set(1);
                standing.has(REGISTRY);
            }
            Ok(_) => return ShardError::SlotLost(index),
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    warn!(shard = index, %error, "the slot's lease could not be renewed; trying again");
                }
                ports.metrics.registry_reachable.set(0);
                standing.lacks(REGISTRY, error.to_string());
                pause = Duration::from_millis(500);
                if ports.clock.boottime().saturating_sub(proven) >= SELF_FENCE {
                    return ShardError::SlotLost(index);
                }
            }
        }
    }
}

async fn prune(ports: &ShardPorts, retention: Duration) {
    match ports.outbox.prune(retention).await {
        Ok(0) => {}
        Ok(events) => info!(events, "events without a destination were removed after their retention"),
        Err(error) => warn!(%error, "old events could not be removed"),
    }
}
