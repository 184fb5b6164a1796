//! What can go wrong with a store file, sorted by what helps: waiting, a person, or nothing since somebody newer is there.

use rusqlite::ErrorCode;

use crate::identity::ChannelId;

/// Why a store did not do what was asked; nothing of it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else has the file's lock for too long: try again.
    #[error("{path}: unavailable: {cause}")]
    Unavailable {
        /// The file.
        path: String,
        /// Why.
        cause: String,
    },
    /// It can't work until somebody changes something.
    #[error("{path}: {cause}; {advice}")]
    Refused {
        /// The file.
        path: String,
        /// What was found.
        cause: String,
        /// What would be right.
        advice: String,
    },
    /// A newer incarnation has opened the file.
    #[error("{path}: fenced: a newer incarnation holds it")]
    Fenced {
        /// The file.
        path: String,
    },
    /// A newer owner of the channel has written.
    #[error("fenced: channel {0} is held by a newer owner")]
    ChannelFenced(ChannelId),
    /// The file was written by a newer version.
    #[error(
        "{path}: schema {found} is newer than {known}, the newest that this version knows; run the newer version again"
    )]
    Newer {
        /// The file.
        path: String,
        /// The file's schema.
        found: i64,
        /// The newest one known here.
        known: i64,
    },
    /// There is no such file.
    #[error("{path}: there is no such file")]
    Missing {
        /// The file.
        path: String,
    },
    /// The store's thread has ended.
    #[error("{path}: the store is closed")]
    Closed {
        /// The file.
        path: String,
    },
}

/// How one piece of work inside a transaction fails. The writer adds the path.
#[derive(Debug)]
pub(crate) enum OpError {
    /// SQLite says no.
    Sqlite(rusqlite::Error),
    /// A newer owner of the channel has written.
    ChannelFenced(ChannelId),
    /// What is stored can't be read back.
    Unreadable(String),
}

impl From<rusqlite::Error> for OpError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl OpError {
    /// The same with the file's path, sorted by what helps.
    pub(crate) fn at(self, path: &str) -> StoreError {
        match self {
            Self::ChannelFenced(channel) => StoreError::ChannelFenced(channel),
            Self::Unreadable(cause) => StoreError::Refused {
                path: path.to_owned(),
                cause,
                advice: "the file holds something that this version did not write".to_owned(),
            },
            Self::Sqlite(error) => classify(error, path),
        }
    }
}

fn classify(error: rusqlite::Error, path: &str) -> StoreError {
    let path = path.to_owned();
    let code = error.sqlite_error_code();
    let cause = match code {
        Some(ErrorCode::DiskFull) => "the disk is full".to_owned(),
        _ => error.to_string(),
    };
    let advice = match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => return StoreError::Unavailable { path, cause },
        Some(ErrorCode::DiskFull) => "free some space; work goes on by itself then",
        Some(ErrorCode::ReadOnly) => "the data directory and its files must be writable by this user",
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "the data directory must be there and be writable by this user"
        }
        Some(ErrorCode::SystemIoFailure) => "check the disk, its free space and the kernel log",
        Some(ErrorCode::DatabaseCorrupt) => "the file is damaged: stop, keep a copy, and restore or remove it",
        Some(ErrorCode::NotADatabase) => "the file is no store of shardvisor: move it away",
        _ => "this should not happen: please report it",
    };
    StoreError::Refused { path, cause, advice: advice.to_owned() }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn failure(code: i32) -> StoreError {
        OpError::Sqlite(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).at("/data/queue.db")
    }

    #[test]
    fn only_a_lock_held_by_somebody_else_is_worth_a_retry() {
        for busy in [ffi::SQLITE_BUSY, ffi::SQLITE_LOCKED, ffi::SQLITE_BUSY_SNAPSHOT] {
            assert!(matches!(failure(busy), StoreError::Unavailable { .. }), "{busy}");
        }
        for refused in [
            ffi::SQLITE_FULL,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_CANTOPEN,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_NOTADB,
        ] {
            let error = failure(refused);
            assert!(matches!(error, StoreError::Refused { .. }), "{error}");
            assert!(error.to_string().starts_with("/data/queue.db: "), "{error}");
        }
    }
}
