//! The outbox in a slot's file. An event, its place in its channel's sequence, the channel's fence and how far its
//! platform has been read are one transaction.
//!
//! A row of `outbox` has at least one open destination and goes with the last of them; what was stored without any lies
//! in `kept` until the retention time is over.

mod rows;

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use rusqlite::Connection;
use uuid::Uuid;

use super::super::{Batch, DeadEvent, Destination, Outbox, OutboxError, Scope, Stored};
use crate::{
    clock::Clock,
    event::Event,
    identity::ChannelId,
    store::{Peers, SlotStore, StoreError, Writer},
};

/// The outbox of one slot.
pub struct EmbeddedOutbox {
    writer: Arc<Writer>,
    clock: Arc<dyn Clock>,
}

impl EmbeddedOutbox {
    /// For the slot's own process.
    pub fn new(slot: Arc<SlotStore>) -> Self {
        Self { writer: slot.writer().clone(), clock: slot.clock().clone() }
    }

    /// For a process that looks after dead letters: the outbox of slot `index` (`None` where there is one shard).
    pub async fn visit(dir: &Path, index: Option<u32>, clock: Arc<dyn Clock>) -> Result<Self, OutboxError> {
        let writer = Peers::new(dir).writer(index, false).await.map_err(outbox_error)?;
        Ok(Self { writer, clock })
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
        let Batch { fence, mut events, offset } = batch;
        let open: Vec<(Destination, u32)> = destinations.iter().map(|destination| (*destination, 0)).collect();
        let failures = |which| destinations.contains(&which).then_some(0);
        let columns = (failures(Destination::Handler), failures(Destination::Endpoint));
        let mut encoded = Vec::with_capacity(events.len());
        for event in &mut events {
            event.seq = 0;
            encoded.push((event.id, encode(event)?));
        }
        let now_ms = self.clock.wall_ms();
        let store = move |connection: &Connection| rows::append(connection, &fence, offset, &encoded, columns, now_ms);
        // A platform that is still to be told that it was read waits for the event, and so do the people in the chat;
        // what tells of our own doings has the time to share a transaction.
        let stored = match offset {
            Some(_) => self.writer.write(store).await,
            None => self.writer.write_patiently(store, |_| {}).await,
        };
        let places = stored.map_err(outbox_error)?;
        let placed = events.into_iter().zip(places).filter_map(|(mut event, place)| {
            let (seq, position) = place?;
            event.seq = seq;
            Some(Stored { position, stored_ms: now_ms, event, open: open.clone() })
        });
        Ok(placed.collect())
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
