//! The outbox in a slot's file. An event, its place in its channel's sequence, the channel's fence and how far its
//! platform has been read are one transaction.
//!
//! A row of `outbox` has at least one open destination and goes with the last of them; what was stored without any lies
//! in `kept` until the retention time is over.

mod rows;
#[cfg(test)]
mod tests;

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use async_trait::async_trait;
use rusqlite::Connection;
use uuid::Uuid;

use super::super::{Batch, DeadEvent, Destination, OnStored, Outbox, OutboxError, Scope, Stored};
use crate::{
    clock::Clock,
    event::Event,
    identity::ChannelId,
    registry::Fence,
    store::{OpError, Peers, SlotStore, StoreError, Writer},
};

/// The outbox of one slot.
pub struct EmbeddedOutbox {
    writer: Arc<Writer>,
    clock: Arc<dyn Clock>,
    /// The last position that anybody was told of. One of an event that was not stored after all is never given again:
    /// what is still to be written about it must not meet another event.
    told_to: Arc<AtomicI64>,
}

/// What is stored of a batch, and what its callers get.
struct Append {
    fence: Fence,
    offset: Option<i64>,
    encoded: Vec<(Uuid, Vec<u8>)>,
    columns: (Option<i64>, Option<i64>),
    now_ms: i64,
    told_to: Arc<AtomicI64>,
}

impl Append {
    fn run(&self, connection: &Connection) -> Result<Places, OpError> {
        rows::append(connection, self)
    }
}

/// The `seq` and position of each event that is new.
type Places = Vec<Option<(u64, u64)>>;

/// What a batch has become.
struct Placing {
    events: Vec<Event>,
    open: Vec<(Destination, u32)>,
    now_ms: i64,
}

impl Placing {
    fn stored(self, places: &Places) -> Vec<Stored> {
        let Self { events, open, now_ms } = self;
        let placed = events.into_iter().zip(places).filter_map(|(mut event, place)| {
            let (seq, position) = (*place)?;
            event.seq = seq;
            Some(Stored { position, stored_ms: now_ms, event, open: open.clone() })
        });
        placed.collect()
    }
}

impl EmbeddedOutbox {
    /// For the slot's own process.
    pub fn new(slot: Arc<SlotStore>) -> Self {
        Self { writer: slot.writer().clone(), clock: slot.clock().clone(), told_to: Arc::default() }
    }

    /// For a process that looks after dead letters: the outbox of slot `index` (`None` where there is one shard).
    pub async fn visit(dir: &Path, index: Option<u32>, clock: Arc<dyn Clock>) -> Result<Self, OutboxError> {
        let writer = Peers::new(dir).writer(index, false).await.map_err(outbox_error)?;
        Ok(Self { writer, clock, told_to: Arc::default() })
    }

    fn prepare(&self, batch: Batch, destinations: &[Destination]) -> Result<(Append, Placing), OutboxError> {
        let Batch { fence, mut events, offset } = batch;
        let failures = |which| destinations.contains(&which).then_some(0);
        let columns = (failures(Destination::Handler), failures(Destination::Endpoint));
        let mut encoded = Vec::with_capacity(events.len());
        for event in &mut events {
            event.seq = 0;
            encoded.push((event.id, encode(event)?));
        }
        let now_ms = self.clock.wall_ms();
        let open = destinations.iter().map(|destination| (*destination, 0)).collect();
        let append = Append { fence, offset, encoded, columns, now_ms, told_to: self.told_to.clone() };
        Ok((append, Placing { events, open, now_ms }))
    }
}

fn outbox_error(error: StoreError) -> OutboxError {
    match error {
        StoreError::ChannelFenced(channel) => OutboxError::Fenced(channel),
        // A whole slot that is fenced can't be told in the port's words otherwise: nothing helps but to end.
        StoreError::Fenced { .. }
        | StoreError::Refused { .. }
        | StoreError::Newer { .. }
        | StoreError::Missing { .. } => OutboxError::Refused(error.to_string()),
        StoreError::Unavailable { .. } | StoreError::Closed { .. } => OutboxError::Unavailable(error.to_string()),
    }
}

fn encode(event: &Event) -> Result<Vec<u8>, OutboxError> {
    serde_json::to_vec(event).map_err(|error| OutboxError::Refused(format!("an event can't be written: {error}")))
}

#[async_trait]
impl Outbox for EmbeddedOutbox {
    async fn append(&self, batch: Batch, destinations: &[Destination]) -> Result<Vec<Stored>, OutboxError> {
        let (append, placing) = self.prepare(batch, destinations)?;
        // A platform that is still to be told that it was read waits for the event, and so do the people in the chat;
        // what tells of our own doings has the time to share a transaction.
        let stored = match append.offset {
            Some(_) => self.writer.write(move |connection| append.run(connection)).await,
            None => self.writer.write_patiently(move |connection| append.run(connection), |_| {}).await,
        };
        Ok(placing.stored(&stored.map_err(outbox_error)?))
    }

    async fn append_leading(
        &self,
        batch: Batch,
        destinations: &[Destination],
        told: OnStored,
    ) -> Result<(), OutboxError> {
        let (append, placing) = self.prepare(batch, destinations)?;
        let tell = move |places: &Places| {
            let stored = placing.stored(places);
            if !stored.is_empty() {
                told(stored);
            }
        };
        // Nothing is taken back: what comes of an event that is not stored comes of it again when it is given again, under
        // the same id.
        let stored = self.writer.write_leading(move |connection| append.run(connection), tell, || {});
        stored.await.map(|_| ()).map_err(outbox_error)
    }

    async fn offset(&self, of: ChannelId) -> Result<Option<i64>, OutboxError> {
        self.writer.read(move |connection| rows::read_to(connection, of)).await.map_err(outbox_error)
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<Stored>, OutboxError> {
        self.writer.read(move |connection| rows::open(connection, after, limit)).await.map_err(outbox_error)
    }

    async fn open_in(&self, scope: &Scope, after: u64, limit: usize) -> Result<Vec<Stored>, OutboxError> {
        let (mut found, mut after) = (Vec::new(), after);
        loop {
            let (scope, wanted) = (scope.clone(), limit.saturating_sub(found.len()));
            let read = self.writer.read(move |connection| rows::open_in(connection, &scope, after, wanted)).await;
            let (page, looked_to) = read.map_err(outbox_error)?;
            found.extend(page);
            match looked_to {
                Some(position) if found.len() < limit => after = position,
                _ => return Ok(found),
            }
        }
    }

    async fn delivered(&self, position: u64, to: Destination) -> Result<(), OutboxError> {
        let closed = self.writer.write_patiently(move |connection| rows::close(connection, position, to), |()| {});
        closed.await.map_err(outbox_error)
    }

    async fn failed(&self, position: u64, to: Destination, error: &str) -> Result<(), OutboxError> {
        tracing::debug!(position, destination = to.as_str(), error, "an event was not delivered");
        self.writer.write(move |connection| rows::count_failure(connection, position, to)).await.map_err(outbox_error)
    }

    async fn bury(&self, position: u64, to: Destination, reason: &str) -> Result<(), OutboxError> {
        let reason = reason.to_owned();
        self.writer.write(move |connection| rows::bury(connection, position, to, &reason)).await.map_err(outbox_error)
    }

    async fn dead(&self, limit: usize) -> Result<Vec<DeadEvent>, OutboxError> {
        self.writer.read(move |connection| rows::dead(connection, limit)).await.map_err(outbox_error)
    }

    async fn replay(&self, event: Uuid, to: Destination) -> Result<bool, OutboxError> {
        let now_ms = self.clock.wall_ms();
        self.writer.write(move |connection| rows::replay(connection, event, to, now_ms)).await.map_err(outbox_error)
    }

    async fn drop_dead(&self, event: Uuid, to: Destination) -> Result<bool, OutboxError> {
        self.writer.write(move |connection| rows::drop_dead(connection, event, to)).await.map_err(outbox_error)
    }

    async fn prune(&self, older_than: Duration) -> Result<u64, OutboxError> {
        let before_ms = self.clock.wall_ms() - older_than.as_millis() as i64;
        let mut all = 0;
        loop {
            let pruned = self.writer.write(move |connection| rows::prune(connection, before_ms)).await;
            let (pruned, more) = pruned.map_err(outbox_error)?;
            all += pruned;
            if !more {
                return Ok(all);
            }
        }
    }
}
