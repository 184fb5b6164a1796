//! The statements on jobs, parked and dead rows. Each runs inside a transaction of the file's writer.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};

use super::{
    super::{DeadLetter, Headers, Message},
    state::{Count, Id, Plan, Reading},
};
use crate::{
    identity::QueueBase,
    job::Lane,
    store::{Index, OpError, base_number, lane_key},
};

/// A reading stops after so many bytes of bodies, and goes on when those are out.
const READ_BYTES: usize = 4 << 20;
/// Places fit below this bit.
const BASE_SHIFT: u32 = 48;

/// The number before the first row of a base's queue.
pub(super) fn first(base: QueueBase) -> Id {
    base_number(base) << BASE_SHIFT
}

fn end(base: QueueBase) -> Id {
    (base_number(base) + 1) << BASE_SHIFT
}

/// The name under which a file's consumer is woken.
pub(super) fn wake_name(index: Index) -> String {
    match index {
        None => "queue".to_owned(),
        Some(index) => format!("queue-{index}"),
    }
}

fn encode(headers: &Headers) -> Result<Option<String>, OpError> {
    if *headers == Headers::default() {
        return Ok(None);
    }
    serde_json::to_string(headers).map(Some).map_err(|error| OpError::Unreadable(error.to_string()))
}

fn message(row: &Row<'_>, headers: usize, body: usize) -> Result<Message, OpError> {
    let headers = match row.get_ref(headers)?.as_str_or_null().map_err(rusqlite::Error::from)? {
        None => Headers::default(),
        Some(text) => serde_json::from_str(text).map_err(|error| OpError::Unreadable(format!("headers: {error}")))?,
    };
    Ok(Message { body: Bytes::from(row.get::<_, Vec<u8>>(body)?), headers })
}

/// Whether a queue was declared in this file.
pub(super) fn declared(connection: &Connection, base: QueueBase) -> Result<bool, OpError> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM queues WHERE base = ?1")?;
    Ok(statement.exists([base_number(base)])?)
}

/// Declares a queue.
pub(super) fn declare(connection: &Connection, base: QueueBase) -> Result<(), OpError> {
    connection
        .prepare_cached("INSERT OR IGNORE INTO queues (base, last_id, out_mark) VALUES (?1, ?2, 0)")?
        .execute((base_number(base), first(base)))?;
    Ok(())
}

/// The stored bound of what may be out, and how many rows there are. `None` when the queue was never declared.
pub(super) fn opening(connection: &Connection, base: QueueBase) -> Result<Option<(Id, Count)>, OpError> {
    let row: Option<(Id, Id)> = connection
        .prepare_cached("SELECT out_mark, last_id FROM queues WHERE base = ?1")?
        .query_row([base_number(base)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((mark, last_id)) = row else { return Ok(None) };
    Ok(Some((mark, Count { rows: count(connection, base)?, last_id, removed: 0 })))
}

/// The last place given.
pub(super) fn last_id(connection: &Connection, base: QueueBase) -> Result<Id, OpError> {
    let mut statement = connection.prepare_cached("SELECT last_id FROM queues WHERE base = ?1")?;
    Ok(statement.query_row([base_number(base)], |row| row.get(0))?)
}

/// How many rows a queue has.
pub(super) fn count(connection: &Connection, base: QueueBase) -> Result<u64, OpError> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM jobs WHERE id > ?1 AND id < ?2")?;
    Ok(statement.query_row((first(base), end(base)), |row| row.get::<_, i64>(0))? as u64)
}

/// How many rows lie beside it, parked and dead.
pub(super) fn count_beside(connection: &Connection, base: QueueBase) -> Result<(u64, u64), OpError> {
    let of = |sql: &str| -> Result<u64, OpError> {
        Ok(connection.prepare_cached(sql)?.query_row([base_number(base)], |row| row.get::<_, i64>(0))? as u64)
    };
    Ok((of("SELECT count(*) FROM parked WHERE base = ?1")?, of("SELECT count(*) FROM dead WHERE base = ?1")?))
}

/// Appends to a queue; `None` when it was never declared.
pub(super) fn append(connection: &Connection, base: QueueBase, message: &Message) -> Result<Option<Id>, OpError> {
    let id: Option<Id> = connection
        .prepare_cached("UPDATE queues SET last_id = last_id + 1 WHERE base = ?1 RETURNING last_id")?
        .query_row([base_number(base)], |row| row.get(0))
        .optional()?;
    let Some(id) = id else { return Ok(None) };
    connection.prepare_cached("INSERT INTO jobs (id, headers, body) VALUES (?1, ?2, ?3)")?.execute((
        id,
        encode(&message.headers)?,
        message.body.as_ref(),
    ))?;
    Ok(Some(id))
}

/// Reads what a plan asks for, and moves the bound when rows beyond it are handed out.
pub(super) fn read(connection: &Connection, base: QueueBase, plan: &Plan) -> Result<Reading, OpError> {
    let mut rows = Vec::new();
    for id in &plan.again {
        let mut statement = connection.prepare_cached("SELECT headers, body FROM jobs WHERE id = ?1")?;
        let mut found = statement.query([id])?;
        if let Some(row) = found.next()? {
            rows.push((*id, message(row, 0, 1)?));
        }
    }
    // A reading that may not write leaves what lies beyond the bound for the next one, which may.
    let last = if plan.may_write() { end(base) - 1 } else { plan.mark };
    let mut statement = connection
        .prepare_cached("SELECT id, headers, body FROM jobs WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3")?;
    let mut found = statement.query((plan.after, last, plan.limit as i64))?;
    let (mut bytes, mut fresh, mut top, mut cut) = (0, 0, 0, false);
    while let Some(row) = found.next()? {
        let message = message(row, 1, 2)?;
        bytes += message.body.len();
        fresh += 1;
        top = row.get(0)?;
        rows.push((top, message));
        if bytes >= READ_BYTES {
            cut = true;
            break;
        }
    }
    let mut mark = plan.mark;
    if top > plan.mark {
        mark = top + plan.ahead;
        connection
            .prepare_cached("UPDATE queues SET out_mark = ?2 WHERE base = ?1")?
            .execute((base_number(base), mark))?;
    }
    let drained = fresh < plan.limit && !cut;
    // Rows beyond the bound can only be there if a place beyond it has been given.
    let beyond = drained && !plan.may_write() && last_id(connection, base)? > plan.mark;
    let read_to = if beyond { plan.mark } else { top };
    Ok(Reading { rows, read_to, mark, complete: drained && !beyond })
}

/// Stores the bound that a consumer leaves behind.
pub(super) fn leave(connection: &Connection, base: QueueBase, bound: Id) -> Result<(), OpError> {
    connection
        .prepare_cached("UPDATE queues SET out_mark = ?2 WHERE base = ?1 AND out_mark <> ?2")?
        .execute((base_number(base), bound))?;
    Ok(())
}

/// Removes a settled row.
pub(super) fn remove(connection: &Connection, id: Id, parked: bool) -> Result<(), OpError> {
    let sql = if parked { "DELETE FROM parked WHERE id = ?1" } else { "DELETE FROM jobs WHERE id = ?1" };
    connection.prepare_cached(sql)?.execute([id])?;
    Ok(())
}

/// Puts a message into the parked companion.
pub(super) fn park(connection: &Connection, lane: &Lane, seq: u64, message: &Message) -> Result<(), OpError> {
    let sql = "INSERT INTO parked (base, lane, seq, headers, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    connection.prepare_cached(sql)?.execute((
        base_number(lane.base),
        lane_key(lane),
        seq as i64,
        encode(&message.headers)?,
        message.body.as_ref(),
    ))?;
    Ok(())
}

/// A parked row stays parked, with new headers.
pub(super) fn park_again(connection: &Connection, id: Id, seq: u64, message: &Message) -> Result<(), OpError> {
    connection
        .prepare_cached("UPDATE parked SET seq = ?2, headers = ?3, body = ?4, out_by = NULL WHERE id = ?1")?
        .execute((id, seq as i64, encode(&message.headers)?, message.body.as_ref()))?;
    Ok(())
}

/// Parked rows are no longer out.
pub(super) fn put_back(connection: &Connection, ids: &[Id]) -> Result<(), OpError> {
    for id in ids {
        connection.prepare_cached("UPDATE parked SET out_by = NULL WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}

/// The first parked rows of a lane that this session has not out; each is marked as out by it. With each: whether it was
/// out when an earlier session ended.
pub(super) fn unpark(
    connection: &Connection,
    lane: &Lane,
    limit: usize,
    session: u64,
) -> Result<Vec<(Id, Message, bool)>, OpError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, seq, headers, body, out_by FROM parked
         WHERE base = ?1 AND lane = ?2 AND out_by IS NOT ?3 ORDER BY seq, id LIMIT ?4",
    )?;
    let mut found = statement.query((base_number(lane.base), lane_key(lane), session as i64, limit as i64))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let mut message = message(row, 2, 3)?;
        message.headers.lane_seq = Some(row.get::<_, i64>(1)? as u64);
        rows.push((row.get(0)?, message, row.get::<_, Option<i64>>(4)?.is_some()));
    }
    for (id, ..) in &rows {
        connection.prepare_cached("UPDATE parked SET out_by = ?2 WHERE id = ?1")?.execute((id, session as i64))?;
    }
    Ok(rows)
}

/// Puts a message into the dead companion.
pub(super) fn bury(connection: &Connection, base: QueueBase, message: &Message) -> Result<(), OpError> {
    connection.prepare_cached("INSERT INTO dead (base, headers, body) VALUES (?1, ?2, ?3)")?.execute((
        base_number(base),
        encode(&message.headers)?,
        message.body.as_ref(),
    ))?;
    Ok(())
}

/// Dead letters after a number.
pub(super) fn dead(
    connection: &Connection,
    base: QueueBase,
    after: u64,
    limit: usize,
) -> Result<Vec<DeadLetter>, OpError> {
    let sql = "SELECT id, headers, body FROM dead WHERE base = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query((base_number(base), after.min(i64::MAX as u64) as i64, limit as i64))?;
    let mut letters = Vec::new();
    while let Some(row) = found.next()? {
        letters.push(DeadLetter { number: row.get::<_, i64>(0)? as u64, message: message(row, 1, 2)? });
    }
    Ok(letters)
}

/// One dead letter.
pub(super) fn dead_letter(connection: &Connection, base: QueueBase, number: u64) -> Result<Option<Message>, OpError> {
    let mut statement = connection.prepare_cached("SELECT headers, body FROM dead WHERE base = ?1 AND id = ?2")?;
    let mut found = statement.query((base_number(base), number as i64))?;
    found.next()?.map(|row| message(row, 0, 1)).transpose()
}

/// Drops a dead letter; whether it was there.
pub(super) fn drop_dead(connection: &Connection, base: QueueBase, number: u64) -> Result<bool, OpError> {
    let mut statement = connection.prepare_cached("DELETE FROM dead WHERE base = ?1 AND id = ?2")?;
    Ok(statement.execute((base_number(base), number as i64))? > 0)
}
