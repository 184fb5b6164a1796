//! The slot files of a data directory as seen from one process: its own, and the others, opened when first needed and
//! entered only by short transactions.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rusqlite::TransactionBehavior;
use tokio::sync::OnceCell;

use super::{
    OpError, StoreError,
    open::{connect, make_directory},
    schema::Kind,
    writer::Writer,
};

/// Which slot file: `None` is that of the bare queues.
pub(crate) type Index = Option<u32>;

/// In what right a slot file is opened so that others are fenced off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// The slot's own process.
    Owner,
    /// The process that empties a queue of another layout.
    Drainer,
}

/// The name of a slot file.
pub(crate) fn file_name(index: Index) -> String {
    match index {
        None => "queue.db".to_owned(),
        Some(index) => format!("queue-{index}.db"),
    }
}

/// The slot files of a data directory.
#[derive(Debug)]
pub struct Peers {
    dir: PathBuf,
    own: Option<(Index, Arc<Writer>)>,
    others: Mutex<HashMap<Index, Arc<OnceCell<Arc<Writer>>>>>,
}

impl Peers {
    /// The files of a directory, none of them ours.
    pub fn new(dir: &Path) -> Arc<Self> {
        Arc::new(Self { dir: dir.to_owned(), own: None, others: Mutex::default() })
    }

    pub(super) fn beside(dir: &Path, index: Index, own: Arc<Writer>) -> Arc<Self> {
        Arc::new(Self { dir: dir.to_owned(), own: Some((index, own)), others: Mutex::default() })
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The writer of a slot file; one that isn't there is `Missing`, or is made.
    pub(crate) async fn writer(&self, index: Index, create: bool) -> Result<Arc<Writer>, StoreError> {
        if let Some((own, writer)) = &self.own
            && *own == index
        {
            return Ok(writer.clone());
        }
        let cell = self.others.lock().expect("peers").entry(index).or_default().clone();
        let path = self.dir.join(file_name(index));
        let writer = cell.get_or_try_init(|| async move {
            opening(path, move |path| {
                if create && let Some(dir) = path.parent() {
                    make_directory(dir)?;
                }
                let connection = connect(path, Kind::Slot, create)?;
                Writer::start(path, connection, None).map(Arc::new)
            })
            .await
        });
        writer.await.cloned()
    }

    /// Opens another layout's file to empty it; fences off whoever did so before. Gives the token too.
    pub(crate) async fn drain(&self, index: Index, incarnation: u64) -> Result<(Arc<Writer>, i64), StoreError> {
        let path = self.dir.join(file_name(index));
        opening(path, move |path| enter(path, Right::Drainer, incarnation, false)).await
    }

    /// The slot files that are there, the bare one first.
    pub(crate) fn existing(&self) -> Result<Vec<Index>, StoreError> {
        let unreadable = |error: std::io::Error| StoreError::Refused {
            path: self.dir.display().to_string(),
            cause: error.to_string(),
            advice: "the data directory must be readable by this user".to_owned(),
        };
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(unreadable)?.file_name();
            let Some(name) = name.to_str() else { continue };
            if name == "queue.db" {
                found.push(None);
            } else if let Some(index) = name.strip_prefix("queue-").and_then(|rest| rest.strip_suffix(".db"))
                && let Ok(index) = index.parse::<u32>()
                && file_name(Some(index)) == name
            {
                found.push(Some(index));
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// Opens a slot file in a right: refused when a greater incarnation did so before; everybody who did is fenced off.
pub(super) fn enter(
    path: &Path,
    right: Right,
    incarnation: u64,
    create: bool,
) -> Result<(Arc<Writer>, i64), StoreError> {
    let mut connection = connect(path, Kind::Slot, create)?;
    let shown = path.display().to_string();
    let at = |error: rusqlite::Error| OpError::Sqlite(error).at(&shown);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(at)?;
    let (select, update) = match right {
        Right::Owner => ("SELECT incarnation, token FROM owner", "UPDATE owner SET incarnation = ?1, token = ?2"),
        Right::Drainer => ("SELECT drainer, token FROM owner", "UPDATE owner SET drainer = ?1, token = ?2"),
    };
    let (last, token): (i64, i64) =
        transaction.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(at)?;
    if last > incarnation as i64 {
        return Err(StoreError::Fenced { path: shown });
    }
    let token = token + 1;
    transaction.execute(update, (incarnation as i64, token)).map_err(at)?;
    transaction.commit().map_err(at)?;
    Ok((Arc::new(Writer::start(path, connection, Some(token))?), token))
}

/// Opening may wait for somebody's lock, which the runtime's only thread must not.
async fn opening<T: Send + 'static>(
    path: PathBuf,
    open: impl FnOnce(&Path) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let shown = path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || open(&path)).await;
    opened.unwrap_or_else(|error| Err(StoreError::Unavailable { path: shown, cause: error.to_string() }))
}
