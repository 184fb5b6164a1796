//! A piece of work with its type erased, and how long the oldest one has waited.

use std::{sync::atomic::AtomicU64, time::Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::super::{OpError, StoreError};

/// How a piece of work is to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only reads: alone it needs no transaction.
    Read,
    /// It writes, and what comes next waits for it.
    Write,
    /// It writes, and nothing visible waits for it: it may join the next transaction.
    Patient,
    /// It writes, and whoever was told of it early will have something to write soon: the transaction waits for that.
    Leading,
}

/// Told what was written before it is stored; told again, should it not be stored after all. Both on the thread.
pub(super) struct Early<T> {
    pub(super) tell: Box<dyn FnOnce(&T) + Send>,
    pub(super) undo: Box<dyn FnOnce() + Send>,
}

/// A piece of work, its type erased.
pub(super) trait Op: Send {
    fn kind(&self) -> Kind;
    fn run(&mut self, connection: &Connection) -> Result<(), OpError>;
    fn finish(self: Box<Self>, outcome: Result<(), StoreError>);
}

pub(super) struct Work<T, F, A> {
    pub(super) kind: Kind,
    pub(super) work: Option<F>,
    pub(super) value: Option<T>,
    pub(super) early: Option<Early<T>>,
    pub(super) undo: Option<Box<dyn FnOnce() + Send>>,
    pub(super) after: A,
    pub(super) reply: Option<oneshot::Sender<Result<T, StoreError>>>,
}

impl<T, F, A> Op for Work<T, F, A>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, OpError> + Send,
    A: FnOnce(&T) + Send,
{
    fn kind(&self) -> Kind {
        self.kind
    }

    fn run(&mut self, connection: &Connection) -> Result<(), OpError> {
        if let Some(work) = self.work.take() {
            let value = work(connection)?;
            if let Some(early) = self.early.take() {
                (early.tell)(&value);
                self.undo = Some(early.undo);
            }
            self.value = Some(value);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let this = *self;
        if outcome.is_err()
            && let Some(undo) = this.undo
        {
            undo();
        }
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

pub(super) struct Queued {
    pub(super) op: Box<dyn Op>,
    pub(super) at: Instant,
}

/// Since when the oldest piece of work waits, for the check-in.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) started: Instant,
    /// Milliseconds after `started`, plus one; 0 while there is nothing to do.
    pub(super) since: AtomicU64,
}
