//! The embedded adapters: the suites on SQLite files, and what only they promise.

mod directory;
mod disk;
mod import;
mod kill;
mod lease_model;
mod model;
mod outbox;
mod queue;
mod registry;

use std::{path::Path, sync::Arc};

use shard::{
    clock::SystemClock,
    identity::ShardId,
    registry::Holder,
    store::{SlotStore, StoreError},
};
use tempfile::TempDir;

/// A data directory of its own.
pub(crate) fn data_dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// One life of a slot.
pub(crate) fn holder(shard: ShardId, incarnation: u64) -> Holder {
    Holder { worker: format!("box-{}", shard.index), incarnation }
}

/// Opens a slot's file in one of its lives.
pub(crate) fn open_slot(dir: &Path, shard: ShardId, incarnation: u64) -> Result<Arc<SlotStore>, StoreError> {
    SlotStore::open(dir, shard, &holder(shard, incarnation), Arc::new(SystemClock))
}
