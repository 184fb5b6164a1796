//! A session's rows in the slot's file: what kinds there are, and the statements that read and write them.

use rusqlite::{Connection, OptionalExtension, Row as SqlRow};

use super::cipher::{Blind, Place};
use crate::{
    identity::ChannelId,
    registry::Fence,
    store::{OpError, check_fence, key},
};

/// What a row is. The numbers are written down and never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Device = 1,
    Identity = 2,
    Session = 3,
    PreKey = 4,
    SignedPreKey = 5,
    SenderKey = 6,
    SyncKey = 7,
    SyncKeyLatest = 8,
    SyncVersion = 9,
    MutationMac = 10,
    SenderKeyDevice = 11,
    LidMapping = 12,
    PnMapping = 13,
    BaseKey = 14,
    DeviceList = 15,
    GroupMetadata = 16,
    TcToken = 17,
    SentMessage = 18,
    PendingInbound = 19,
    MsgSecret = 20,
    Anchor = 21,
    History = 22,
}

/// The head of a channel's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// How many changes there were.
    pub(super) seq: u64,
    /// The token of whoever made the last one.
    pub(super) token: u64,
    /// Which key of the key file sealed the session's own.
    pub(super) key_id: String,
    /// The session's own key, sealed.
    pub(super) sealed_key: Vec<u8>,
}

/// A row with its value sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sealed {
    pub(super) place: Place,
    pub(super) at: i64,
    pub(super) value: Vec<u8>,
}

/// One change of a session.
#[derive(Debug)]
pub(super) enum Change {
    Put(Sealed),
    /// Sets the time of a row that is there.
    Mark {
        place: Place,
        at: i64,
    },
    Delete(Place),
    /// All of one scope.
    DeleteScope {
        kind: Kind,
        scope: Blind,
    },
    /// All of a kind.
    DeleteKind(Kind),
}

pub(super) fn head(connection: &Connection, channel: ChannelId) -> Result<Option<Head>, OpError> {
    let sql = "SELECT seq, token, key_id, sealed_key FROM sessions WHERE channel = ?1";
    let head = connection.prepare_cached(sql)?.query_row([key(channel)], |row| {
        Ok(Head {
            seq: row.get::<_, i64>(0)? as u64,
            token: row.get::<_, i64>(1)? as u64,
            key_id: row.get(2)?,
            sealed_key: row.get(3)?,
        })
    });
    Ok(head.optional()?)
}

pub(super) fn put_head(connection: &Connection, channel: ChannelId, head: &Head) -> Result<(), OpError> {
    let sql = "INSERT OR REPLACE INTO sessions (channel, seq, token, key_id, sealed_key) VALUES (?1, ?2, ?3, ?4, ?5)";
    connection.prepare_cached(sql)?.execute((
        key(channel),
        head.seq as i64,
        head.token as i64,
        &head.key_id,
        &head.sealed_key,
    ))?;
    Ok(())
}

/// Makes changes under a right, or none of them.
pub(super) fn change(connection: &Connection, fence: &Fence, changes: &[Change]) -> Result<(), OpError> {
    check_fence(connection, fence)?;
    let channel = key(fence.channel);
    for change in changes {
        match change {
            Change::Put(row) => put(connection, fence.channel, row)?,
            Change::Mark { place, at } => {
                let sql = "UPDATE session_rows SET at = ?5
                    WHERE channel = ?1 AND kind = ?2 AND scope = ?3 AND name = ?4";
                connection.prepare_cached(sql)?.execute((channel, place.kind, place.scope, place.name, at))?;
            }
            Change::Delete(place) => {
                let sql = "DELETE FROM session_rows WHERE channel = ?1 AND kind = ?2 AND scope = ?3 AND name = ?4";
                connection.prepare_cached(sql)?.execute((channel, place.kind, place.scope, place.name))?;
            }
            Change::DeleteScope { kind, scope } => {
                let sql = "DELETE FROM session_rows WHERE channel = ?1 AND kind = ?2 AND scope = ?3";
                connection.prepare_cached(sql)?.execute((channel, *kind as u8, scope))?;
            }
            Change::DeleteKind(kind) => {
                let sql = "DELETE FROM session_rows WHERE channel = ?1 AND kind = ?2";
                connection.prepare_cached(sql)?.execute((channel, *kind as u8))?;
            }
        }
    }
    let sql = "UPDATE sessions SET seq = seq + 1, token = ?2 WHERE channel = ?1";
    if connection.prepare_cached(sql)?.execute((channel, fence.token as i64))? == 0 {
        // Somebody deleted it while it was open: what would be written has no key any more.
        return Err(OpError::Unreadable(format!("the session of channel {} was deleted", fence.channel)));
    }
    Ok(())
}

pub(super) fn put(connection: &Connection, channel: ChannelId, row: &Sealed) -> Result<(), OpError> {
    let sql = "INSERT INTO session_rows (channel, kind, scope, name, at, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (channel, kind, scope, name) DO UPDATE SET at = excluded.at, value = excluded.value";
    let place = &row.place;
    connection.prepare_cached(sql)?.execute((key(channel), place.kind, place.scope, place.name, row.at, &row.value))?;
    Ok(())
}

pub(super) fn get(connection: &Connection, channel: ChannelId, place: &Place) -> Result<Option<Sealed>, OpError> {
    let sql = "SELECT kind, scope, name, at, value FROM session_rows
        WHERE channel = ?1 AND kind = ?2 AND scope = ?3 AND name = ?4";
    let row = connection.prepare_cached(sql)?.query_row((key(channel), place.kind, place.scope, place.name), sealed);
    Ok(row.optional()?)
}

/// Whether a scope of a kind has any row.
pub(super) fn has_scope(
    connection: &Connection,
    channel: ChannelId,
    kind: Kind,
    scope: &Blind,
) -> Result<bool, OpError> {
    let sql = "SELECT 1 FROM session_rows WHERE channel = ?1 AND kind = ?2 AND scope = ?3 LIMIT 1";
    Ok(connection.prepare_cached(sql)?.exists((key(channel), kind as u8, scope))?)
}

/// All rows of a kind, or of one scope of it.
pub(super) fn list(
    connection: &Connection,
    channel: ChannelId,
    kind: Kind,
    scope: Option<Blind>,
) -> Result<Vec<Sealed>, OpError> {
    let sql = "SELECT kind, scope, name, at, value FROM session_rows
        WHERE channel = ?1 AND kind = ?2 AND (?3 IS NULL OR scope = ?3)";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map((key(channel), kind as u8, scope), sealed)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The whole session, in one order.
pub(super) fn all(connection: &Connection, channel: ChannelId) -> Result<Vec<Sealed>, OpError> {
    let sql = "SELECT kind, scope, name, at, value FROM session_rows WHERE channel = ?1 ORDER BY kind, scope, name";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([key(channel)], sealed)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether a kind has rows whose time is set and before `cutoff`.
pub(super) fn has_expired(
    connection: &Connection,
    channel: ChannelId,
    kind: Kind,
    cutoff: i64,
) -> Result<bool, OpError> {
    let sql = "SELECT 1 FROM session_rows WHERE channel = ?1 AND kind = ?2 AND at <> 0 AND at < ?3 LIMIT 1";
    Ok(connection.prepare_cached(sql)?.exists((key(channel), kind as u8, cutoff))?)
}

/// Deletes rows of a kind whose time is set and before `cutoff`; how many.
pub(super) fn expire(connection: &Connection, fence: &Fence, kind: Kind, cutoff: i64) -> Result<u32, OpError> {
    change(connection, fence, &[])?;
    let sql = "DELETE FROM session_rows WHERE channel = ?1 AND kind = ?2 AND at <> 0 AND at < ?3";
    let deleted = connection.prepare_cached(sql)?.execute((key(fence.channel), kind as u8, cutoff))?;
    Ok(u32::try_from(deleted).unwrap_or(u32::MAX))
}

/// Removes a session.
pub(super) fn delete(connection: &Connection, channel: ChannelId) -> Result<bool, OpError> {
    connection.prepare_cached("DELETE FROM session_rows WHERE channel = ?1")?.execute([key(channel)])?;
    Ok(connection.prepare_cached("DELETE FROM sessions WHERE channel = ?1")?.execute([key(channel)])? > 0)
}

fn sealed(row: &SqlRow<'_>) -> Result<Sealed, rusqlite::Error> {
    let place = Place { kind: row.get(0)?, scope: row.get(1)?, name: row.get(2)? };
    Ok(Sealed { place, at: row.get(3)?, value: row.get(4)? })
}
