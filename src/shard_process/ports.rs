//! Opens what a shard works with: the adapters that the configuration chooses.

use std::{fs, sync::Arc, time::Duration};

use shard::{
    clock::{Clock, SystemClock},
    directory::{DirectoryError, store::StoreDirectory},
    platform::{
        Platform,
        telegram::{Telegram, TelegramConfig, TelegramLimits},
    },
    queue::EmbeddedQueue,
    registry::{EmbeddedRegistry, Holder},
    run::ShardPorts,
    sink::outbox::EmbeddedOutbox,
    store::{BoxStore, SlotStore, StoreError},
};
use tracing::{info, warn};

use super::stock::Stock;
use crate::{
    commands::store_failure,
    config::{Config, plain},
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
    let holder = Holder { worker, incarnation };
    let slot = SlotStore::open(&config.data_dir, config.shard(index), &holder, clock.clone()).map_err(store_failure)?;

    let mut directory = StoreDirectory::open(shared.clone(), &config.key_file()).map_err(directory_failure)?;
    directory.listen(index);
    let registry = Arc::new(EmbeddedRegistry::new(shared, Some(slot.clone())));
    // What belongs to this shard's channels may lie in the files of a layout that was in force before.
    shard::registry::Registry::publish_layout(&*registry, config.shard_count)
        .await
        .map_err(|error| Failure::Internal(error.to_string()))?;
    let imported = patiently(|| slot.import_foreign()).await?;
    if imported.rows > 0 {
        info!(rows = imported.rows, "took over what lay in the files of another layout");
    }
    let ports = ShardPorts {
        queue: Arc::new(EmbeddedQueue::new(slot.clone())),
        registry,
        directory: Arc::new(directory),
        outbox: Arc::new(EmbeddedOutbox::new(slot.clone())),
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

fn directory_failure(error: DirectoryError) -> Failure {
    match error {
        DirectoryError::Unavailable(_) => Failure::GaveUp(error.to_string()),
        DirectoryError::Nonsense(_) | DirectoryError::Refused(_) => Failure::Config(error.to_string()),
    }
}

#[cfg_attr(not(feature = "whatsapp"), allow(unused_variables, reason = "who keeps sessions is built in with them"))]
fn platforms(
    config: &Config,
    slot: &Arc<SlotStore>,
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
    let telegram =
        Telegram::new(telegram, clock.clone()).map_err(|error| Failure::Config(format!("telegram: {error}")))?;
    #[allow(unused_mut, reason = "a build may know no other network")]
    let mut all: Vec<Arc<dyn Platform>> = vec![Arc::new(telegram)];
    #[cfg(feature = "whatsapp")]
    all.extend(super::whatsapp::platform(config, slot, clock)?);
    Ok(all)
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
