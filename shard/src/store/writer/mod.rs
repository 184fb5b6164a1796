//! One thread a file, and group commit: what has queued up runs in one transaction, and one fsync confirms it all.
//!
//! Callers hand in a piece of work and await its outcome; no transaction spans an await. Each piece runs in a savepoint
//! of its own: one that fails is rolled back alone. The outcome is told after the commit, never before. The thread
//! sleeps while there is nothing to do.
//!
//! A sync is what costs, so that fewer of them are made than there are writes: what nobody waits for joins what comes
//! next, and a write that leads to another one of this process keeps its transaction open for that one
//! ([`Writer::write_leading`]).

mod op;
#[cfg(test)]
mod tests;
mod thread;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::oneshot;

use self::{
    op::{Early, Kind, Queued, Waiting, Work},
    thread::Thread,
};
use super::{OpError, StoreError};

/// The handle of a file's thread. Dropping it lets the thread finish what it was given and joins it.
pub(crate) struct Writer {
    path: PathBuf,
    shown: String,
    sender: Option<Sender<Queued>>,
    thread: Option<JoinHandle<()>>,
    waiting: Arc<Waiting>,
}

/// Whether each transaction must find the file's token as it was when we opened it.
pub(crate) type Token = Option<i64>;

impl Writer {
    /// Starts the thread on an open connection.
    pub(crate) fn start(path: &Path, connection: Connection, token: Token) -> Result<Self, StoreError> {
        let shown = path.display().to_string();
        let waiting = Arc::new(Waiting { started: Instant::now(), since: AtomicU64::new(0) });
        let (sender, receiver) = channel();
        let thread = Thread {
            wal: PathBuf::from(format!("{shown}-wal")),
            path: shown.clone(),
            connection,
            token,
            waiting: waiting.clone(),
        };
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let thread = std::thread::Builder::new()
            .name(name)
            .stack_size(512 << 10)
            .spawn(move || thread.run(&receiver))
            .map_err(|error| StoreError::Unavailable { path: shown.clone(), cause: error.to_string() })?;
        Ok(Self { path: path.to_owned(), shown, sender: Some(sender), thread: Some(thread), waiting })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// For how long the oldest unfinished piece of work has waited.
    pub(crate) fn waiting(&self) -> Option<Duration> {
        match self.waiting.since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(self.waiting.started.elapsed().saturating_sub(Duration::from_millis(since - 1))),
        }
    }

    /// Writes; durable when it returns `Ok`. The work is done even if the caller stops waiting.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write_then(work, |_| {}).await
    }

    /// Writes, and runs `after` on the thread once that is durable, whether or not the caller still waits.
    pub(crate) async fn write_then<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
        after: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(Kind::Write, work, None, after).await
    }

    /// Like [`Writer::write`], for a write that leads to another one: `tell` is run on the thread *before* this is
    /// stored, and what comes of it within a few milliseconds is stored in the same transaction. Whoever is told may
    /// do nothing before a write of his own is durable; that one is never durable without this. Should this not be
    /// stored after all, `undo` is run.
    pub(crate) async fn write_leading<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
        tell: impl FnOnce(&T) + Send + 'static,
        undo: impl FnOnce() + Send + 'static,
    ) -> Result<T, StoreError> {
        let early = Early { tell: Box::new(tell), undo: Box::new(undo) };
        self.ask(Kind::Leading, work, Some(early), |_| {}).await
    }

    /// Like [`Writer::write_then`], for what nothing visible waits for: it may take some milliseconds more, to share the
    /// transaction of what comes next instead of having one of its own.
    pub(crate) async fn write_patiently<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
        after: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(Kind::Patient, work, None, after).await
    }

    /// Reads; what it sees is durable when it returns.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(Kind::Read, work, None, |_| {}).await
    }

    /// Writes without anybody waiting for it.
    pub(crate) fn post(&self, work: impl FnOnce(&Connection) -> Result<(), OpError> + Send + 'static) {
        let op = Box::new(Work {
            kind: Kind::Write,
            work: Some(work),
            value: None,
            early: None,
            undo: None,
            after: |_: &()| {},
            reply: None,
        });
        if let Some(sender) = &self.sender {
            let _ = sender.send(Queued { op, at: Instant::now() });
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        kind: Kind,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
        early: Option<Early<T>>,
        after: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = || StoreError::Closed { path: self.shown.clone() };
        let (reply, answer) = oneshot::channel();
        let op = Box::new(Work { kind, work: Some(work), value: None, early, undo: None, after, reply: Some(reply) });
        let sender = self.sender.as_ref().ok_or_else(closed)?;
        sender.send(Queued { op, at: Instant::now() }).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread has been printed by it; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}
