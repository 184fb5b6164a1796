//! Opens what a shard works with: the adapters that the configuration chooses.
//!
//! The slot's file is there in any case: what was queued before a broker took over lies in it, and what proves that a
//! predecessor's process is dead. It and the registry number the lives of a slot each in their own way, so that moving from one registry to the other fences nobody.

use std::{fs, sync::Arc, time::Duration};

#[cfg(feature = "redis")]
use shard::registry::{RedisOptions, RedisRegistry, RedisUrl};
use shard::{
    clock::{Clock, SystemClock},
    media::{Media, MediaConfig},
    platform::{
        Platform,
        telegram::{Telegram, TelegramConfig, TelegramLimits},
    },
    queue::{EmbeddedQueue, Queue},
    registry::{EmbeddedRegistry, Holder, Registry},
    run::ShardPorts,
    sink::{Outbox, outbox::EmbeddedOutbox},
    store::{BoxStore, SlotStore, StoreError},
};
#[cfg(feature = "amqp")]
use shard::{dispatch::RegistryBook, queue::AmqpQueue, sink::outbox::AmqpOutbox};
use tracing::{info, warn};

use super::stock::Stock;
use crate::{
    commands::store_failure,
    config::{Config, PrivateAddresses, QueueAt, RegistryAt, plain},
    exit::Failure,
};

/// The ports, and who holds what is claimed through them.
pub(super) struct Opened {
    pub(super) ports: ShardPorts,
    pub(super) holder: Holder,
    slot: Arc<SlotStore>,
}

impl Opened {
    /// For how long the store has been at one piece of work, if that is remarkable.
    pub(super) fn store_waits(&self) -> Option<Duration> {
        self.slot.waiting()
    }
}

/// Opens everything. The slot's lock must be held.
pub(super) async fn open(config: &Config, index: u32, stock: &Stock) -> Result<Opened, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let shared = BoxStore::open(&config.data_dir, clock.clone()).map_err(store_failure)?;
    let worker = config.worker_id_of(index);
    let incarnation = patiently(|| shared.next_incarnation(&worker)).await?;
    let local = Holder { worker: worker.clone(), incarnation };
    let slot = SlotStore::open(&config.data_dir, config.shard(index), &local, clock.clone()).map_err(store_failure)?;

    let directory = crate::directory::open(config, index, &shared, &stock.metrics)?;
    let (registry, holder): (Arc<dyn Registry>, Holder) = match &config.registry.at {
        RegistryAt::Embedded => {
            let registry = EmbeddedRegistry::new(shared, Some(slot.clone()));
            // Before anything moves: a producer with another count must be refused from the first moment.
            let published = registry.publish_layout(config.shard_count).await;
            published.map_err(|error| Failure::Internal(error.to_string()))?;
            (Arc::new(registry), local)
        }
        #[cfg(feature = "redis")]
        RegistryAt::Redis(url) => {
            let holder =
                Holder { worker, incarnation: redis_incarnation(url, config.worker_id_of(index), stock).await };
            let options = RedisOptions { silence: config.bot_worker.heartbeat_timeout, ..RedisOptions::default() };
            (Arc::new(RedisRegistry::connect(url.clone(), holder.clone(), options)), holder)
        }
    };
    // What belongs to this shard's channels may lie in the files of a layout that was in force before.
    let imported = patiently(|| slot.import_foreign()).await?;
    if imported.rows > 0 {
        info!(rows = imported.rows, "took over what lay in the files of another layout");
    }
    let (queue, outbox): (Arc<dyn Queue>, Arc<dyn Outbox>) = match &config.queue.at {
        QueueAt::Embedded => (Arc::new(EmbeddedQueue::new(slot.clone())), Arc::new(EmbeddedOutbox::new(slot.clone()))),
        // Another box has to find the events where it finds the jobs.
        #[cfg(feature = "amqp")]
        QueueAt::Amqp(amqp) => {
            let amqp = amqp.clone().named(worker_name(config, index));
            let outbox = AmqpOutbox::new(
                amqp.clone(),
                Arc::new(RegistryBook::new(registry.clone())),
                config.shard(index),
                clock.clone(),
            );
            (Arc::new(AmqpQueue::new(amqp)), Arc::new(outbox))
        }
    };
    let ports = ShardPorts {
        queue,
        registry,
        directory,
        outbox,
        platforms: platforms(config, &slot, &clock)?,
        metrics: stock.metrics.clone(),
        clock,
        progress: stock.progress.clone(),
    };
    Ok(Opened { ports, holder, slot })
}

/// Another process of the box may hold a file for a while.
async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, StoreError>>,
{
    for _ in 0..3 {
        match ask().await {
            Err(StoreError::Unavailable { .. }) => warn!("the store is busy; trying again"),
            other => return other.map_err(store_failure),
        }
    }
    ask().await.map_err(store_failure)
}

/// What the broker shows as the name of a connection.
#[cfg(feature = "amqp")]
fn worker_name(config: &Config, index: u32) -> String {
    format!("shardvisor {}", config.worker_id_of(index))
}

/// The number of this life, from the registry. There is no work without it, so that it is waited for.
#[cfg(feature = "redis")]
async fn redis_incarnation(url: &RedisUrl, worker: String, stock: &Stock) -> u64 {
    let asking = Holder { worker: worker.clone(), incarnation: 0 };
    let registry = RedisRegistry::connect(url.clone(), asking, RedisOptions::default());
    let mut told = String::new();
    loop {
        match registry.next_incarnation(&worker).await {
            Ok(incarnation) => {
                stock.standing.waits_for(None);
                return incarnation;
            }
            Err(error) => {
                let error = error.to_string();
                if told != error {
                    warn!(%error, "waiting for the registry");
                    told.clone_from(&error);
                }
                stock.standing.waits_for(Some(error));
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

#[cfg_attr(not(feature = "whatsapp"), allow(unused_variables, reason = "who keeps sessions is built in with them"))]
fn platforms(
    config: &Config,
    #[cfg_attr(not(feature = "whatsapp"), allow(unused_variables, reason = "sessions lie there"))] slot: &Arc<
        SlotStore,
    >,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Arc<dyn Platform>>, Failure> {
    let telegram = TelegramConfig {
        api_url: config.telegram.api_url.clone(),
        poll_timeout: config.telegram.poll_timeout,
        limits: TelegramLimits {
            per_second: config.telegram.bot_messages_per_second,
            chat_per_second: config.telegram.chat_messages_per_second,
            group_per_minute: config.telegram.group_messages_per_minute,
            ..TelegramLimits::default()
        },
    };
    let media = media(config)?;
    let telegram = Telegram::new(telegram, media.clone(), clock.clone())
        .map_err(|error| Failure::Config(format!("telegram: {error}")))?;
    let mut platforms: Vec<Arc<dyn Platform>> = vec![Arc::new(telegram)];
    #[cfg(feature = "slack")]
    platforms.push(Arc::new(slack(config, &media, clock)?));
    #[cfg(feature = "whatsapp")]
    platforms.extend(super::whatsapp::platform(config, slot, &media, clock)?);
    Ok(platforms)
}

/// Files, and what removes those that are old.
fn media(config: &Config) -> Result<Arc<Media>, Failure> {
    let settings = MediaConfig {
        largest_file: config.media.largest_file,
        types: config.media.types.clone(),
        private_addresses: config.media.private_addresses == PrivateAddresses::Allow,
        ..MediaConfig::new(config.data_dir.join("media"))
    };
    let media = Media::open(settings).map_err(|error| Failure::Config(error.to_string()))?;
    let media = Arc::new(media);
    if let Some(keep) = config.media.keep {
        // It ends with the process.
        tokio::spawn(media.clone().tidy(keep));
    }
    Ok(media)
}

#[cfg(feature = "slack")]
fn slack(
    config: &Config,
    media: &Arc<Media>,
    clock: &Arc<dyn Clock>,
) -> Result<shard::platform::slack::Slack, Failure> {
    use shard::platform::slack::{Slack, SlackConfig, SlackLimits};

    let slack = SlackConfig {
        limits: SlackLimits { chat_per_second: config.slack.channel_messages_per_second, ..SlackLimits::default() },
        ..SlackConfig::new(config.slack.api_url.clone())
    };
    Slack::new(slack, media.clone(), clock.clone()).map_err(|error| Failure::Config(format!("slack: {error}")))
}

/// Writes the port in use where `shardvisor status` and tests look for it.
pub(crate) fn note_port(config: &Config, port: u16) -> Result<(), Failure> {
    let path = config.data_dir.join("health.port");
    // Static shards share the directory: each writes a file of its own, and the last one is shown.
    let temporary = config.data_dir.join(format!("health.port.{}", std::process::id()));
    fs::write(&temporary, format!("{port}\n"))
        .and_then(|()| fs::rename(&temporary, &path))
        .map_err(|error| Failure::Config(format!("{}: {}", path.display(), plain(&error))))
}
