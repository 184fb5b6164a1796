//! The statements on events. Each runs inside a transaction of the file's writer.

use std::sync::atomic::Ordering;

use rusqlite::{Connection, OptionalExtension, Row, types::ValueRef};
use uuid::Uuid;

use super::{
    super::super::{DeadEvent, Destination, Scope, Stored},
    Append, Places,
};
use crate::{
    event::Event,
    identity::ChannelId,
    registry::Fence,
    store::{OpError, Seen, key},
};

/// Rows that one transaction prunes.
const PRUNED: usize = 1000;

/// A destination as it is stored.
fn number(destination: Destination) -> i64 {
    match destination {
        Destination::Handler => 0,
        Destination::Endpoint => 1,
    }
}

fn destination(number: i64) -> Destination {
    if number == 0 { Destination::Handler } else { Destination::Endpoint }
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
pub(super) fn append(connection: &Connection, batch: &Append) -> Result<Places, OpError> {
    let Append { fence, offset, encoded: events, columns: destinations, now_ms, told_to } = batch;
    let channel_key = key(fence.channel);
    let before = channel(connection, fence)?;
    let mut seq = before.seq;
    let mut places = Vec::with_capacity(events.len());
    if !events.is_empty() {
        let mut seen = Seen::begin(connection, *now_ms)?;
        seen.last_position = seen.last_position.max(told_to.load(Ordering::Relaxed));
        for (id, event) in events {
            let id = id.as_bytes();
            if !seen.remember(connection, id)? {
                places.push(None);
                continue;
            }
            seq += 1;
            let position = seen.next_position();
            if *destinations == (None, None) {
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
        told_to.store(seen.last_position, Ordering::Relaxed);
        seen.end(connection)?;
    }
    let token = fence.token as i64;
    let read_to = (*offset).or(before.read_to);
    if !before.stored || (token, seq, read_to) != (before.token, before.seq, before.read_to) {
        let sql = "INSERT INTO channels (channel, token, seq, read_to) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT DO UPDATE SET token = excluded.token, seq = excluded.seq, read_to = excluded.read_to";
        connection.prepare_cached(sql)?.execute((channel_key, token, seq, read_to))?;
    }
    Ok(places)
}

/// One destination is done with: the row goes with the last one.
pub(super) fn close(connection: &Connection, position: u64, destination: Destination) -> Result<(), OpError> {
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

/// A destination is given up: the event becomes a dead letter for it.
pub(super) fn bury(
    connection: &Connection,
    position: u64,
    destination: Destination,
    reason: &str,
) -> Result<(), OpError> {
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

/// A dead letter's destination is opened again, behind everything that is there.
pub(super) fn replay(
    connection: &Connection,
    id: Uuid,
    destination: Destination,
    now_ms: i64,
) -> Result<bool, OpError> {
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

/// Drops a dead letter; whether it was there.
pub(super) fn drop_dead(connection: &Connection, id: Uuid, destination: Destination) -> Result<bool, OpError> {
    let mut statement = connection.prepare_cached("DELETE FROM dead_events WHERE id = ?1 AND destination = ?2")?;
    Ok(statement.execute((id.as_bytes(), number(destination)))? > 0)
}

/// Prunes the oldest of what is kept; how many, and whether more may be old enough.
pub(super) fn prune(connection: &Connection, before_ms: i64) -> Result<(u64, bool), OpError> {
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

/// How far a channel's platform has been read.
pub(super) fn read_to(connection: &Connection, of: ChannelId) -> Result<Option<i64>, OpError> {
    let mut statement = connection.prepare_cached("SELECT read_to FROM channels WHERE channel = ?1")?;
    Ok(statement.query_row([key(of)], |row| row.get(0)).optional()?.flatten())
}

/// Events after a position, oldest first.
pub(super) fn open(connection: &Connection, after: u64, limit: usize) -> Result<Vec<Stored>, OpError> {
    let mut statement = connection.prepare_cached(OPEN)?;
    let mut found = statement.query((signed(after), limit as i64))?;
    let mut stored = Vec::new();
    while let Some(row) = found.next()? {
        stored.push(waiting(row)?);
    }
    Ok(stored)
}

/// Events of a scope, and how far was looked when there may be more. It looks at so many rows and no more: this is the
/// writer's thread, and an endpoint that is dead for a day leaves millions of rows.
pub(super) fn open_in(
    connection: &Connection,
    scope: &Scope,
    after: u64,
    limit: usize,
) -> Result<(Vec<Stored>, Option<u64>), OpError> {
    let column = match scope.destination() {
        Destination::Handler => 2,
        Destination::Endpoint => 3,
    };
    let channel = match scope {
        Scope::Destination(_) => None,
        Scope::Channel(_, channel) | Scope::Conversation(_, channel, _) => Some(key(*channel)),
    };
    let mut statement = connection.prepare_cached(OPEN)?;
    let mut found = statement.query((signed(after), LOOKED_AT as i64))?;
    let (mut stored, mut looked_at, mut looked_to) = (Vec::new(), 0, after);
    while let Some(row) = found.next()? {
        looked_at += 1;
        looked_to = row.get::<_, i64>(0)? as u64;
        let waits = !matches!(row.get_ref(column)?, ValueRef::Null);
        let theirs = match &channel {
            Some(channel) => row.get_ref(6)?.as_blob().map_err(rusqlite::Error::from)? == channel.as_ref(),
            None => true,
        };
        // Only what may be of the scope is decoded: that is what costs.
        if waits && theirs {
            stored.push(waiting(row)?);
            if stored.last().is_some_and(|stored| !scope.includes(stored)) {
                stored.pop();
            }
        }
        if stored.len() >= limit {
            return Ok((stored, Some(looked_to)));
        }
    }
    Ok((stored, (looked_at == LOOKED_AT).then_some(looked_to)))
}

/// Rows that one look for a scope goes through.
const LOOKED_AT: usize = 2000;
const OPEN: &str = "SELECT position, seq, handler, endpoint, at_ms, event, channel FROM outbox WHERE position > ?1
                    ORDER BY position LIMIT ?2";

fn signed(position: u64) -> i64 {
    position.min(i64::MAX as u64) as i64
}

fn waiting(row: &Row<'_>) -> Result<Stored, OpError> {
    let handler: Option<u32> = row.get(2)?;
    let endpoint: Option<u32> = row.get(3)?;
    let open = [(Destination::Handler, handler), (Destination::Endpoint, endpoint)];
    Ok(Stored {
        position: row.get::<_, i64>(0)? as u64,
        stored_ms: row.get(4)?,
        event: decode(row, 5, 1)?,
        open: open.into_iter().filter_map(|(which, failures)| Some((which, failures?))).collect(),
    })
}

/// One more failure to deliver there.
pub(super) fn count_failure(connection: &Connection, position: u64, to: Destination) -> Result<(), OpError> {
    let sql = match to {
        Destination::Handler => "UPDATE outbox SET handler = handler + 1 WHERE position = ?1",
        Destination::Endpoint => "UPDATE outbox SET endpoint = endpoint + 1 WHERE position = ?1",
    };
    connection.prepare_cached(sql)?.execute([position as i64])?;
    Ok(())
}

/// Dead letters, oldest first.
pub(super) fn dead(connection: &Connection, limit: usize) -> Result<Vec<DeadEvent>, OpError> {
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
}
