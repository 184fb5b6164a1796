//! What one queue's consumer knows: what is out, what has been read ahead, how far. Pure: it says what to read, the
//! consumer reads it.
//!
//! Nothing is written for a delivery. A row is there until it is settled; what is out is known in memory alone. So that
//! a successor can tell what may have been out, a bound (`mark`) is stored before anything beyond it is handed out, and
//! it runs ahead of the reading so that this is one write for many deliveries.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::sync::Notify;

use super::super::Message;

/// The bound runs at least this far ahead.
const AHEAD: i64 = 16;

/// A row's number in its file: the base in the high bits, its place in the low ones.
pub(super) type Id = i64;

/// What the consumer shall do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Give this out.
    Deliver { id: Id, message: Message, redelivered: bool },
    /// Read rows, then tell by [`State::read`].
    Read(Plan),
    /// Wait until notified.
    Wait,
    /// No more deliveries.
    Ended,
    /// Another consumer has taken the queue over.
    Replaced,
}

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Given back: read again, each in its old place.
    pub(super) again: Vec<Id>,
    /// Then rows after this one,
    pub(super) after: Id,
    /// at most so many.
    pub(super) limit: usize,
    /// Rows up to here may be handed out without a write.
    pub(super) mark: Id,
    /// Where the bound shall be when the last row read is this far beyond it.
    pub(super) ahead: i64,
    /// The news that this reading answers.
    news: u64,
}

impl Plan {
    /// Whether the reading may have to move the bound.
    pub(super) fn may_write(&self) -> bool {
        self.after + self.limit as i64 > self.mark
    }
}

/// What a reading brought.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Rows in order, those read again first.
    pub(super) rows: Vec<(Id, Message)>,
    /// All rows up to here have been read.
    pub(super) read_to: Id,
    /// The bound as it is stored now.
    pub(super) mark: Id,
    /// There was nothing beyond.
    pub(super) complete: bool,
}

/// How many rows there are: counted once, then kept up by what is published and settled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    /// Rows when it was counted.
    pub(super) rows: u64,
    /// The last place given by then.
    pub(super) last_id: Id,
    /// Rows that we have removed since.
    pub(super) removed: u64,
}

/// One queue of a file that this process consumes.
#[derive(Debug, Default)]
pub(super) struct State {
    session: u64,
    prefetch: usize,
    stopped: bool,
    /// Read up to here.
    cursor: Id,
    /// Stored bound of what may be out.
    mark: Id,
    /// What lies up to here may have been out before this session.
    suspect_to: Id,
    ahead: BTreeMap<Id, Message>,
    returned: BTreeSet<Id>,
    out: BTreeSet<Id>,
    parked_out: BTreeSet<Id>,
    /// Grows with each publish or knock.
    news: u64,
    /// The news that reading has caught up with.
    caught_up: Option<u64>,
    wake: Arc<Notify>,
    pub(super) count: Option<Count>,
}

impl State {
    /// A new consumer begins; whatever an older one had out is given up. `first` is the least number of the queue.
    pub(super) fn begin(&mut self, session: u64, prefetch: u16, first: Id, mark: Id, count: Count) {
        self.wake.notify_one();
        *self = Self {
            session,
            prefetch: usize::from(prefetch.max(1)),
            cursor: first,
            mark: mark.max(first),
            suspect_to: mark,
            count: Some(count),
            ..Self::default()
        };
    }

    /// What wakes the consumer of the session in force.
    pub(super) fn wake(&self) -> Arc<Notify> {
        self.wake.clone()
    }

    /// The consumer is gone. The bound that a successor needs, if this was the session in force.
    pub(super) fn end(&mut self, session: u64) -> Option<Id> {
        if session != self.session {
            return None;
        }
        // Suspects that this session has not come to stay under suspicion.
        let unread = (self.cursor < self.suspect_to).then_some(self.suspect_to);
        let held = self.ahead.keys().chain(&self.returned).copied().filter(|id| *id <= self.suspect_to);
        let bound = held.chain(unread).chain(self.out.last().copied()).max().unwrap_or(0);
        *self = Self { session: 0, count: self.count, ..Self::default() };
        Some(bound)
    }

    /// No more deliveries in this session.
    pub(super) fn stop(&mut self, session: u64) {
        if session == self.session {
            self.stopped = true;
            self.wake.notify_one();
        }
    }

    /// There may be new rows.
    pub(super) fn news(&mut self) {
        self.news += 1;
        self.wake.notify_one();
    }

    /// A row that this process has just published: where reading has caught up, it needn't be read.
    pub(super) fn published(&mut self, id: Id, message: &Message) {
        let idle = self.session != 0 && !self.stopped && self.returned.is_empty();
        let next = id == self.cursor + 1 && id <= self.mark;
        if idle && next && self.out.len() + self.ahead.len() < self.prefetch {
            self.ahead.insert(id, message.clone());
            self.cursor = id;
            self.wake.notify_one();
        } else {
            self.news();
        }
    }

    /// A row that was shown is not there after all: what this session knows of the file can't be relied on any more.
    pub(super) fn revoke(&mut self) {
        self.wake.notify_one();
        *self = Self { count: self.count, wake: self.wake.clone(), ..Self::default() };
    }

    /// What to do next.
    pub(super) fn step(&mut self, session: u64) -> Step {
        if session != self.session {
            return Step::Replaced;
        }
        if self.stopped {
            return Step::Ended;
        }
        let room = self.prefetch.saturating_sub(self.out.len());
        if room == 0 {
            return Step::Wait;
        }
        let ahead = self.ahead.first_key_value().map(|(id, _)| *id);
        let returned = self.returned.first().copied();
        if let Some(id) = ahead
            && returned.is_none_or(|returned| id < returned)
            && let Some(message) = self.ahead.remove(&id)
        {
            self.out.insert(id);
            return Step::Deliver { id, message, redelivered: id <= self.suspect_to };
        }
        if returned.is_none() && self.caught_up == Some(self.news) {
            return Step::Wait;
        }
        let again: Vec<Id> = self.returned.iter().copied().take(room).collect();
        let limit = room.saturating_sub(again.len()).saturating_sub(self.ahead.len());
        Step::Read(Plan {
            again,
            after: self.cursor,
            limit,
            mark: self.mark,
            ahead: AHEAD.max(self.prefetch as i64),
            news: self.news,
        })
    }

    /// What the reading brought.
    pub(super) fn read(&mut self, session: u64, plan: &Plan, read: Reading) {
        if session != self.session || self.stopped {
            return;
        }
        for id in &plan.again {
            self.returned.remove(id);
        }
        self.mark = self.mark.max(read.mark);
        for (id, message) in read.rows {
            // A publish of our own may have been faster with the same row.
            if id > self.cursor || plan.again.contains(&id) {
                self.cursor = self.cursor.max(id);
                self.ahead.insert(id, message);
            }
        }
        self.cursor = self.cursor.max(read.read_to);
        if read.complete {
            self.caught_up = Some(plan.news);
        }
    }

    /// The session in force; 0 when nobody consumes.
    pub(super) fn session(&self) -> u64 {
        self.session
    }

    /// Whether this may be settled in this session.
    pub(super) fn is_out(&self, session: u64, id: Id, parked: bool) -> bool {
        let out = if parked { &self.parked_out } else { &self.out };
        session == self.session && out.contains(&id)
    }

    /// It is settled and its row is gone, or (for a parked one) stays where it is.
    pub(super) fn settled(&mut self, session: u64, id: Id, parked: bool) {
        if !parked && let Some(count) = &mut self.count {
            count.removed += 1;
        }
        if session != self.session {
            return;
        }
        if parked {
            self.parked_out.remove(&id);
        } else if self.out.remove(&id) {
            self.wake.notify_one();
        }
    }

    /// It goes back to its old place.
    pub(super) fn released(&mut self, session: u64, id: Id) {
        if session == self.session && self.out.remove(&id) {
            self.returned.insert(id);
            self.wake.notify_one();
        }
    }

    /// Parked rows go out.
    pub(super) fn unparked(&mut self, session: u64, ids: impl IntoIterator<Item = Id>) {
        if session == self.session {
            self.parked_out.extend(ids);
        }
    }
}
