//! Sessions on real files: what survives, who may write, what is refused, what comes back from a bucket.

mod against_memory;
mod at_rest;
mod boxes;

use std::{path::Path, sync::Arc};

use super::*;
use crate::{
    clock::ManualClock,
    identity::{ChannelId, ShardId},
    keyring::Keyring,
    registry::{Fence, Holder},
    store::SlotStore,
};

/// A box: a data directory, its key file, maybe a bucket.
pub(super) struct TestBox {
    pub(super) dir: tempfile::TempDir,
    pub(super) keyring: Arc<Keyring>,
    pub(super) bucket: Option<Bucket>,
    pub(super) clock: ManualClock,
}

impl TestBox {
    pub(super) fn new(bucket: Option<Bucket>) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let keyring = Arc::new(Keyring::open(&dir.path().join("secret.key")).expect("keys"));
        Self { dir, keyring, bucket, clock: ManualClock::at(1_700_000_000_000) }
    }

    /// Another box with the same key file and bucket.
    pub(super) fn other(&self) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("secret.key");
        std::fs::copy(self.dir.path().join("secret.key"), &path).expect("copied");
        let keyring = Arc::new(Keyring::open(&path).expect("keys"));
        Self { dir, keyring, bucket: self.bucket.clone(), clock: self.clock.clone() }
    }

    pub(super) fn store(&self, incarnation: u64) -> Arc<SlotStore> {
        slot(self.dir.path(), ShardId { index: 0, count: 1 }, incarnation, &self.clock)
    }

    pub(super) fn keeper(&self, incarnation: u64) -> Arc<SessionKeeper> {
        self.keeper_of(self.store(incarnation))
    }

    pub(super) fn keeper_of(&self, store: Arc<SlotStore>) -> Arc<SessionKeeper> {
        let policy = SnapshotPolicy { lag: std::time::Duration::ZERO, ..SnapshotPolicy::default() };
        SessionKeeper::new(store, self.keyring.clone(), self.bucket.clone(), policy, Arc::new(self.clock.clone()))
    }
}

pub(super) fn slot(dir: &Path, shard: ShardId, incarnation: u64, clock: &ManualClock) -> Arc<SlotStore> {
    let holder = Holder { worker: "test".into(), incarnation };
    SlotStore::open(dir, shard, &holder, Arc::new(clock.clone())).expect("opened")
}

pub(super) fn channel() -> ChannelId {
    ChannelId::from_uuid(uuid::Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0001))
}

pub(super) fn right(token: u64) -> Right {
    Right { fence: Fence { channel: channel(), token }, held: Arc::new(|| true) }
}

pub(super) async fn open(keeper: &SessionKeeper, token: u64) -> Opened {
    keeper.open(right(token)).await.expect("opened")
}
