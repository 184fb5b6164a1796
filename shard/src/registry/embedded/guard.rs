//! The send guard in a slot's file: one row for each job id, and what a process that died left in doubt.
//!
//! | stored                         | asked by            | answer                                   |
//! |--------------------------------|---------------------|------------------------------------------|
//! | nothing, or a cancelled doubt  | anybody             | `Fresh`                                  |
//! | sent                           | anybody             | `Sent`                                   |
//! | uncertain                      | anybody             | `Uncertain`; `Fresh` when it is to be sent again |
//! | reserved by somebody alive     | anybody             | `Busy`                                   |
//! | reserved, holder dead, id      | anybody             | `Again` with that id, reserved anew      |
//! | reserved, holder dead, no id   | anybody             | `Uncertain`, stored first                |
//! | reserved by a later life of us | an earlier life     | refused as fenced by the file's token    |

use rusqlite::{Connection, OptionalExtension};

use super::super::{Fence, Holder, Reservation, Reserve, Sent};
use crate::{
    job::JobId,
    store::{OpError, check_fence, key},
};

/// How long what came of a send is remembered.
pub(super) const KEPT_MS: i64 = 7 * 24 * 3600 * 1000;
/// After so many reservations
pub(super) const SWEEP_AFTER: u32 = 16;
/// so many other rows are looked at for what is too old: forgetting keeps up with remembering.
const SWEEP: i64 = 64;

const RESERVED: i64 = 0;
const UNCERTAIN: i64 = 1;
const SENT: i64 = 2;
const CANCELLED: i64 = 3;

/// What to do about a reservation of somebody else.
pub(super) enum Found {
    /// This is the answer.
    Answer(Reservation),
    /// Whether they live is to be found out first.
    Doubt(Holder),
}

/// The row of a job.
struct Row {
    state: i64,
    by: Holder,
    provider_id: Option<String>,
    result: Option<String>,
}

fn row(connection: &Connection, job: &JobId) -> Result<Option<Row>, OpError> {
    let sql = "SELECT state, worker, incarnation, provider_id, result FROM guard WHERE job = ?1";
    let found = connection.prepare_cached(sql)?.query_row([job.as_str()], |row| {
        Ok(Row {
            state: row.get(0)?,
            by: Holder { worker: row.get(1)?, incarnation: row.get::<_, i64>(2)? as u64 },
            provider_id: row.get(3)?,
            result: row.get(4)?,
        })
    });
    Ok(found.optional()?)
}

fn put(connection: &Connection, request: &Reserve, provider_id: Option<&str>, now_ms: i64) -> Result<(), OpError> {
    let sql = "INSERT INTO guard (job, channel, state, worker, incarnation, provider_id, at_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
        ON CONFLICT DO UPDATE SET channel = excluded.channel, state = excluded.state, worker = excluded.worker,
            incarnation = excluded.incarnation, provider_id = excluded.provider_id, at_ms = excluded.at_ms";
    connection.prepare_cached(sql)?.execute((
        request.job.as_str(),
        key(request.fence.channel),
        RESERVED,
        &request.holder.worker,
        request.holder.incarnation as i64,
        provider_id,
        now_ms,
    ))?;
    Ok(())
}

/// Reserves. `dead` is a holder of whom it was found out that they are.
pub(super) fn reserve(
    connection: &Connection,
    request: &Reserve,
    dead: Option<&Holder>,
    now_ms: i64,
) -> Result<Found, OpError> {
    check_fence(connection, &request.fence)?;
    let Some(row) = row(connection, &request.job)? else {
        put(connection, request, request.provider_id.as_deref(), now_ms)?;
        return Ok(Found::Answer(Reservation::Fresh));
    };
    let answer = match row.state {
        SENT => {
            let result = row.result.map(|text| serde_json::from_str(&text)).transpose();
            let result = result.map_err(|error| OpError::Unreadable(format!("a send's result: {error}")))?;
            Reservation::Sent(Sent { provider_id: row.provider_id, result })
        }
        UNCERTAIN if !request.resend => Reservation::Uncertain { by: row.by },
        UNCERTAIN | CANCELLED => {
            put(connection, request, request.provider_id.as_deref(), now_ms)?;
            Reservation::Fresh
        }
        _ if row.by == request.holder => Reservation::Busy { by: row.by },
        _ => {
            let earlier = row.by.worker == request.holder.worker && row.by.incarnation < request.holder.incarnation;
            if !earlier && dead != Some(&row.by) {
                return Ok(Found::Doubt(row.by));
            }
            match row.provider_id {
                Some(provider_id) => {
                    put(connection, request, Some(&provider_id), now_ms)?;
                    Reservation::Again { provider_id }
                }
                None => {
                    set_uncertain(connection, &request.job, now_ms)?;
                    Reservation::Uncertain { by: row.by }
                }
            }
        }
    };
    Ok(Found::Answer(answer))
}

fn set_uncertain(connection: &Connection, job: &JobId, now_ms: i64) -> Result<usize, OpError> {
    let sql = "UPDATE guard SET state = ?2, at_ms = ?3, uncertain_ms = ?3 WHERE job = ?1 AND state <> ?4";
    Ok(connection.prepare_cached(sql)?.execute((job.as_str(), UNCERTAIN, now_ms, SENT))?)
}

/// The send is done. What was stored first as sent stays.
pub(super) fn mark_sent(
    connection: &Connection,
    fence: &Fence,
    holder: &Holder,
    job: &JobId,
    sent: &Sent,
    now_ms: i64,
) -> Result<(), OpError> {
    check_fence(connection, fence)?;
    let sql = "INSERT INTO guard (job, channel, state, worker, incarnation, provider_id, result, at_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        ON CONFLICT DO UPDATE SET state = excluded.state, provider_id = excluded.provider_id,
            result = excluded.result, at_ms = excluded.at_ms
        WHERE state <> excluded.state";
    connection.prepare_cached(sql)?.execute((
        job.as_str(),
        key(fence.channel),
        SENT,
        &holder.worker,
        holder.incarnation as i64,
        &sent.provider_id,
        sent.result.as_ref().map(ToString::to_string),
        now_ms,
    ))?;
    Ok(())
}

/// The send certainly did not happen, or what is not known about it is settled. That there was a doubt stays on record.
pub(super) fn cancel(connection: &Connection, fence: &Fence, job: &JobId) -> Result<(), OpError> {
    check_fence(connection, fence)?;
    connection.prepare_cached("UPDATE guard SET state = ?3 WHERE job = ?1 AND state = ?2")?.execute((
        job.as_str(),
        UNCERTAIN,
        CANCELLED,
    ))?;
    connection
        .prepare_cached("UPDATE guard SET state = ?3 WHERE job = ?1 AND state = ?2 AND uncertain_ms IS NOT NULL")?
        .execute((job.as_str(), RESERVED, CANCELLED))?;
    connection.prepare_cached("DELETE FROM guard WHERE job = ?1 AND state = ?2")?.execute((job.as_str(), RESERVED))?;
    Ok(())
}

/// It is not known whether the send happened.
pub(super) fn mark_uncertain(
    connection: &Connection,
    fence: &Fence,
    holder: &Holder,
    job: &JobId,
    now_ms: i64,
) -> Result<(), OpError> {
    check_fence(connection, fence)?;
    if set_uncertain(connection, job, now_ms)? == 0 && row(connection, job)?.is_none() {
        let request =
            Reserve { job: job.clone(), fence: *fence, holder: holder.clone(), provider_id: None, resend: false };
        put(connection, &request, None, now_ms)?;
        set_uncertain(connection, job, now_ms)?;
    }
    Ok(())
}

/// Forgets what is too old among the next few rows after `from`; where to go on next time.
pub(super) fn sweep(connection: &Connection, from: &str, now_ms: i64) -> Result<String, OpError> {
    let mut statement =
        connection.prepare_cached("SELECT job, at_ms FROM guard WHERE job > ?1 ORDER BY job LIMIT ?2")?;
    let mut found = statement.query((from, SWEEP))?;
    let (mut next, mut old) = (String::new(), Vec::new());
    let mut looked = 0;
    while let Some(row) = found.next()? {
        next = row.get(0)?;
        looked += 1;
        if now_ms - row.get::<_, i64>(1)? > KEPT_MS {
            old.push(next.clone());
        }
    }
    drop(found);
    for job in old {
        connection.prepare_cached("DELETE FROM guard WHERE job = ?1")?.execute([job])?;
    }
    Ok(if looked < SWEEP { String::new() } else { next })
}
