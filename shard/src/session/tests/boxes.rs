//! From box to box: the bucket, and files by hand.

use std::time::Duration;

use whatsapp_rust::wacore::store::{Device, traits::*};

use super::*;
use crate::{session::transfer::Import, store::Peers};

fn bucket(dir: &tempfile::TempDir) -> Bucket {
    Bucket::disk(dir.path()).expect("opened")
}

/// Contract: C4.
#[tokio::test]
async fn after_a_lost_box_the_session_comes_back_from_the_bucket_and_says_so() {
    let shared = tempfile::tempdir().expect("directory");
    let first = TestBox::new(Some(bucket(&shared)));
    let keeper = first.keeper(1);
    let session = open(&keeper, 1).await.session;
    session.save(&Device::new()).await.expect("saved");
    session.put_session("a@s", b"known to the bucket").await.expect("stored");
    keeper.settle(&session).await;
    session.put_session("a@s", b"lost with the box").await.expect("stored");

    let second = first.other();
    let opened = open(&second.keeper(1), 7).await;
    let restored = opened.restored.expect("restored");
    assert_eq!(restored.taken_ms, 1_700_000_000_000);
    let there = opened.session.get_session("a@s").await.unwrap();
    assert_eq!(there.as_deref(), Some(b"known to the bucket".as_slice()));
}

/// Contract: C4.
#[tokio::test]
async fn a_channel_that_was_elsewhere_meanwhile_does_not_go_on_from_the_older_state() {
    let shared = tempfile::tempdir().expect("directory");
    let first = TestBox::new(Some(bucket(&shared)));
    let keeper = first.keeper(1);
    let session = open(&keeper, 1).await.session;
    session.put_session("a@s", b"1").await.expect("stored");
    keeper.settle(&session).await;

    let second = first.other();
    let there = second.keeper(1);
    let moved = open(&there, 2).await.session;
    moved.put_session("a@s", b"2").await.expect("stored");
    there.settle(&moved).await;

    let back = open(&keeper, 3).await;
    assert!(back.restored.is_some());
    assert_eq!(back.session.get_session("a@s").await.unwrap().as_deref(), Some(b"2".as_slice()));
    // The owner of before wakes up late: neither its box nor the bucket takes anything from it.
    session.put_session("a@s", b"late").await.expect_err("fenced");
    keeper.settle(&session).await;
    let third = first.other();
    let last = open(&third.keeper(1), 9).await.session;
    assert_eq!(last.get_session("a@s").await.unwrap().as_deref(), Some(b"2".as_slice()));
}

/// Contract: C4.
#[tokio::test(start_paused = true)]
async fn a_change_reaches_the_bucket_within_the_lag() {
    let shared = tempfile::tempdir().expect("directory");
    let home = TestBox::new(Some(bucket(&shared)));
    let policy = SnapshotPolicy { lag: Duration::from_secs(60), ..SnapshotPolicy::default() };
    let clock = Arc::new(home.clock.clone());
    let keeper = SessionKeeper::new(home.store(1), home.keyring.clone(), home.bucket.clone(), policy, clock);
    let running = keeper.clone();
    let running = tokio::spawn(async move { running.run().await });
    let session = open(&keeper, 1).await.session;
    session.put_session("a@s", b"1").await.expect("stored");
    let began = tokio::time::Instant::now();
    while bucket(&shared).newest(channel()).await.expect("asked").is_none() {
        assert!(began.elapsed() < Duration::from_secs(120), "no snapshot");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(began.elapsed() >= Duration::from_secs(59), "{:?}", began.elapsed());
    running.abort();
}

/// Contract: C4.
#[tokio::test]
async fn a_damaged_snapshot_is_refused_wherever_it_was_changed() {
    let home = TestBox::new(None);
    let keeper = home.keeper(1);
    let session = open(&keeper, 1).await.session;
    session.save(&Device::new()).await.expect("saved");
    let peers = Peers::new(home.dir.path());
    let file = export_session(&peers, 1, channel(), &home.keyring, &home.clock).await.expect("exported");
    let whole = Snapshot::decode(&file, &home.keyring).expect("decoded");
    assert_eq!((whole.channel, whole.token), (channel(), 1));
    for at in (0..file.len()).step_by(7) {
        let mut changed = file.clone();
        changed[at] ^= 1;
        assert!(Snapshot::decode(&changed, &home.keyring).is_err(), "byte {at}");
    }
    for length in [0, 7, 8, 12, 60, file.len() - 1] {
        assert!(Snapshot::decode(&file[..length], &home.keyring).is_err(), "cut at {length}");
    }
    let newer = {
        let mut newer = file.clone();
        newer[7] = 9;
        newer
    };
    assert_eq!(Snapshot::decode(&newer, &home.keyring), Err(SnapshotError::Version(9)));
}

/// Contract: C4.
#[tokio::test]
async fn a_session_leaves_and_enters_a_box_as_a_file() {
    let home = TestBox::new(None);
    let keeper = home.keeper(1);
    open(&keeper, 1).await.session.put_session("a@s", b"1").await.expect("stored");
    let peers = Peers::new(home.dir.path());
    let file = export_session(&peers, 1, channel(), &home.keyring, &home.clock).await.expect("exported");
    let import = |replace| import_session(&peers, 1, channel(), &home.keyring, None, Import::Snapshot(&file), replace);
    assert!(matches!(import(false).await, Err(TransferError::Taken(_))));

    let shared = tempfile::tempdir().expect("directory");
    let other = TestBox { bucket: Some(bucket(&shared)), ..home.other() };
    let there = Peers::new(other.dir.path());
    let bucket = other.bucket.as_ref();
    import_session(&there, 1, channel(), &other.keyring, bucket, Import::Snapshot(&file), false)
        .await
        .expect("imported");
    let session = open(&other.keeper(1), 1).await.session;
    assert_eq!(session.get_session("a@s").await.unwrap().as_deref(), Some(b"1".as_slice()));

    assert!(delete_session(&there, 1, channel(), bucket).await.expect("deleted"));
    assert!(!delete_session(&there, 1, channel(), bucket).await.expect("nothing left"));
    let gone = export_session(&there, 1, channel(), &other.keyring, &other.clock).await;
    assert!(matches!(gone, Err(TransferError::NoSession(_))));
}
