//! A slot's file, opened by the one process that owns it: jobs, dead letters, send guard, outbox, offsets, fences.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rusqlite::Connection;

use super::{
    OpError, StoreError,
    open::make_directory,
    peers::{Index, Peers, Right, enter, file_name},
    writer::Writer,
};
use crate::{clock::Clock, identity::ShardId, registry::Holder};

/// The file of a slot that is ours. Each of its write transactions first checks that nobody newer has opened it, so
/// that a predecessor which wakes up late writes nothing.
pub struct SlotStore {
    shard: ShardId,
    holder: Holder,
    token: i64,
    writer: Arc<Writer>,
    peers: Arc<Peers>,
    clock: Arc<dyn Clock>,
}

impl SlotStore {
    /// Opens (or makes) the file. `Fenced` when a greater incarnation has opened it before.
    pub fn open(dir: &Path, shard: ShardId, holder: &Holder, clock: Arc<dyn Clock>) -> Result<Arc<Self>, StoreError> {
        make_directory(dir)?;
        let index: Index = (shard.count > 1).then_some(shard.index);
        let (writer, token) = enter(&dir.join(file_name(index)), Right::Owner, holder.incarnation, true)?;
        let peers = Peers::beside(dir, index, writer.clone());
        Ok(Arc::new(Self { shard, holder: holder.clone(), token, writer, peers, clock }))
    }

    /// Which slot.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Who opened it.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        self.peers.dir()
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.writer.path().to_owned()
    }

    /// For how long the oldest unfinished piece of work has waited, if there is any: more than a few seconds and the
    /// disk, or a process that was stopped inside a transaction, holds everything up.
    pub fn waiting(&self) -> Option<Duration> {
        self.writer.waiting()
    }

    /// All slot files of the directory, this one among them.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    pub(crate) fn index(&self) -> Index {
        (self.shard.count > 1).then_some(self.shard.index)
    }

    pub(crate) fn token(&self) -> i64 {
        self.token
    }

    pub(crate) fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.write(work).await
    }

    /// See [`Writer::write_patiently`].
    pub(crate) async fn write_patiently<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.write_patiently(work, |_| {}).await
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.read(work).await
    }
}

impl std::fmt::Debug for SlotStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotStore")
            .field("path", &self.writer.path())
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}
