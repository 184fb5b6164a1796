//! The built-in directory in `box.db`: channels are added by the command line or by REST, tokens and handler secrets are
//! encrypted at rest.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rusqlite::Connection;

use super::{ChannelSpec, Directory, DirectoryError, Handler};
use crate::{
    identity::ChannelId,
    keyring::{Keyring, KeyringError},
    store::{BoxStore, OpError, StoreError, Wake, key, knock_all, knocked, unkey},
};

/// How often it is looked for changes, should a wake-up have been lost.
const LOOK: Duration = Duration::from_secs(2);
/// What a sealed value is for.
const TOKEN: &str = "token";
const SECRET: &str = "secret";

/// The channels of a box.
pub struct StoreDirectory {
    shared: Arc<BoxStore>,
    keys: Keyring,
    wake: Option<Wake>,
    /// The version that was last read as a whole.
    seen: Mutex<Option<i64>>,
}

/// A channel as it is stored.
struct Row {
    channel: ChannelId,
    platform: String,
    enabled: bool,
    label: Option<String>,
    handler: String,
    url: Option<String>,
    token: Option<Vec<u8>>,
    secret: Option<Vec<u8>>,
    key_id: String,
}

impl StoreDirectory {
    /// Opens it with its key file, which is made if there is none.
    pub fn open(shared: Arc<BoxStore>, key_file: &Path) -> Result<Self, DirectoryError> {
        Ok(Self { keys: Keyring::open(key_file).map_err(refused)?, shared, wake: None, seen: Mutex::default() })
    }

    /// Listens for changes that other processes of the box make; `slot` keeps the listeners of a box apart. Must be
    /// called within the runtime. Without it changes are seen when looked for.
    pub fn listen(&mut self, slot: u32) {
        match Wake::bind(self.shared.dir(), &format!("directory-{slot}")) {
            Ok(wake) => self.wake = Some(wake),
            Err(error) => tracing::warn!(%error, "no wake-up socket: changes of channels are seen within seconds"),
        }
    }

    /// Adds a channel, or replaces the one with its id. `true` when there was none.
    pub async fn put(&self, spec: &ChannelSpec) -> Result<bool, DirectoryError> {
        let seal = |what, secret: &Option<crate::secret::Secret>| {
            secret.as_ref().map(|secret| self.keys.seal(spec.id, what, secret)).transpose().map_err(refused)
        };
        let (handler, url, secret) = match &spec.handler {
            Handler::None => ("none", None, None),
            Handler::Echo => ("echo", None, None),
            Handler::Agent { url, secret } => ("agent", Some(url.clone()), seal(SECRET, secret)?),
        };
        let row = Row {
            channel: spec.id,
            platform: spec.platform.as_str().to_owned(),
            enabled: spec.enabled,
            label: spec.label.clone(),
            handler: handler.to_owned(),
            url,
            token: seal(TOKEN, &spec.token)?,
            secret,
            key_id: self.keys.newest().to_owned(),
        };
        self.change(move |connection| {
            let there =
                connection.prepare_cached("SELECT 1 FROM directory WHERE channel = ?1")?.exists([key(row.channel)])?;
            let sql = "INSERT OR REPLACE INTO directory
                (channel, platform, enabled, label, handler, url, token, secret, key_id)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
            connection.prepare_cached(sql)?.execute((
                key(row.channel),
                row.platform,
                row.enabled,
                row.label,
                row.handler,
                row.url,
                row.token,
                row.secret,
                row.key_id,
            ))?;
            Ok((true, !there))
        })
        .await
    }

    /// Removes a channel. `false` when there is none.
    pub async fn remove(&self, channel: ChannelId) -> Result<bool, DirectoryError> {
        self.change(move |connection| {
            let sql = "DELETE FROM directory WHERE channel = ?1";
            let removed = connection.prepare_cached(sql)?.execute([key(channel)])? > 0;
            Ok((removed, removed))
        })
        .await
    }

    /// Makes a change and tells everybody on the box of it, if it was one.
    async fn change(
        &self,
        work: impl FnOnce(&Connection) -> Result<(bool, bool), OpError> + Send + 'static,
    ) -> Result<bool, DirectoryError> {
        let (changed, answer) = self
            .shared
            .write(move |connection| {
                let (changed, answer) = work(connection)?;
                if changed {
                    connection.prepare_cached("UPDATE directory_version SET version = version + 1")?.execute([])?;
                }
                Ok((changed, answer))
            })
            .await
            .map_err(directory_error)?;
        if changed {
            knock_all(self.shared.dir(), "directory-");
        }
        Ok(answer)
    }

    fn spec(&self, row: Row) -> Result<Arc<ChannelSpec>, DirectoryError> {
        let channel = row.channel;
        let unseal = |what, sealed: Option<Vec<u8>>| {
            sealed.map(|sealed| self.keys.unseal(channel, what, &row.key_id, &sealed)).transpose().map_err(refused)
        };
        let nonsense = |problem: String| DirectoryError::Nonsense(format!("channel {channel}: {problem}"));
        let handler = match (row.handler.as_str(), row.url) {
            ("none", _) => Handler::None,
            ("echo", _) => Handler::Echo,
            ("agent", Some(url)) => Handler::Agent { url, secret: unseal(SECRET, row.secret)? },
            (other, _) => return Err(nonsense(format!("{other:?} is no handler"))),
        };
        Ok(Arc::new(ChannelSpec {
            id: channel,
            platform: row.platform.parse().map_err(nonsense)?,
            token: unseal(TOKEN, row.token)?,
            handler,
            enabled: row.enabled,
            label: row.label,
        }))
    }
}

fn version(connection: &Connection) -> Result<i64, OpError> {
    let mut statement = connection.prepare_cached("SELECT version FROM directory_version")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

fn rows(connection: &Connection) -> Result<Vec<Row>, OpError> {
    let sql = "SELECT channel, platform, enabled, label, handler, url, token, secret, key_id FROM directory";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        Ok(Row {
            channel: unkey(row.get(0)?),
            platform: row.get(1)?,
            enabled: row.get(2)?,
            label: row.get(3)?,
            handler: row.get(4)?,
            url: row.get(5)?,
            token: row.get(6)?,
            secret: row.get(7)?,
            key_id: row.get(8)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn refused(error: KeyringError) -> DirectoryError {
    DirectoryError::Refused(error.to_string())
}

fn directory_error(error: StoreError) -> DirectoryError {
    match error {
        StoreError::Unavailable { .. } | StoreError::Closed { .. } => DirectoryError::Unavailable(error.to_string()),
        _ => DirectoryError::Refused(error.to_string()),
    }
}

#[async_trait]
impl Directory for StoreDirectory {
    async fn channels(&self) -> Result<Vec<Arc<ChannelSpec>>, DirectoryError> {
        // The version is read first: a change in between is told once too often, never not at all.
        let read = self.shared.read(|connection| Ok((version(connection)?, rows(connection)?))).await;
        let (version, rows) = read.map_err(directory_error)?;
        let specs = rows.into_iter().map(|row| self.spec(row)).collect::<Result<_, _>>()?;
        *self.seen.lock().expect("seen") = Some(version);
        Ok(specs)
    }

    async fn set_enabled(&self, channel: ChannelId, enabled: bool) -> Result<bool, DirectoryError> {
        self.change(move |connection| {
            let there =
                connection.prepare_cached("SELECT 1 FROM directory WHERE channel = ?1")?.exists([key(channel)])?;
            let sql = "UPDATE directory SET enabled = ?2 WHERE channel = ?1 AND enabled <> ?2";
            let changed = connection.prepare_cached(sql)?.execute((key(channel), enabled))? > 0;
            Ok((changed, there))
        })
        .await
    }

    async fn changed(&self) {
        loop {
            // What can't be read now is looked at again; whoever asks for the channels is told why.
            if let Ok(now) = self.shared.read(version).await {
                let mut seen = self.seen.lock().expect("seen");
                if seen.replace(now) != Some(now) {
                    return;
                }
            }
            tokio::select! {
                () = knocked(self.wake.as_ref()) => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}
