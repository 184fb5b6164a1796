//! One thread a file, and group commit: what has queued up runs in one transaction, and one fsync confirms it all.
//!
//! Callers hand in a piece of work and await its outcome; no transaction spans an await. Each piece runs in a savepoint
//! of its own: one that fails is rolled back alone. The outcome is told after the commit, never before. The thread
//! sleeps while there is nothing to do.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{OpError, StoreError, open::BUSY_TIMEOUT};

/// At most this many pieces of work share a transaction.
const BATCH: usize = 512;
/// How long after the last write the WAL is looked at, and how long it may stay.
const SETTLE: Duration = Duration::from_secs(3);
const WAL_KEPT: u64 = 256 << 10;

/// A piece of work, its type erased.
trait Op: Send {
    fn writes(&self) -> bool;
    fn run(&mut self, connection: &Connection) -> Result<(), OpError>;
    fn finish(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct Work<T, F, A> {
    writes: bool,
    work: Option<F>,
    value: Option<T>,
    after: A,
    reply: Option<oneshot::Sender<Result<T, StoreError>>>,
}

impl<T, F, A> Op for Work<T, F, A>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, OpError> + Send,
    A: FnOnce(&T) + Send,
{
    fn writes(&self) -> bool {
        self.writes
    }

    fn run(&mut self, connection: &Connection) -> Result<(), OpError> {
        if let Some(work) = self.work.take() {
            self.value = Some(work(connection)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let this = *self;
        let answer = match (outcome, this.value) {
            (Ok(()), Some(value)) => {
                (this.after)(&value);
                Ok(value)
            }
            (Err(error), _) => Err(error),
            (Ok(()), None) => return,
        };
        if let Some(reply) = this.reply {
            // Whoever asked may have gone; the work is done all the same.
            let _ = reply.send(answer);
        }
    }
}

struct Queued {
    op: Box<dyn Op>,
    at: Instant,
}

/// Since when the oldest piece of work waits, for the check-in.
#[derive(Debug)]
struct Waiting {
    started: Instant,
    /// Milliseconds after `started`, plus one; 0 while there is nothing to do.
    since: AtomicU64,
}

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
        self.ask(true, work, after).await
    }

    /// Reads; what it sees is durable when it returns.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(false, work, |_| {}).await
    }

    /// Writes without anybody waiting for it.
    pub(crate) fn post(&self, work: impl FnOnce(&Connection) -> Result<(), OpError> + Send + 'static) {
        let op = Box::new(Work { writes: true, work: Some(work), value: None, after: |_: &()| {}, reply: None });
        if let Some(sender) = &self.sender {
            let _ = sender.send(Queued { op, at: Instant::now() });
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        writes: bool,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
        after: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = || StoreError::Closed { path: self.shown.clone() };
        let (reply, answer) = oneshot::channel();
        let op = Box::new(Work { writes, work: Some(work), value: None, after, reply: Some(reply) });
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

/// What the thread owns.
struct Thread {
    path: String,
    wal: PathBuf,
    connection: Connection,
    token: Token,
    waiting: Arc<Waiting>,
}

impl Thread {
    fn run(self, receiver: &Receiver<Queued>) {
        let mut batch = VecDeque::new();
        let mut written = false;
        loop {
            let first = if written {
                match receiver.recv_timeout(SETTLE) {
                    Ok(queued) => queued,
                    Err(RecvTimeoutError::Timeout) => {
                        self.truncate();
                        written = false;
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            } else {
                match receiver.recv() {
                    Ok(queued) => queued,
                    Err(_) => break,
                }
            };
            let since = first.at.saturating_duration_since(self.waiting.started).as_millis() as u64 + 1;
            self.waiting.since.store(since, Ordering::Relaxed);
            batch.push_back(first.op);
            while batch.len() < BATCH {
                match receiver.try_recv() {
                    Ok(queued) => batch.push_back(queued.op),
                    Err(_) => break,
                }
            }
            if batch.iter().any(|op| op.writes()) {
                written = true;
                while !batch.is_empty() {
                    self.transaction(&mut batch);
                }
            } else {
                let ours = self.check_token();
                for mut op in batch.drain(..) {
                    let read = |()| op.run(&self.connection).map_err(|error| error.at(&self.path));
                    let outcome = ours.clone().and_then(read);
                    op.finish(outcome);
                }
            }
            self.waiting.since.store(0, Ordering::Relaxed);
        }
    }

    fn statement(&self, sql: &str) -> Result<(), StoreError> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        done.map(|_| ()).map_err(|error| OpError::Sqlite(error).at(&self.path))
    }

    fn begin(&self) -> Result<(), StoreError> {
        self.statement("BEGIN IMMEDIATE")?;
        self.check_token().inspect_err(|_| self.rollback())
    }

    /// Nobody newer has opened the file since we did.
    fn check_token(&self) -> Result<(), StoreError> {
        let Some(token) = self.token else { return Ok(()) };
        let found: Result<i64, _> = self
            .connection
            .prepare_cached("SELECT token FROM owner")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)));
        match found {
            Ok(found) if found == token => Ok(()),
            Ok(_) => Err(StoreError::Fenced { path: self.path.clone() }),
            Err(error) => Err(OpError::Sqlite(error).at(&self.path)),
        }
    }

    fn rollback(&self) {
        // After some errors SQLite has rolled back by itself.
        if !self.connection.is_autocommit() {
            let _ = self.statement("ROLLBACK");
        }
    }

    /// Runs what is in the batch in one transaction. What is left in it afterwards must be tried in the next one.
    fn transaction(&self, batch: &mut VecDeque<Box<dyn Op>>) {
        if let Err(error) = self.begin() {
            batch.drain(..).for_each(|op| op.finish(Err(error.clone())));
            return;
        }
        let alone = batch.len() == 1;
        let mut ran: Vec<(Box<dyn Op>, Result<(), StoreError>)> = Vec::with_capacity(batch.len());
        while let Some(mut op) = batch.pop_front() {
            let outcome = if alone || !op.writes() {
                op.run(&self.connection).map_err(|error| error.at(&self.path))
            } else {
                self.in_savepoint(&mut op)
            };
            if let Err(error) = &outcome
                && self.connection.is_autocommit()
            {
                // The whole transaction is gone, and with it what had gone well.
                self.checkpoint();
                let error = error.clone();
                ran.push((op, outcome));
                ran.into_iter().for_each(|(op, outcome)| op.finish(Err(outcome.err().unwrap_or(error.clone()))));
                return;
            }
            ran.push((op, outcome));
        }
        let committed = if ran.iter().any(|(_, outcome)| outcome.is_ok()) {
            self.statement("COMMIT").inspect_err(|_| self.rollback())
        } else {
            self.rollback();
            Ok(())
        };
        if committed.is_err() {
            self.checkpoint();
        }
        for (op, outcome) in ran {
            op.finish(outcome.and_then(|()| committed.clone()));
        }
    }

    fn in_savepoint(&self, op: &mut Box<dyn Op>) -> Result<(), StoreError> {
        self.statement("SAVEPOINT op")?;
        let outcome = op.run(&self.connection).map_err(|error| error.at(&self.path));
        if self.connection.is_autocommit() {
            return outcome;
        }
        let undone = if outcome.is_err() { self.statement("ROLLBACK TO op") } else { Ok(()) };
        // What can't be undone alone is undone with all that shares its transaction.
        undone.and_then(|()| self.statement("RELEASE op")).inspect_err(|_| self.rollback())?;
        outcome
    }

    /// Empties a WAL that a burst has left long.
    fn truncate(&self) {
        if self.wal.metadata().is_ok_and(|wal| wal.len() > WAL_KEPT) {
            self.checkpoint();
        }
    }

    /// Moves the WAL into the file and empties it. After a failed write this is what may make room: a full disk has no
    /// space for a longer WAL, but the file may have pages to spare. Nobody is waited for: the next quiet moment is as
    /// good.
    fn checkpoint(&self) {
        let _ = self.connection.busy_timeout(Duration::ZERO);
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = self.connection.busy_timeout(BUSY_TIMEOUT);
    }
}
