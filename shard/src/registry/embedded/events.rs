//! Events that lie in an outbox elsewhere: their places and ids in the slot's file, beside the channel's fence and offset;
//! marks and notes in `box.db`, since whoever empties the outbox of another layout reads them too.

use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use super::super::Fence;
use crate::{
    identity::ChannelId,
    store::{OpError, check_fence, key},
};

/// How long ids and marks are remembered: a platform keeps what it was not told to forget for a day.
const KEPT_MS: i64 = 48 * 3600 * 1000;
/// Ids and marks beyond this many are forgotten, oldest first.
const KEPT_MOST: i64 = 1_000_000;
/// Each write looks at so many of the oldest rows for each row that it adds.
const SWEEP: usize = 4;

/// The place of each event that is not stored yet.
pub(super) fn place(
    connection: &Connection,
    fence: &Fence,
    ids: &[Uuid],
    now_ms: i64,
) -> Result<Vec<Option<u64>>, OpError> {
    check_fence(connection, fence)?;
    let channel = key(fence.channel);
    let mut seq: i64 = connection
        .prepare_cached("SELECT seq FROM channels WHERE channel = ?1")?
        .query_row([channel], |row| row.get(0))?;
    let before = seq;
    let mut places = Vec::with_capacity(ids.len());
    for id in ids {
        let found = connection
            .prepare_cached("SELECT seq FROM placed WHERE id = ?1")?
            .query_row([id.as_bytes()], |row| row.get::<_, Option<i64>>(0))
            .optional()?;
        places.push(match found {
            Some(placed) => placed.map(|seq| seq as u64),
            None => {
                seq += 1;
                connection
                    .prepare_cached("INSERT INTO placed (id, channel, seq, at_ms) VALUES (?1, ?2, ?3, ?4)")?
                    .execute((id.as_bytes(), channel, seq, now_ms))?;
                Some(seq as u64)
            }
        });
    }
    if seq != before {
        connection.prepare_cached("UPDATE channels SET seq = ?2 WHERE channel = ?1")?.execute((channel, seq))?;
        sweep(connection, "placed", ids.len(), now_ms)?;
    }
    Ok(places)
}

/// They are stored: an id without a place is one that is known.
pub(super) fn stored(
    connection: &Connection,
    fence: &Fence,
    ids: &[Uuid],
    offset: Option<i64>,
    now_ms: i64,
) -> Result<(), OpError> {
    check_fence(connection, fence)?;
    for id in ids {
        let sql = "INSERT INTO placed (id, channel, seq, at_ms) VALUES (?1, ?2, NULL, ?3)
                   ON CONFLICT (id) DO UPDATE SET seq = NULL, at_ms = excluded.at_ms";
        connection.prepare_cached(sql)?.execute((id.as_bytes(), key(fence.channel), now_ms))?;
    }
    if let Some(offset) = offset {
        let sql = "UPDATE channels SET read_to = ?2 WHERE channel = ?1";
        connection.prepare_cached(sql)?.execute((key(fence.channel), offset))?;
    }
    Ok(())
}

/// How far a channel's platform has been read.
pub(super) fn read_to(connection: &Connection, channel: ChannelId) -> Result<Option<i64>, OpError> {
    let mut statement = connection.prepare_cached("SELECT read_to FROM channels WHERE channel = ?1")?;
    Ok(statement.query_row([key(channel)], |row| row.get(0)).optional()?.flatten())
}

/// Notes down what became of events.
pub(super) fn mark(connection: &Connection, marks: &[(Uuid, Option<String>)], now_ms: i64) -> Result<(), OpError> {
    for (id, mark) in marks {
        match mark {
            Some(mark) => {
                let sql = "INSERT INTO event_marks (id, mark, at_ms) VALUES (?1, ?2, ?3)
                           ON CONFLICT (id) DO UPDATE SET mark = excluded.mark, at_ms = excluded.at_ms";
                connection.prepare_cached(sql)?.execute((id.as_bytes(), mark, now_ms))?;
            }
            None => {
                connection.prepare_cached("DELETE FROM event_marks WHERE id = ?1")?.execute([id.as_bytes()])?;
            }
        }
    }
    sweep(connection, "event_marks", marks.len(), now_ms)
}

/// What was noted down of events.
pub(super) fn marks(connection: &Connection, ids: &[Uuid]) -> Result<Vec<Option<String>>, OpError> {
    let mut statement = connection.prepare_cached("SELECT mark FROM event_marks WHERE id = ?1")?;
    ids.iter().map(|id| Ok(statement.query_row([id.as_bytes()], |row| row.get(0)).optional()?)).collect()
}

/// Notes down something about an outbox.
pub(super) fn note(connection: &Connection, outbox: &str, key: &str, note: Option<&str>) -> Result<(), OpError> {
    match note {
        Some(note) => connection
            .prepare_cached("INSERT OR REPLACE INTO outbox_notes (outbox, key, note) VALUES (?1, ?2, ?3)")?
            .execute((outbox, key, note))?,
        None => connection
            .prepare_cached("DELETE FROM outbox_notes WHERE outbox = ?1 AND key = ?2")?
            .execute((outbox, key))?,
    };
    Ok(())
}

/// All notes about an outbox.
pub(super) fn notes(connection: &Connection, outbox: &str) -> Result<Vec<(String, String)>, OpError> {
    let mut statement =
        connection.prepare_cached("SELECT key, note FROM outbox_notes WHERE outbox = ?1 ORDER BY key")?;
    let found = statement.query_map([outbox], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Forgets the oldest rows of a table that are too old, or too many.
fn sweep(connection: &Connection, table: &str, added: usize, now_ms: i64) -> Result<(), OpError> {
    let sql = format!(
        "DELETE FROM {table} WHERE number IN (SELECT number FROM {table} ORDER BY number LIMIT ?1)
         AND (at_ms < ?2 OR number <= (SELECT max(number) FROM {table}) - ?3)"
    );
    let looked_at = (added * SWEEP) as i64;
    connection.prepare_cached(&sql)?.execute((looked_at, now_ms - KEPT_MS, KEPT_MOST))?;
    Ok(())
}
