//! The data directory and the servers as a command enters them: as the directory's owner, as a producer of the queues, with
//! errors put into exit codes.

use std::{os::unix::fs::MetadataExt, sync::Arc};

use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
#[cfg(feature = "amqp")]
use shard::queue::AmqpQueue;
#[cfg(feature = "redis")]
use shard::registry::{Holder, RedisOptions, RedisRegistry};
use shard::{
    clock::SystemClock,
    queue::{EmbeddedQueue, Queue, QueueError},
    registry::{EmbeddedRegistry, Layout, Registry},
    store::{BoxStore, StoreError},
};

use crate::{
    config::{Config, QueueAt, RegistryAt, plain},
    exit::Failure,
};

/// The queues, for a process that consumes none.
pub(super) fn queues(config: &Config) -> Arc<dyn Queue> {
    match &config.queue.at {
        QueueAt::Embedded => Arc::new(EmbeddedQueue::producer(&config.data_dir)),
        #[cfg(feature = "amqp")]
        QueueAt::Amqp(amqp) => Arc::new(AmqpQueue::new(*amqp.clone())),
    }
}

/// The registry, for a process that owns nothing.
pub(super) fn registry(config: &Config) -> Result<Arc<dyn Registry>, Failure> {
    Ok(match &config.registry.at {
        RegistryAt::Embedded => {
            let shared = BoxStore::open(&config.data_dir, Arc::new(SystemClock)).map_err(store_failure)?;
            Arc::new(EmbeddedRegistry::new(shared, None))
        }
        #[cfg(feature = "redis")]
        RegistryAt::Redis(url) => {
            let nobody = Holder { worker: "shardvisor-command".to_owned(), incarnation: 0 };
            Arc::new(RedisRegistry::connect(url.clone(), nobody, RedisOptions::default()))
        }
    })
}

/// The layout that the daemons have published, if any has.
pub(super) async fn published_layout(config: &Config) -> Result<Option<Layout>, Failure> {
    if matches!(config.registry.at, RegistryAt::Embedded) && !config.data_dir.join("box.db").exists() {
        return Ok(None);
    }
    registry(config)?.layout().await.map_err(|error| Failure::GaveUp(error.to_string()))
}

/// Becomes the owner of the data directory when run by root, so that no file in it belongs to root afterwards, which the
/// daemon could then not open. Secrets that only root may read must have been read before.
pub(super) fn enter(config: &Config) -> Result<(), Failure> {
    let dir = &config.data_dir;
    let about = match std::fs::metadata(dir) {
        Ok(about) => about,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::Config(format!("{}: {}", dir.display(), plain(&error)))),
    };
    if !about.is_dir() {
        return Err(Failure::Config(format!("{}: is no directory: expected the data directory", dir.display())));
    }
    let (owner, group) = (Uid::from_raw(about.uid()), Gid::from_raw(about.gid()));
    if geteuid().is_root() && !owner.is_root() {
        let become_owner = setgroups(&[]).and_then(|()| setgid(group)).and_then(|()| setuid(owner));
        become_owner.map_err(|error| {
            Failure::Internal(format!("{}: can't become its owner, user {owner}: {}", dir.display(), error.desc()))
        })?;
    }
    Ok(())
}

/// A runtime for one command.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::Internal(format!("no runtime: {}", plain(&error))))?.block_on(work)
}

/// Whose fault an error of the store is.
pub(crate) fn store_failure(error: StoreError) -> Failure {
    match error {
        StoreError::Refused { .. } | StoreError::Newer { .. } => Failure::Config(error.to_string()),
        StoreError::Unavailable { .. } | StoreError::Missing { .. } => Failure::GaveUp(error.to_string()),
        StoreError::Fenced { .. } | StoreError::ChannelFenced(_) | StoreError::Closed { .. } => {
            Failure::Internal(error.to_string())
        }
    }
}

/// Whose fault an error of a queue is.
pub(super) fn queue_failure(error: QueueError) -> Failure {
    match error {
        QueueError::Refused { .. } => Failure::Config(error.to_string()),
        QueueError::Unavailable { .. } | QueueError::Missing { .. } => Failure::GaveUp(error.to_string()),
        QueueError::Stale { .. } | QueueError::Fenced { .. } => Failure::Internal(error.to_string()),
    }
}
