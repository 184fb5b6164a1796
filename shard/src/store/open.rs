//! Opening a store file: made 0600 in a directory of 0700, WAL, every commit on the disk, little memory, known schema.

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig};

use super::{OpError, StoreError, schema::Kind};

/// How long somebody else's transaction is waited for: above the six seconds after which a silent shard is killed, so
/// that a stopped shard never makes another one's write fail.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(15);

/// WAL pages after which a commit also checkpoints.
const CHECKPOINT_PAGES: u32 = 1000;

/// Makes the data directory (0700) and what leads to it.
pub fn make_directory(dir: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| refused(dir, &error))
}

fn refused(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Refused {
        path: path.display().to_string(),
        cause: error.to_string(),
        advice: "the data directory must be there and be writable by this user".to_owned(),
    }
}

/// Makes an empty file for its owner alone. Only ever made here, never opened: closing a descriptor of ours would drop
/// the locks that SQLite holds on the same file for another connection of this process.
fn make_file(path: &Path) -> Result<(), StoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(refused(path, &error)),
        _ => Ok(()),
    }
}

/// Opens a file of a kind, with its schema brought up to date. Without `create`, one that isn't there is `Missing`.
pub(crate) fn connect(path: &Path, kind: Kind, create: bool) -> Result<Connection, StoreError> {
    let shown = path.display().to_string();
    if !path.exists() {
        if !create {
            return Err(StoreError::Missing { path: shown });
        }
        make_file(path)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let at = |error: rusqlite::Error| OpError::Sqlite(error).at(&shown);
    let mut connection = Connection::open_with_flags(path, flags).map_err(at)?;
    prepare(&connection).map_err(at)?;
    migrate(&mut connection, kind, &shown)?;
    Ok(connection)
}

fn prepare(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(96);
    // Plans don't depend on what is bound; otherwise a statement with a range is parsed anew for each new value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // The switch to WAL doesn't wait for others by itself; two processes may make the file at the same moment.
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let switched = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
        match switched {
            Ok(_) => break,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
    connection.pragma_update(None, "cache_size", -768)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    Ok(())
}

fn migrate(connection: &mut Connection, kind: Kind, path: &str) -> Result<(), StoreError> {
    let at = |error: rusqlite::Error| OpError::Sqlite(error).at(path);
    let pragma = |connection: &Connection, name: &str| -> Result<i64, StoreError> {
        connection.pragma_query_value(None, name, |row| row.get(0)).map_err(at)
    };
    let migrations = kind.migrations();
    let known = migrations.len() as i64;
    let check = |found: i64, application: i64| {
        if found > 0 && application != kind.application_id() {
            return Err(StoreError::Refused {
                path: path.to_owned(),
                cause: "this is another program's database".to_owned(),
                advice: "move it away or choose another data directory".to_owned(),
            });
        }
        if found > known { Err(StoreError::Newer { path: path.to_owned(), found, known }) } else { Ok(()) }
    };
    let found = pragma(connection, "user_version")?;
    check(found, pragma(connection, "application_id")?)?;
    if found == known {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(at)?;
    // Somebody may have been faster while we waited for the lock.
    let found = pragma(&transaction, "user_version")?;
    check(found, pragma(&transaction, "application_id")?)?;
    for sql in migrations.iter().skip(found as usize) {
        transaction.execute_batch(sql).map_err(at)?;
    }
    transaction.pragma_update(None, "application_id", kind.application_id()).map_err(at)?;
    transaction.pragma_update(None, "user_version", known).map_err(at)?;
    transaction.commit().map_err(at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_made_for_its_owner_alone() {
        let base = tempfile::tempdir().expect("directory");
        let dir = base.path().join("a/b");
        make_directory(&dir).expect("made");
        let path = dir.join("queue.db");
        connect(&path, Kind::Slot, true).expect("opened");
        let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&path)), (0o700, 0o600));
    }

    #[test]
    fn a_file_that_is_not_there_is_missing_unless_it_may_be_made() {
        let base = tempfile::tempdir().expect("directory");
        let error = connect(&base.path().join("queue.db"), Kind::Slot, false).expect_err("missing");
        assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    }

    #[test]
    fn a_second_opening_leaves_the_locks_of_the_first_in_force() {
        use std::os::unix::fs::MetadataExt;
        let base = tempfile::tempdir().expect("directory");
        let path = base.path().join("queue.db");
        let first = connect(&path, Kind::Slot, true).expect("opened");
        let inode = format!(":{} ", path.metadata().expect("there").ino());
        let locked = || std::fs::read_to_string("/proc/locks").expect("read").contains(&inode);
        assert!(locked(), "a connection in WAL mode holds a shared lock");
        let second = connect(&path, Kind::Slot, true).expect("opened again");
        assert!(locked());
        drop((first, second));
        assert!(!locked());
    }

    #[test]
    fn a_newer_schema_is_refused_in_one_line() {
        let base = tempfile::tempdir().expect("directory");
        let path = base.path().join("queue.db");
        let connection = connect(&path, Kind::Slot, true).expect("opened");
        connection.pragma_update(None, "user_version", 99).expect("set");
        drop(connection);
        let error = connect(&path, Kind::Slot, true).expect_err("refused");
        assert!(matches!(error, StoreError::Newer { found: 99, known: 2, .. }), "{error}");
        assert!(!error.to_string().contains('\n'));
    }

    #[test]
    fn a_foreign_file_is_refused_and_left_as_it_is() {
        let base = tempfile::tempdir().expect("directory");
        let text = base.path().join("queue.db");
        std::fs::write(&text, "this is no database at all, and long enough to be read as one").expect("written");
        let error = connect(&text, Kind::Slot, true).expect_err("refused");
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        assert!(std::fs::read(&text).expect("read").starts_with(b"this is no database"));

        let other = base.path().join("box.db");
        drop(connect(&other, Kind::Slot, true).expect("opened"));
        let error = connect(&other, Kind::Box, true).expect_err("refused");
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    }
}
