//! Sessions as an operator moves them: out into a file, in from one, away. The channel must not be connected.

use std::sync::Arc;

use super::{
    bucket::{Bucket, BucketError},
    cipher::{DataKey, Place},
    rows::{self, Head, Kind, Sealed},
    snapshot::{Snapshot, SnapshotError},
};
use crate::{
    clock::Clock,
    identity::{ChannelId, shard_for_channel},
    keyring::{Keyring, KeyringError},
    store::{Peers, StoreError, key},
};

/// Why nothing was moved.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The bucket.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// The file.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The key file.
    #[error(transparent)]
    Key(#[from] KeyringError),
    /// There is none.
    #[error("channel {0} has no session here")]
    NoSession(ChannelId),
    /// One is there.
    #[error("channel {0} has a session here already")]
    Taken(ChannelId),
    /// It is another channel's.
    #[error("the file holds the session of channel {found}")]
    OtherChannel {
        /// Whose it is.
        found: ChannelId,
    },
    /// No random numbers, or a value too long to be sealed.
    #[error("{0}")]
    Seal(String),
}

/// A row of a session that was made elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForeignRow {
    pub(super) kind: Kind,
    pub(super) scope: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) at: i64,
    pub(super) value: Vec<u8>,
}

/// What is imported.
pub enum Import<'a> {
    /// A file of `session export`.
    Snapshot(&'a [u8]),
    /// What another client kept.
    Foreign(super::baileys::ForeignSession),
}

fn slot(channel: ChannelId, shard_count: u32) -> Option<u32> {
    (shard_count > 1).then(|| shard_for_channel(channel, shard_count))
}

/// The session as a file.
pub async fn export_session(
    peers: &Arc<Peers>,
    shard_count: u32,
    channel: ChannelId,
    keyring: &Keyring,
    clock: &dyn Clock,
) -> Result<Vec<u8>, TransferError> {
    let writer = match peers.writer(slot(channel, shard_count), false).await {
        Err(StoreError::Missing { .. }) => return Err(TransferError::NoSession(channel)),
        other => other?,
    };
    let read = writer.read(move |connection| {
        let head = rows::head(connection, channel)?;
        head.map(|head| Ok((head, rows::all(connection, channel)?))).transpose()
    });
    let (head, rows) = read.await?.ok_or(TransferError::NoSession(channel))?;
    Ok(Snapshot::new(channel, head, rows, clock.wall_ms()).encode(keyring)?)
}

/// Puts a session in place. With `replace` one that is there goes, with its snapshots.
pub async fn import_session(
    peers: &Arc<Peers>,
    shard_count: u32,
    channel: ChannelId,
    keyring: &Keyring,
    bucket: Option<&Bucket>,
    import: Import<'_>,
    replace: bool,
) -> Result<(), TransferError> {
    let (head, sealed) = match import {
        Import::Snapshot(file) => {
            let snapshot = Snapshot::decode(file, keyring)?;
            if snapshot.channel != channel {
                return Err(TransferError::OtherChannel { found: snapshot.channel });
            }
            (snapshot.head, snapshot.rows)
        }
        Import::Foreign(session) => seal(channel, keyring, &session.rows)?,
    };
    let writer = peers.writer(slot(channel, shard_count), true).await?;
    if !replace && writer.read(move |connection| rows::head(connection, channel)).await?.is_some() {
        return Err(TransferError::Taken(channel));
    }
    if let Some(bucket) = bucket {
        if !replace && bucket.newest(channel).await?.is_some() {
            return Err(TransferError::Taken(channel));
        }
        // What lies there is of before, and its names may sort above.
        bucket.clear(channel).await?;
    }
    writer
        .write(move |connection| {
            let sql = "SELECT coalesce((SELECT token FROM channels WHERE channel = ?1), 0)";
            let token: i64 = connection.query_row(sql, [key(channel)], |row| row.get(0))?;
            rows::delete(connection, channel)?;
            rows::put_head(connection, channel, &Head { token: token as u64, seq: head.seq + 1, ..head })?;
            sealed.iter().try_for_each(|row| rows::put(connection, channel, row))
        })
        .await?;
    Ok(())
}

/// Removes a session and its snapshots. `false` when there was none.
pub async fn delete_session(
    peers: &Arc<Peers>,
    shard_count: u32,
    channel: ChannelId,
    bucket: Option<&Bucket>,
) -> Result<bool, TransferError> {
    let mut deleted = false;
    if let Some(bucket) = bucket {
        deleted |= bucket.newest(channel).await?.is_some();
        bucket.clear(channel).await?;
    }
    match peers.writer(slot(channel, shard_count), false).await {
        Err(StoreError::Missing { .. }) => {}
        writer => deleted |= writer?.write(move |connection| rows::delete(connection, channel)).await?,
    }
    Ok(deleted)
}

fn seal(channel: ChannelId, keyring: &Keyring, foreign: &[ForeignRow]) -> Result<(Head, Vec<Sealed>), TransferError> {
    let data_key = DataKey::make(channel).map_err(|error| TransferError::Seal(error.to_string()))?;
    let head = Head { seq: 0, token: 0, key_id: keyring.newest().to_owned(), sealed_key: data_key.wrap(keyring)? };
    let mut sealed = Vec::with_capacity(foreign.len());
    for row in foreign {
        let kind = row.kind as u8;
        let place = Place { kind, scope: data_key.blind(kind, &row.scope), name: data_key.blind(kind, &row.name) };
        let value = data_key.seal(&place, &row.name, &row.value);
        let value = value.map_err(|error| TransferError::Seal(error.to_string()))?;
        sealed.push(Sealed { place, at: row.at, value });
    }
    Ok((head, sealed))
}
