//! Lanes that wait, and in how many deaths a job was out: both in slot files.

use rusqlite::Connection;

use super::super::LaneFact;
use super::guard::KEPT_MS;
use crate::{
    identity::{ChannelId, QueueName},
    job::{JobId, Lane},
    store::{OpError, base_number, key, lane_key, unkey},
};

/// Lanes of a queue that wait.
pub(super) fn lanes(connection: &Connection, queue: QueueName) -> Result<Vec<LaneFact>, OpError> {
    let sql = "SELECT channel, chat, head, due_ms, next_seq FROM lanes WHERE base = ?1 ORDER BY due_ms";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([base_number(queue.base)])?;
    let mut facts = Vec::new();
    while let Some(row) = found.next()? {
        let head: String = row.get(2)?;
        facts.push(LaneFact {
            queue,
            lane: Lane { base: queue.base, channel: unkey(row.get(0)?), chat: row.get(1)? },
            head: JobId::new(head).ok_or_else(|| OpError::Unreadable("a lane's head has no id".to_owned()))?,
            due_ms: row.get(3)?,
            next_seq: row.get::<_, i64>(4)? as u64,
        });
    }
    Ok(facts)
}

/// Stores that a lane waits.
pub(super) fn put_lane(connection: &Connection, fact: &LaneFact) -> Result<(), OpError> {
    let sql = "INSERT OR REPLACE INTO lanes (base, lane, channel, chat, head, due_ms, next_seq)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.prepare_cached(sql)?.execute((
        base_number(fact.queue.base),
        lane_key(&fact.lane),
        key(fact.lane.channel),
        &fact.lane.chat,
        fact.head.as_str(),
        fact.due_ms,
        fact.next_seq as i64,
    ))?;
    Ok(())
}

/// The lane no longer waits.
pub(super) fn clear_lane(connection: &Connection, queue: QueueName, lane: &Lane) -> Result<(), OpError> {
    connection
        .prepare_cached("DELETE FROM lanes WHERE base = ?1 AND lane = ?2")?
        .execute((base_number(queue.base), lane_key(lane)))?;
    Ok(())
}

/// Counts one more death for each job, up to a bound.
pub(super) fn count_deaths(
    connection: &Connection,
    jobs: &[(ChannelId, JobId)],
    at_most: u32,
    now_ms: i64,
) -> Result<Vec<u32>, OpError> {
    connection.prepare_cached("DELETE FROM deaths WHERE at_ms < ?1")?.execute([now_ms - KEPT_MS])?;
    let sql = "INSERT INTO deaths (job, channel, deaths, at_ms) VALUES (?1, ?2, min(1, ?4), ?3)
               ON CONFLICT DO UPDATE SET deaths = max(deaths, min(deaths + 1, ?4)), at_ms = excluded.at_ms RETURNING deaths";
    let mut counts = Vec::with_capacity(jobs.len());
    for (channel, job) in jobs {
        let mut statement = connection.prepare_cached(sql)?;
        counts.push(statement.query_row((job.as_str(), key(*channel), now_ms, at_most), |row| row.get(0))?);
    }
    Ok(counts)
}
