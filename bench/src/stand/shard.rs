//! A whole shard in this process, over the adapters that are asked for: what `shardvisor run` runs, with another network
//! and channels that nobody had to add.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use shard::{
    channel::{RampConfig, RosterConfig},
    clock::SystemClock,
    directory::{ChannelSpec, Directory, DirectoryError},
    dispatch::RegistryBook,
    identity::{ChannelId, ShardId},
    metrics::Metrics,
    platform::Platform,
    progress::Progress,
    queue::{AmqpConfig, AmqpQueue, EmbeddedQueue, Queue, RetryPolicy},
    registry::{EmbeddedRegistry, Holder, RedisOptions, RedisRegistry, RedisUrl, Registry},
    run::{self, ShardPorts, ShardSettings},
    sink::{
        DeliveryConfig, Outbox,
        outbox::{AmqpOutbox, EmbeddedOutbox},
    },
    standing::Standing,
    store::{BoxStore, SlotStore},
};
use tokio_util::sync::CancellationToken;

use super::Failure;

/// What a shard is made of.
pub struct ShardPlan {
    /// Its data directory.
    pub dir: PathBuf,
    /// Which slot it is.
    pub shard: ShardId,
    /// A broker's address; the embedded queue without one.
    pub queue_url: Option<String>,
    /// A Redis's address; the embedded registry without one.
    pub registry_url: Option<String>,
    /// How the Redis is used.
    pub registry: RedisOptions,
    /// Jobs of a queue in hand.
    pub prefetch: u16,
    /// When a failed job is tried again.
    pub retry: RetryPolicy,
    /// All channels there are.
    pub channels: Vec<Arc<ChannelSpec>>,
    /// Where it counts.
    pub metrics: Arc<Metrics>,
}

/// Channels that are what they are.
struct Fixed(Vec<Arc<ChannelSpec>>);

#[async_trait]
impl Directory for Fixed {
    async fn channels(&self) -> Result<Vec<Arc<ChannelSpec>>, DirectoryError> {
        Ok(self.0.clone())
    }

    async fn set_enabled(&self, _: ChannelId, _: bool) -> Result<bool, DirectoryError> {
        Err(DirectoryError::Refused("these channels do not change".to_owned()))
    }

    async fn changed(&self) {
        std::future::pending().await
    }
}

/// Runs it until `stop`. Whoever was in the slot before must be dead. `network` is given the life's number.
pub async fn run<P: Platform>(
    plan: ShardPlan,
    network: impl FnOnce(u64) -> P,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let clock = Arc::new(SystemClock);
    let worker = format!("bench-{}", plan.shard.index);
    let shared = BoxStore::open(&plan.dir, clock.clone())?;
    let local = Holder { worker: worker.clone(), incarnation: shared.next_incarnation(&worker).await? };
    let slot = SlotStore::open(&plan.dir, plan.shard, &local, clock.clone())?;
    let (registry, holder): (Arc<dyn Registry>, Holder) = match &plan.registry_url {
        None => (Arc::new(EmbeddedRegistry::new(shared, Some(slot.clone()))), local),
        Some(url) => {
            let url: RedisUrl = url.parse()?;
            let incarnation = next_life(&url, &worker, &plan.registry).await;
            let holder = Holder { worker, incarnation };
            (Arc::new(RedisRegistry::connect(url, holder.clone(), plan.registry.clone())), holder)
        }
    };
    let (queue, outbox): (Arc<dyn Queue>, Arc<dyn Outbox>) = match &plan.queue_url {
        None => (Arc::new(EmbeddedQueue::new(slot.clone())), Arc::new(EmbeddedOutbox::new(slot))),
        Some(url) => {
            let amqp = AmqpConfig::new([url.as_str()])?.named(holder.worker.clone());
            let outbox =
                AmqpOutbox::new(amqp.clone(), Arc::new(RegistryBook::new(registry.clone())), plan.shard, clock.clone());
            (Arc::new(AmqpQueue::new(amqp)), Arc::new(outbox))
        }
    };
    let network: Arc<dyn Platform> = Arc::new(network(holder.incarnation));
    let ports = ShardPorts {
        queue,
        registry,
        directory: Arc::new(Fixed(plan.channels)),
        outbox,
        platforms: vec![network],
        metrics: plan.metrics,
        clock,
        progress: Progress::default(),
    };
    let roster = RosterConfig {
        supersede: true,
        cold_start: false,
        ramp: RampConfig { per_second: 10_000, ..RampConfig::default() },
        ..RosterConfig::new(plan.shard, holder)
    };
    let settings = ShardSettings {
        roster,
        delivery: DeliveryConfig::default(),
        prefetch: plan.prefetch,
        retry: plan.retry,
        grace: Duration::from_secs(5),
        patience: Duration::from_secs(30),
        retention: Duration::from_secs(3600),
    };
    Ok(run::run(settings, ports, Standing::default(), stop).await?)
}

/// The number of this life; there is no work without it, so that it is waited for.
async fn next_life(url: &RedisUrl, worker: &str, options: &RedisOptions) -> u64 {
    let asking = Holder { worker: worker.to_owned(), incarnation: 0 };
    let registry = RedisRegistry::connect(url.clone(), asking, options.clone());
    loop {
        match registry.next_incarnation(worker).await {
            Ok(life) => return life,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Stops a shard when whoever started this process closes its standard input, or dies.
pub fn stop_with_input() -> CancellationToken {
    static WATCHED: OnceLock<CancellationToken> = OnceLock::new();
    let token = WATCHED.get_or_init(|| {
        let token = CancellationToken::new();
        let stops = token.clone();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            stops.cancel();
        });
        token
    });
    token.clone()
}
