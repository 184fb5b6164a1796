//! What the thread does: it takes what has queued up, runs it in one transaction, commits, and tells the outcomes.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{
    super::{OpError, StoreError, open::BUSY_TIMEOUT},
    Token,
    op::{Kind, Op, Queued, Waiting},
};

/// At most this many pieces of work share a transaction.
const BATCH: usize = 512;
/// How long patient work waits for company, and how much of it at most.
const PATIENCE: Duration = Duration::from_millis(10);
const PATIENT: usize = 32;
/// How long a transaction is kept open for what its last write leads to.
const FOLLOWS: Duration = Duration::from_millis(3);
/// How long after the last write the WAL is looked at, and how long it may stay. (Written over it is faster than grown.)
const SETTLE: Duration = Duration::from_secs(3);
const WAL_KEPT: u64 = 4 << 20;

/// What the thread owns.
pub(super) struct Thread {
    pub(super) path: String,
    pub(super) wal: PathBuf,
    pub(super) connection: Connection,
    pub(super) token: Token,
    pub(super) waiting: Arc<Waiting>,
}

/// What waits to be run, oldest first.
type Batch = VecDeque<Queued>;

fn count(batch: &Batch, kind: Kind) -> usize {
    batch.iter().filter(|queued| queued.op.kind() == kind).count()
}

/// Takes what has queued up.
fn drain(receiver: &Receiver<Queued>, batch: &mut Batch) {
    while batch.len() < BATCH
        && let Ok(queued) = receiver.try_recv()
    {
        batch.push_back(queued);
    }
}

/// Takes what has queued up; while there is nothing but patient work, for a moment also what comes.
fn gather(receiver: &Receiver<Queued>, first: Queued, batch: &mut Batch) {
    let until = first.at + PATIENCE;
    batch.push_back(first);
    drain(receiver, batch);
    while batch.len() < PATIENT && count(batch, Kind::Patient) == batch.len() {
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(queued) => batch.push_back(queued),
            Err(_) => break,
        }
        drain(receiver, batch);
    }
}

impl Thread {
    /// Until every handle is gone.
    pub(super) fn run(self, receiver: &Receiver<Queued>) {
        let mut batch = Batch::new();
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
            gather(receiver, first, &mut batch);
            if count(&batch, Kind::Read) < batch.len() {
                written = true;
                while !batch.is_empty() {
                    self.transaction(&mut batch, receiver);
                }
            } else {
                let ours = self.check_token();
                for Queued { mut op, .. } in batch.drain(..) {
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
    fn transaction(&self, batch: &mut Batch, receiver: &Receiver<Queued>) {
        if let Err(error) = self.begin() {
            batch.drain(..).for_each(|queued| queued.op.finish(Err(error.clone())));
            return;
        }
        let alone = batch.len() == 1;
        let mut ran: Vec<(Box<dyn Op>, Result<(), StoreError>)> = Vec::with_capacity(batch.len());
        let mut leads: Option<Instant> = None;
        loop {
            let Some(Queued { mut op, .. }) = batch.pop_front() else {
                // Nothing is left but what the last leading write may lead to.
                let Some(until) = leads.filter(|_| ran.len() < BATCH) else { break };
                match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(queued) => batch.push_back(queued),
                    Err(_) => break,
                }
                drain(receiver, batch);
                continue;
            };
            let kind = op.kind();
            let outcome = if (alone && ran.is_empty()) || kind == Kind::Read {
                op.run(&self.connection).map_err(|error| error.at(&self.path))
            } else {
                self.in_savepoint(&mut op)
            };
            match kind {
                Kind::Leading if outcome.is_ok() => leads = Some(Instant::now() + FOLLOWS),
                Kind::Write => leads = None,
                _ => {}
            }
            let failed = outcome.as_ref().err().cloned();
            ran.push((op, outcome));
            if let Some(error) = failed.filter(|_| self.connection.is_autocommit()) {
                // The whole transaction is gone, and with it what had gone well.
                self.checkpoint();
                ran.into_iter().for_each(|(op, outcome)| op.finish(Err(outcome.err().unwrap_or(error.clone()))));
                return;
            }
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
