//! Group commit, seen from its callers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use rusqlite::Connection;

use super::Writer;
use crate::{
    identity::ChannelId,
    store::{OpError, StoreError, open::connect, schema::Kind},
};

fn put(number: i64) -> impl FnOnce(&Connection) -> Result<i64, OpError> + Send {
    move |connection| {
        let sql = "INSERT INTO queues (base, last_id, out_mark) VALUES (?1, 0, 0)";
        connection.prepare_cached(sql)?.execute([number])?;
        Ok(number)
    }
}

fn all(connection: &Connection) -> Result<Vec<i64>, OpError> {
    let mut statement = connection.prepare_cached("SELECT base FROM queues ORDER BY base")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn start(dir: &std::path::Path) -> Writer {
    let path = dir.join("queue.db");
    Writer::start(&path, connect(&path, Kind::Slot, true).expect("opened"), None).expect("started")
}

#[tokio::test]
async fn work_that_fails_is_undone_alone_and_its_neighbours_are_stored() {
    let base = tempfile::tempdir().expect("directory");
    let writer = start(base.path());
    // Holds the thread up, so that what follows shares a transaction.
    let (go, gate) = std::sync::mpsc::channel::<()>();
    writer.post(move |_| {
        let _ = gate.recv();
        Ok(())
    });
    let channel = ChannelId::from_uuid(uuid::Uuid::nil());
    let half = move |connection: &Connection| {
        put(2)(connection)?;
        Err::<(), _>(OpError::ChannelFenced(channel))
    };
    let first = writer.write(put(1));
    let failing = writer.write(half);
    let doubled = writer.write(put(1));
    let last = writer.write(put(3));
    let seen = writer.read(all);
    let release = async { go.send(()).expect("waits") };
    let (first, failing, doubled, last, seen, ()) = tokio::join!(first, failing, doubled, last, seen, release);
    assert_eq!((first, last), (Ok(1), Ok(3)));
    assert_eq!(failing, Err(StoreError::ChannelFenced(channel)));
    assert!(matches!(doubled, Err(StoreError::Refused { .. })), "{doubled:?}");
    assert_eq!(seen, Ok(vec![1, 3]));
}

#[tokio::test]
async fn dropping_the_handle_waits_for_what_was_given() {
    let base = tempfile::tempdir().expect("directory");
    let writer = start(base.path());
    for number in 0..100 {
        writer.post(move |connection| put(number)(connection).map(|_| ()));
    }
    drop(writer);
    let writer = start(base.path());
    assert_eq!(writer.read(all).await.expect("read").len(), 100);
}

#[tokio::test]
async fn work_is_done_also_when_its_caller_stops_waiting() {
    let base = tempfile::tempdir().expect("directory");
    let writer = start(base.path());
    let mut asked = Box::pin(writer.write(put(1)));
    let _ = futures_util::poll!(&mut asked);
    drop(asked);
    assert_eq!(writer.read(all).await.expect("read"), [1]);
}

#[tokio::test]
async fn it_is_seen_for_how_long_work_waits() {
    let base = tempfile::tempdir().expect("directory");
    let writer = start(base.path());
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let (began, begun) = tokio::sync::oneshot::channel();
    writer.post(move |_| {
        let _ = began.send(());
        let _ = gate.recv();
        Ok(())
    });
    begun.await.expect("began");
    let first = writer.waiting().expect("one waits");
    while writer.waiting().expect("one waits") <= first {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(go);
    writer.read(all).await.expect("read");
    while writer.waiting().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_wal_that_a_burst_has_left_long_is_emptied_in_a_quiet_moment() {
    let base = tempfile::tempdir().expect("directory");
    let writer = start(base.path());
    let fill = |connection: &Connection| {
        connection.execute("INSERT INTO jobs (id, body) VALUES (1, zeroblob(6000000))", [])?;
        Ok(())
    };
    writer.write(fill).await.expect("stored");
    let wal = base.path().join("queue.db-wal");
    assert!(wal.metadata().expect("there").len() > 6_000_000);
    let emptied = async {
        while wal.metadata().expect("there").len() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), emptied).await.expect("emptied");
}

#[tokio::test]
async fn patient_work_is_stored_with_what_comes_next_or_soon_by_itself() {
    let base = tempfile::tempdir().expect("directory");
    let writer = start(base.path());
    let (patient, urgent) = (writer.write_patiently(put(1), |_| {}), writer.write(put(2)));
    assert_eq!(tokio::join!(patient, urgent), (Ok(1), Ok(2)));
    let alone = tokio::time::timeout(Duration::from_secs(20), writer.write_patiently(put(3), |_| {})).await;
    assert_eq!(alone, Ok(Ok(3)));
    assert_eq!(writer.read(all).await.expect("read"), [1, 2, 3]);
}

/// What is told early, and whether it was taken back.
#[derive(Default)]
struct Told {
    told: AtomicBool,
    undone: AtomicBool,
}

/// Fails when the transaction is committed, not before.
fn spoil(connection: &Connection) -> Result<(), OpError> {
    connection.execute_batch(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY);
         CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
         INSERT INTO child VALUES (1);",
    )?;
    Ok(())
}

/// Begins a leading write, and waits until it is told of.
async fn lead(writer: &Arc<Writer>, told: &Arc<Told>) -> tokio::task::JoinHandle<Result<i64, StoreError>> {
    let (writer, early, late) = (writer.clone(), told.clone(), told.clone());
    let (began, begun) = tokio::sync::oneshot::channel();
    let leading = tokio::spawn(async move {
        let tell = move |number: &i64| {
            early.told.store(*number == 1, Relaxed);
            let _ = began.send(());
        };
        writer.write_leading(put(1), tell, move || late.undone.store(true, Relaxed)).await
    });
    begun.await.expect("told early");
    leading
}

/// Also when the machine fails between the two: neither is there without the other.
#[tokio::test]
async fn what_a_leading_write_leads_to_shares_its_transaction() {
    let base = tempfile::tempdir().expect("directory");
    let (writer, told) = (Arc::new(start(base.path())), Arc::new(Told::default()));
    let leading = lead(&writer, &told).await;
    let other = Connection::open(base.path().join("queue.db")).expect("opened");
    let follower = writer.write(move |connection| Ok((all(connection)?, all(&other)?)));
    let (ours, theirs) = follower.await.expect("stored");
    // The disk may have been slow enough for the wait to be over.
    assert!(ours == [1] && (theirs.is_empty() || theirs == [1]), "{ours:?} {theirs:?}");
    assert_eq!(leading.await.expect("no panic"), Ok(1));
    assert!(!told.undone.load(Relaxed));
}

#[tokio::test]
async fn a_leading_write_to_which_nothing_is_added_is_stored_soon() {
    let base = tempfile::tempdir().expect("directory");
    let (writer, told) = (Arc::new(start(base.path())), Arc::new(Told::default()));
    let stored = async { lead(&writer, &told).await.await.expect("no panic") };
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), stored).await, Ok(Ok(1)));
    assert_eq!(writer.read(all).await.expect("read"), [1]);
}

#[tokio::test]
async fn a_leading_write_that_is_not_stored_after_all_is_taken_back_with_what_came_of_it() {
    let base = tempfile::tempdir().expect("directory");
    let (writer, told) = (Arc::new(start(base.path())), Arc::new(Told::default()));
    // Holds the thread up, so that what follows shares a transaction.
    let (go, gate) = std::sync::mpsc::channel::<()>();
    writer.post(move |_| {
        let _ = gate.recv();
        Ok(())
    });
    let early = told.clone();
    let late = told.clone();
    let leading = writer.write_leading(
        put(1),
        move |_| early.told.store(true, Relaxed),
        move || late.undone.store(true, Relaxed),
    );
    let spoiled = writer.write(spoil);
    let release = async { go.send(()).expect("waits") };
    let (leading, spoiled, ()) = tokio::join!(leading, spoiled, release);
    assert!(leading.is_err() && spoiled.is_err(), "{leading:?} {spoiled:?}");
    assert!(told.told.load(Relaxed) && told.undone.load(Relaxed));
    assert!(writer.read(all).await.expect("read").is_empty());
}
