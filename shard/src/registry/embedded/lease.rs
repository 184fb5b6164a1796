//! Leases in `box.db`. A lease lives as long as its holder's row: one row is renewed, however many leases there are.
//!
//! Times are those since boot, suspension included, and count only within one boot; the wall clock has no say. A row of
//! `leases` is never removed, so that its token never comes again.

use rusqlite::{Connection, OptionalExtension};

use super::super::{Claim, Holder, LEASE, Lease, Renewal, Resource};
use crate::store::OpError;

/// The moment of a transaction, as leases see it.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    /// Milliseconds since boot.
    pub(super) now_ms: i64,
    /// Which boot.
    pub(super) boot_id: String,
    /// Milliseconds since the epoch. New tokens are not below it, as those of a Redis aren't, so that they also grow when a box
    /// moves from the one registry to the other.
    pub(super) wall_ms: u64,
}

/// A newer incarnation of the same worker is there.
#[derive(Debug)]
pub(super) struct Superseded;

/// For how long a holder's leases still hold, if they do.
pub(super) fn remaining(
    connection: &Connection,
    holder: &Holder,
    moment: &Moment,
) -> Result<Option<std::time::Duration>, OpError> {
    let sql = "SELECT expires_ms FROM holders WHERE worker = ?1 AND incarnation = ?2 AND boot_id = ?3";
    let expires: Option<i64> = connection
        .prepare_cached(sql)?
        .query_row((&holder.worker, holder.incarnation as i64, &moment.boot_id), |row| row.get(0))
        .optional()?;
    let left = expires.map_or(0, |expires| expires - moment.now_ms);
    // A clock that runs backwards within a boot is no clock: nobody holds for longer than a lease.
    Ok((left > 0).then(|| std::time::Duration::from_millis(left as u64).min(LEASE)))
}

fn newer(connection: &Connection, holder: &Holder) -> Result<bool, OpError> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM holders WHERE worker = ?1 AND incarnation > ?2")?;
    Ok(statement.exists((&holder.worker, holder.incarnation as i64))?)
}

fn refresh(connection: &Connection, holder: &Holder, moment: &Moment, lost: bool) -> Result<(), OpError> {
    let sql = "INSERT INTO holders (worker, incarnation, boot_id, expires_ms) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO UPDATE SET boot_id = excluded.boot_id, expires_ms = excluded.expires_ms, lost = lost AND ?5";
    let expires = moment.now_ms + LEASE.as_millis() as i64;
    connection.prepare_cached(sql)?.execute((
        &holder.worker,
        holder.incarnation as i64,
        &moment.boot_id,
        expires,
        lost,
    ))?;
    Ok(())
}

fn mark_lost(connection: &Connection, holder: &Holder) -> Result<(), OpError> {
    let sql = "UPDATE holders SET lost = 1 WHERE worker = ?1 AND incarnation = ?2";
    connection.prepare_cached(sql)?.execute((&holder.worker, holder.incarnation as i64))?;
    Ok(())
}

fn stored(connection: &Connection, resource: &str) -> Result<Option<(u64, Option<Holder>)>, OpError> {
    let mut statement =
        connection.prepare_cached("SELECT token, worker, incarnation FROM leases WHERE resource = ?1")?;
    let found = statement.query_row([resource], |row| {
        let worker: Option<String> = row.get(1)?;
        let incarnation: Option<i64> = row.get(2)?;
        let holder =
            worker.zip(incarnation).map(|(worker, incarnation)| Holder { worker, incarnation: incarnation as u64 });
        Ok((row.get::<_, i64>(0)? as u64, holder))
    });
    Ok(found.optional()?)
}

/// Claims each resource on its own.
pub(super) fn claim(
    connection: &Connection,
    holder: &Holder,
    resources: &[Resource],
    supersede: bool,
    moment: &Moment,
) -> Result<Result<Vec<Claim>, Superseded>, OpError> {
    if newer(connection, holder)? {
        return Ok(Err(Superseded));
    }
    if supersede {
        // Proven dead: what they held is free, whether or not it is claimed now.
        connection
            .prepare_cached("DELETE FROM holders WHERE worker = ?1 AND incarnation < ?2")?
            .execute((&holder.worker, holder.incarnation as i64))?;
    }
    let mut claims = Vec::with_capacity(resources.len());
    for resource in resources {
        let key = resource.to_string();
        let found = stored(connection, &key)?;
        let token = match found {
            Some((token, Some(by))) if by == *holder => token,
            Some((token, by)) => {
                if let Some(by) = by {
                    if let Some(remaining) = remaining(connection, &by, moment)? {
                        claims.push(Claim::Taken { by, remaining });
                        continue;
                    }
                    mark_lost(connection, &by)?;
                }
                (token + 1).max(moment.wall_ms)
            }
            None => moment.wall_ms,
        };
        connection
            .prepare_cached(
                "INSERT INTO leases (resource, token, worker, incarnation) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET token = excluded.token, worker = excluded.worker,
                     incarnation = excluded.incarnation",
            )?
            .execute((&key, token as i64, &holder.worker, holder.incarnation as i64))?;
        claims.push(Claim::Held(Lease { resource: *resource, token }));
    }
    // A claim is also a renewal, since there is one row for all; what was lost before is still to be told.
    refresh(connection, holder, moment, true)?;
    Ok(Ok(claims))
}

/// Renews all that the holder has. Each lease is looked at only when somebody has taken one.
pub(super) fn renew(
    connection: &Connection,
    holder: &Holder,
    leases: &[Lease],
    moment: &Moment,
) -> Result<Renewal, OpError> {
    if newer(connection, holder)? {
        return Ok(Renewal { lost: leases.to_vec() });
    }
    let sql = "SELECT lost FROM holders WHERE worker = ?1 AND incarnation = ?2";
    let untouched: Option<bool> = connection
        .prepare_cached(sql)?
        .query_row((&holder.worker, holder.incarnation as i64), |row| Ok(row.get::<_, i64>(0)? == 0))
        .optional()?;
    let mut lost = Vec::new();
    if untouched != Some(true) {
        for lease in leases {
            match stored(connection, &lease.resource.to_string())? {
                Some((token, Some(by))) if by == *holder && token == lease.token => {}
                _ => lost.push(*lease),
            }
        }
    }
    refresh(connection, holder, moment, false)?;
    Ok(Renewal { lost })
}

/// Gives leases back; the tokens stay.
pub(super) fn release(connection: &Connection, holder: &Holder, leases: &[Lease]) -> Result<(), OpError> {
    let sql = "UPDATE leases SET worker = NULL, incarnation = NULL
               WHERE resource = ?1 AND token = ?2 AND worker = ?3 AND incarnation = ?4";
    for lease in leases {
        connection.prepare_cached(sql)?.execute((
            lease.resource.to_string(),
            lease.token as i64,
            &holder.worker,
            holder.incarnation as i64,
        ))?;
    }
    mark_lost(connection, holder)?;
    Ok(())
}

/// Removes the rows of holders that hold nothing any more.
pub(super) fn tidy(connection: &Connection, moment: &Moment) -> Result<(), OpError> {
    connection
        .prepare_cached(
            "DELETE FROM holders WHERE (boot_id <> ?1 OR expires_ms < ?2)
             AND EXISTS (SELECT 1 FROM holders AS newer
                         WHERE newer.worker = holders.worker AND newer.incarnation > holders.incarnation)",
        )?
        .execute((&moment.boot_id, moment.now_ms))?;
    Ok(())
}
