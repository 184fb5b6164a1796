//! The outbox in a slot's file. An event, its place in its channel's sequence, the channel's fence and how far its
//! platform has been read are one transaction.
//!
//! A row of `outbox` has at least one open destination and goes with the last of them; what was stored without any lies
//! in `kept` until the retention time is over.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row};
use uuid::Uuid;

use super::super::{Batch, DeadEvent, Destination, Outbox, OutboxError, Stored};
use crate::{
    clock::Clock,
    event::Event,
    identity::ChannelId,
    registry::Fence,
    store::{OpError, Peers, Seen, SlotStore, StoreError, Writer, key},
};

/// Rows that one transaction prunes.
const PRUNED: usize = 1000;

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

fn number(destination: Destination) -> i64 {
    match destination {
        Destination::Handler => 0,
        Destination::Endpoint => 1,
    }
}

fn destination(number: i64) -> Destination {
    if number == 0 { Destination::Handler } else { Destination::Endpoint }
}

fn encode(event: &Event) -> Result<Vec<u8>, OutboxError> {
    serde_json::to_vec(event).map_err(|error| OutboxError::Refused(format!("an event can't be written: {error}")))
}

fn decode(row: &Row<'_>, event: usize, seq: usize) -> Result<Event, OpError> {
    let bytes = row.get_ref(event)?.as_blob().map_err(rusqlite::Error::from)?;
    let mut event: Event =
        serde_json::from_slice(bytes).map_err(|error| OpError::Unreadable(format!("an event: {error}")))?;
    event.seq = row.get::<_, i64>(seq)? as u64;
    Ok(event)
}

/// What is known of a channel before a batch is stored.
struct Channel {
    stored: bool,
    token: i64,
    seq: i64,
    read_to: Option<i64>,
}

fn channel(connection: &Connection, fence: &Fence) -> Result<Channel, OpError> {
    let sql = "SELECT token, seq, read_to FROM channels WHERE channel = ?1";
    let found = connection.prepare_cached(sql)?.query_row([key(fence.channel)], |row| {
        Ok(Channel { stored: true, token: row.get(0)?, seq: row.get(1)?, read_to: row.get(2)? })
    });
    let channel = found.optional()?.unwrap_or(Channel { stored: false, token: 0, seq: 0, read_to: None });
    if channel.token > fence.token as i64 { Err(OpError::ChannelFenced(fence.channel)) } else { Ok(channel) }
}

/// Stores the events that are new; the place and position of each of them.
fn append(
    connection: &Connection,
    fence: &Fence,
    offset: Option<i64>,
    events: &[(Uuid, Vec<u8>)],
    destinations: (Option<i64>, Option<i64>),
    now_ms: i64,
) -> Result<Vec<Option<(u64, u64)>>, OpError> {
    let channel_key = key(fence.channel);
    let before = channel(connection, fence)?;
    let mut seq = before.seq;
    let mut places = Vec::with_capacity(events.len());
    if !events.is_empty() {
        let mut seen = Seen::begin(connection, now_ms)?;
        for (id, event) in events {
            let id = id.as_bytes();
            if !seen.remember(connection, id)? {
                places.push(None);
                continue;
            }
            seq += 1;
            let position = seen.next_position();
            if destinations == (None, None) {
                let sql = "INSERT INTO kept (position, id, channel, seq, at_ms, event) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                connection.prepare_cached(sql)?.execute((position, id, channel_key, seq, now_ms, event))?;
            } else {
                let sql = "INSERT INTO outbox (position, id, channel, seq, handler, endpoint, at_ms, event)
                           VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                let (handler, endpoint) = destinations;
                connection.prepare_cached(sql)?.execute((
                    position,
                    id,
                    channel_key,
                    seq,
                    handler,
                    endpoint,
                    now_ms,
                    event,
                ))?;
            }
            places.push(Some((seq as u64, position as u64)));
        }
        seen.end(connection)?;
    }
    let token = fence.token as i64;
    let read_to = offset.or(before.read_to);
    if !before.stored || (token, seq, read_to) != (before.token, before.seq, before.read_to) {
        let sql = "INSERT INTO channels (channel, token, seq, read_to) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT DO UPDATE SET token = excluded.token, seq = excluded.seq, read_to = excluded.read_to";
        connection.prepare_cached(sql)?.execute((channel_key, token, seq, read_to))?;
    }
    Ok(places)
}

/// One destination is done with: the row goes with the last one.
fn close(connection: &Connection, position: u64, destination: Destination) -> Result<(), OpError> {
    let (gone, closed) = match destination {
        Destination::Handler => (
            "DELETE FROM outbox WHERE position = ?1 AND endpoint IS NULL",
            "UPDATE outbox SET handler = NULL WHERE position = ?1",
        ),
        Destination::Endpoint => (
            "DELETE FROM outbox WHERE position = ?1 AND handler IS NULL",
            "UPDATE outbox SET endpoint = NULL WHERE position = ?1",
        ),
    };
    if connection.prepare_cached(gone)?.execute([position as i64])? == 0 {
        connection.prepare_cached(closed)?.execute([position as i64])?;
    }
    Ok(())
}

fn bury(connection: &Connection, position: u64, destination: Destination, reason: &str) -> Result<(), OpError> {
    let attempts = match destination {
        Destination::Handler => "handler",
        Destination::Endpoint => "endpoint",
    };
    let sql = format!(
        "INSERT OR REPLACE INTO dead_events (id, destination, channel, seq, attempts, reason, event)
         SELECT id, ?2, channel, seq, {attempts}, ?3, event FROM outbox WHERE position = ?1 AND {attempts} IS NOT NULL"
    );
    connection.prepare_cached(&sql)?.execute((position as i64, number(destination), reason))?;
    close(connection, position, destination)
}

fn replay(connection: &Connection, id: Uuid, destination: Destination, now_ms: i64) -> Result<bool, OpError> {
    let mut seen = Seen::begin(connection, now_ms)?;
    let position = seen.next_position();
    let column = destination.as_str();
    let sql = format!(
        "INSERT INTO outbox (position, id, channel, seq, {column}, at_ms, event)
         SELECT ?3, id, channel, seq, 0, ?4, event FROM dead_events WHERE id = ?1 AND destination = ?2"
    );
    if connection.prepare_cached(&sql)?.execute((id.as_bytes(), number(destination), position, now_ms))? == 0 {
        return Ok(false);
    }
    seen.end(connection)?;
    drop_dead(connection, id, destination)
}

fn drop_dead(connection: &Connection, id: Uuid, destination: Destination) -> Result<bool, OpError> {
    let mut statement = connection.prepare_cached("DELETE FROM dead_events WHERE id = ?1 AND destination = ?2")?;
    Ok(statement.execute((id.as_bytes(), number(destination)))? > 0)
}

/// Prunes the oldest of what is kept; how many, and whether more may be old enough.
fn prune(connection: &Connection, before_ms: i64) -> Result<(u64, bool), OpError> {
    let mut statement = connection.prepare_cached("SELECT position, at_ms FROM kept ORDER BY position LIMIT ?1")?;
    let mut found = statement.query([PRUNED as i64])?;
    let mut old: Vec<i64> = Vec::new();
    while let Some(row) = found.next()? {
        if row.get::<_, i64>(1)? >= before_ms {
            break;
        }
        old.push(row.get(0)?);
    }
    drop(found);
    if let Some(last) = old.last() {
        connection.prepare_cached("DELETE FROM kept WHERE position <= ?1")?.execute([last])?;
    }
    Ok((old.len() as u64, old.len() == PRUNED))
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
        let stored =
            self.writer.write(move |connection| append(connection, &fence, offset, &encoded, columns, now_ms)).await;
        let places = stored.map_err(outbox_error)?;
        let placed = events.into_iter().zip(places).filter_map(|(mut event, place)| {
            let (seq, position) = place?;
            event.seq = seq;
            Some(Stored { position, stored_ms: now_ms, event, open: open.clone() })
        });
        Ok(placed.collect())
    }

    async fn offset(&self, of: ChannelId) -> Result<Option<i64>, OutboxError> {
        let read = self.writer.read(move |connection| {
            let mut statement = connection.prepare_cached("SELECT read_to FROM channels WHERE channel = ?1")?;
            Ok(statement.query_row([key(of)], |row| row.get(0)).optional()?.flatten())
        });
        read.await.map_err(outbox_error)
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<Stored>, OutboxError> {
        let read = self.writer.read(move |connection| {
            let sql = "SELECT position, seq, handler, endpoint, at_ms, event FROM outbox
                       WHERE position > ?1 ORDER BY position LIMIT ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let mut found = statement.query((after.min(i64::MAX as u64) as i64, limit as i64))?;
            let mut stored = Vec::new();
            while let Some(row) = found.next()? {
                let handler: Option<u32> = row.get(2)?;
                let endpoint: Option<u32> = row.get(3)?;
                let open = [(Destination::Handler, handler), (Destination::Endpoint, endpoint)];
                stored.push(Stored {
                    position: row.get::<_, i64>(0)? as u64,
                    stored_ms: row.get(4)?,
                    event: decode(row, 5, 1)?,
                    open: open.into_iter().filter_map(|(which, failures)| Some((which, failures?))).collect(),
                });
            }
            Ok(stored)
        });
        read.await.map_err(outbox_error)
    }

    async fn delivered(&self, position: u64, to: Destination) -> Result<(), OutboxError> {
        self.writer.write(move |connection| close(connection, position, to)).await.map_err(outbox_error)
    }

    async fn failed(&self, position: u64, to: Destination, error: &str) -> Result<(), OutboxError> {
        tracing::debug!(position, destination = to.as_str(), error, "an event was not delivered");
        let sql = match to {
            Destination::Handler => "UPDATE outbox SET handler = handler + 1 WHERE position = ?1",
            Destination::Endpoint => "UPDATE outbox SET endpoint = endpoint + 1 WHERE position = ?1",
        };
        let counted = self.writer.write(move |connection| {
            connection.prepare_cached(sql)?.execute([position as i64])?;
            Ok(())
        });
        counted.await.map_err(outbox_error)
    }

    async fn bury(&self, position: u64, to: Destination, reason: &str) -> Result<(), OutboxError> {
        let reason = reason.to_owned();
        self.writer.write(move |connection| bury(connection, position, to, &reason)).await.map_err(outbox_error)
    }

    async fn dead(&self, limit: usize) -> Result<Vec<DeadEvent>, OutboxError> {
        let read = self.writer.read(move |connection| {
            let sql = "SELECT destination, attempts, reason, seq, event FROM dead_events ORDER BY number LIMIT ?1";
            let mut statement = connection.prepare_cached(sql)?;
            let mut found = statement.query([limit as i64])?;
            let mut dead = Vec::new();
            while let Some(row) = found.next()? {
                dead.push(DeadEvent {
                    event: decode(row, 4, 3)?,
                    destination: destination(row.get(0)?),
                    reason: row.get(2)?,
                    attempts: row.get(1)?,
                });
            }
            Ok(dead)
        });
        read.await.map_err(outbox_error)
    }

    async fn replay(&self, event: Uuid, to: Destination) -> Result<bool, OutboxError> {
        let now_ms = self.clock.wall_ms();
        self.writer.write(move |connection| replay(connection, event, to, now_ms)).await.map_err(outbox_error)
    }

    async fn drop_dead(&self, event: Uuid, to: Destination) -> Result<bool, OutboxError> {
        self.writer.write(move |connection| drop_dead(connection, event, to)).await.map_err(outbox_error)
    }

    async fn prune(&self, older_than: Duration) -> Result<u64, OutboxError> {
        let before_ms = self.clock.wall_ms() - older_than.as_millis() as i64;
        let mut all = 0;
        loop {
            let pruned = self.writer.write(move |connection| prune(connection, before_ms)).await;
            let (pruned, more) = pruned.map_err(outbox_error)?;
            all += pruned;
            if !more {
                return Ok(all);
            }
        }
    }
}
