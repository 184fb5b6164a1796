//! What the box keeps of a directory that lies elsewhere, in `box.db`: its last good answer, sealed like all tokens, so that a
//! restart doesn't depend on it; what `connect` and `disconnect` set against it; and which removals wait for a person.
//!
//! All shards of the box write here. Each writes what it accepted, so that the last one to be asked has the say; they are all asked
//! within one interval.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use rusqlite::{Connection, OptionalExtension};

use super::{ChannelSpec, DirectoryError, Entry};
use crate::{
    identity::ChannelId,
    keyring::Keyring,
    store::{BoxStore, OpError, StoreError, key, knock_all, unkey},
};

/// What a sealed entry is for.
const ENTRY: &str = "directory";
/// A row of a channel that is not to be run here at all.
const LEFT_ALONE: i64 = 2;

/// The tables.
pub struct Kept {
    shared: Arc<BoxStore>,
    keys: Keyring,
}

/// What people and jobs said about what the directory says.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Whether it shall run, and what the directory said when that was set.
    pub(super) set: BTreeMap<ChannelId, (bool, bool)>,
    /// Channels that are held back, and whether they may go by now.
    pub(super) held: BTreeMap<ChannelId, bool>,
}

/// What an answer changes of what is kept.
#[derive(Debug, Default)]
pub(super) struct Diff<'a> {
    /// New or changed entries.
    pub(super) put: Vec<&'a Entry>,
    /// Channels that are gone.
    pub(super) gone: Vec<ChannelId>,
    /// Settings that the directory overtook.
    pub(super) unset: Vec<ChannelId>,
    /// Channels that are held back from now on.
    pub(super) hold: Vec<ChannelId>,
    /// Channels that are held back no longer.
    pub(super) free: Vec<ChannelId>,
}

impl Notes {
    /// What was set for a channel, unless the directory has changed its mind since.
    pub(super) fn apply(&self, spec: &mut ChannelSpec) {
        if let Some((enabled, listed)) = self.set.get(&spec.id)
            && spec.enabled == *listed
        {
            spec.enabled = *enabled;
        }
    }
}

impl Diff<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && [&self.gone, &self.unset, &self.hold, &self.free].iter().all(|ids| ids.is_empty())
    }
}

impl Kept {
    /// Opens it with its key file, which is made if there is none.
    pub fn open(shared: Arc<BoxStore>, key_file: &Path) -> Result<Self, DirectoryError> {
        let keys = Keyring::open(key_file).map_err(|error| DirectoryError::Refused(error.to_string()))?;
        Ok(Self { shared, keys })
    }

    /// The data directory.
    pub(super) fn dir(&self) -> &Path {
        self.shared.dir()
    }

    /// The keys by which entries are sealed.
    pub(super) fn keys(&self) -> &Keyring {
        &self.keys
    }

    /// The last good answer of this source. That of another one is forgotten: it says nothing about this one.
    pub(super) async fn load(&self, source: &str) -> Result<BTreeMap<ChannelId, Entry>, DirectoryError> {
        let source = source.to_owned();
        let rows = self.shared.write(move |connection| {
            let sql = "SELECT source FROM directory_source";
            let before: Option<String> = connection.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
            if before.as_deref() != Some(&source) {
                for table in ["directory_kept", "directory_set", "directory_held"] {
                    connection.execute(&format!("DELETE FROM {table}"), [])?;
                }
                connection.execute("INSERT OR REPLACE INTO directory_source VALUES (1, ?1)", [source])?;
            }
            let mut statement = connection.prepare_cached("SELECT channel, key_id, sealed FROM directory_kept")?;
            let rows = statement
                .query_map([], |row| Ok((unkey(row.get(0)?), row.get::<_, String>(1)?, row.get::<_, Vec<u8>>(2)?)))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        });
        let mut entries = BTreeMap::new();
        for (id, key_id, sealed) in rows.await.map_err(store_error)? {
            match self.entry(id, &key_id, &sealed) {
                Ok(entry) => {
                    entries.insert(id, entry);
                }
                Err(problem) => {
                    tracing::error!(channel = %id, %problem, "what was kept of the directory can't be read")
                }
            }
        }
        Ok(entries)
    }

    fn entry(&self, id: ChannelId, key_id: &str, sealed: &[u8]) -> Result<Entry, String> {
        let plain = self.keys.unseal_bytes(id, ENTRY, key_id, sealed).map_err(|error| error.to_string())?;
        let value = serde_json::from_slice(&plain).map_err(|_| "is no JSON".to_owned())?;
        Entry::read(0, &value, &self.keys).map_err(|bad| bad.problem)
    }

    /// What people and jobs said.
    pub(super) async fn notes(&self) -> Result<Notes, DirectoryError> {
        let read = self.shared.read(|connection| {
            let mut set = connection.prepare_cached("SELECT channel, enabled, listed FROM directory_set")?;
            let set = set.query_map([], |row| Ok((unkey(row.get(0)?), (row.get(1)?, row.get(2)?))))?;
            let mut held = connection.prepare_cached("SELECT channel, confirmed FROM directory_held")?;
            let held = held.query_map([], |row| Ok((unkey(row.get(0)?), row.get(1)?)))?;
            Ok(Notes { set: set.collect::<Result<_, _>>()?, held: held.collect::<Result<_, _>>()? })
        });
        read.await.map_err(store_error)
    }

    /// Keeps what an answer changed.
    pub(super) async fn keep(&self, diff: Diff<'_>) -> Result<(), DirectoryError> {
        let mut put = Vec::with_capacity(diff.put.len());
        for entry in &diff.put {
            let plain = zeroize::Zeroizing::new(entry.write().to_string());
            let sealed = self.keys.seal_bytes(entry.spec().id, ENTRY, plain.as_bytes());
            let sealed = sealed.map_err(|error| DirectoryError::Refused(error.to_string()))?;
            let listed = match entry {
                Entry::Channel(spec) => i64::from(spec.enabled),
                Entry::LeftAlone(_) => LEFT_ALONE,
            };
            put.push((key(entry.spec().id), listed, self.keys.newest().to_owned(), sealed));
        }
        let Diff { gone, unset, hold, free, .. } = diff;
        let written = self.shared.write(move |connection| {
            let sql = "INSERT OR REPLACE INTO directory_kept (channel, listed, key_id, sealed) VALUES (?1, ?2, ?3, ?4)";
            for row in put {
                connection.prepare_cached(sql)?.execute(row)?;
            }
            for id in gone {
                connection.prepare_cached("DELETE FROM directory_kept WHERE channel = ?1")?.execute([key(id)])?;
            }
            for id in unset {
                connection.prepare_cached("DELETE FROM directory_set WHERE channel = ?1")?.execute([key(id)])?;
            }
            for id in hold {
                // Another shard may have noted it, and a person confirmed it, already.
                let sql = "INSERT OR IGNORE INTO directory_held VALUES (?1, 0)";
                connection.prepare_cached(sql)?.execute([key(id)])?;
            }
            for id in free {
                connection.prepare_cached("DELETE FROM directory_held WHERE channel = ?1")?.execute([key(id)])?;
            }
            Ok(())
        });
        written.await.map_err(store_error)
    }

    /// Sets whether a channel shall run, against what the directory says, until that changes its mind. `false` when the
    /// directory doesn't list it.
    pub async fn set_enabled(&self, channel: ChannelId, enabled: bool) -> Result<bool, DirectoryError> {
        let (listed, changed) = self
            .shared
            .write(move |connection| {
                let listed = listed(connection, channel)?;
                let changed = match listed {
                    None | Some(LEFT_ALONE) => 0,
                    Some(listed) if (listed != 0) == enabled => {
                        let sql = "DELETE FROM directory_set WHERE channel = ?1";
                        connection.prepare_cached(sql)?.execute([key(channel)])?
                    }
                    Some(listed) => {
                        let sql = "INSERT OR REPLACE INTO directory_set (channel, enabled, listed) VALUES (?1, ?2, ?3)";
                        connection.prepare_cached(sql)?.execute((key(channel), enabled, listed))?
                    }
                };
                Ok((listed, changed))
            })
            .await
            .map_err(store_error)?;
        if listed == Some(LEFT_ALONE) && enabled {
            let problem = format!("channel {channel} is not held: its events go elsewhere, as the directory says");
            return Err(DirectoryError::Refused(problem));
        }
        if changed > 0 {
            knock_all(self.shared.dir(), "directory-");
        }
        Ok(listed.is_some())
    }

    /// Lets all go that are held back now; how many. Each shard is told.
    pub async fn confirm(&self) -> Result<usize, DirectoryError> {
        let sql = "UPDATE directory_held SET confirmed = 1 WHERE confirmed = 0";
        let confirmed = self.shared.write(move |connection| Ok(connection.execute(sql, [])?)).await;
        let confirmed = confirmed.map_err(store_error)?;
        if confirmed > 0 {
            knock_all(self.shared.dir(), "directory-");
        }
        Ok(confirmed)
    }
}

fn listed(connection: &Connection, channel: ChannelId) -> Result<Option<i64>, OpError> {
    let sql = "SELECT listed FROM directory_kept WHERE channel = ?1";
    Ok(connection.prepare_cached(sql)?.query_row([key(channel)], |row| row.get(0)).optional()?)
}

fn store_error(error: StoreError) -> DirectoryError {
    match error {
        StoreError::Unavailable { .. } | StoreError::Closed { .. } => DirectoryError::Unavailable(error.to_string()),
        _ => DirectoryError::Refused(error.to_string()),
    }
}
