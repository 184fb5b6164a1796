//! `box.db`: what the processes of a box share. Everybody enters it by short transactions.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rusqlite::Connection;

use super::{
    OpError, StoreError,
    open::{connect, make_directory},
    schema::Kind,
    writer::Writer,
};
use crate::clock::Clock;

/// The shared file: leases, layout, directory.
pub struct BoxStore {
    dir: PathBuf,
    writer: Writer,
    clock: Arc<dyn Clock>,
    boot_id: String,
}

impl BoxStore {
    /// Opens (or makes) it.
    pub fn open(dir: &Path, clock: Arc<dyn Clock>) -> Result<Arc<Self>, StoreError> {
        // Where the kernel doesn't tell, every boot counts as the same one: leases then end by their time alone.
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self::open_in_boot(dir, clock, boot_id.trim())
    }

    /// Opens it as if in another boot of the machine: times since boot are only compared within one.
    pub fn open_in_boot(dir: &Path, clock: Arc<dyn Clock>, boot_id: &str) -> Result<Arc<Self>, StoreError> {
        make_directory(dir)?;
        let path = dir.join("box.db");
        let writer = Writer::start(&path, connect(&path, Kind::Box, true)?, None)?;
        Ok(Arc::new(Self { dir: dir.to_owned(), writer, clock, boot_id: boot_id.to_owned() }))
    }

    /// A number for the next life of a worker: greater than all before.
    pub async fn next_incarnation(&self, worker: &str) -> Result<u64, StoreError> {
        let worker = worker.to_owned();
        let next: i64 = self
            .writer
            .write(move |connection| {
                let sql = "INSERT INTO incarnations (worker, last) VALUES (?1, 1)
                           ON CONFLICT (worker) DO UPDATE SET last = last + 1 RETURNING last";
                Ok(connection.prepare_cached(sql)?.query_row([worker], |row| row.get(0))?)
            })
            .await?;
        Ok(next as u64)
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// For how long the oldest unfinished piece of work has waited, if there is any.
    pub fn waiting(&self) -> Option<Duration> {
        self.writer.waiting()
    }

    pub(crate) fn boot_id(&self) -> &str {
        &self.boot_id
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

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.read(work).await
    }
}

impl std::fmt::Debug for BoxStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoxStore").field("path", &self.writer.path()).finish_non_exhaustive()
    }
}
