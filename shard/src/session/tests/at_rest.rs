//! What lies on the disk, and who may change it.

use std::sync::atomic::{AtomicBool, Ordering};

use base64::{Engine, engine::general_purpose::STANDARD};
use whatsapp_rust::wacore::store::{Device, traits::*};

use super::*;

/// Contract: C4.
#[tokio::test]
async fn what_was_stored_is_there_after_the_process_died() {
    let home = TestBox::new(None);
    let device = Device::new();
    {
        let session = open(&home.keeper(1), 1).await.session;
        session.save(&device).await.expect("saved");
        session.put_session("4915@s.whatsapp.net", b"ratchet 1").await.expect("stored");
        session.store_pending_inbound("chat", "sender", "id", b"decrypted").await.expect("stored");
    }
    let opened = open(&home.keeper(2), 2).await;
    assert_eq!(opened.restored, None);
    let session = opened.session;
    let loaded = session.load().await.expect("loaded").expect("there");
    assert_eq!(loaded.registration_id, device.registration_id);
    assert_eq!(loaded.noise_key.private_key.serialize(), device.noise_key.private_key.serialize());
    assert_eq!(session.get_session("4915@s.whatsapp.net").await.unwrap().as_deref(), Some(b"ratchet 1".as_slice()));
    let pending = session.get_pending_inbound("chat", "sender", "id").await.unwrap();
    assert_eq!(pending.as_deref(), Some(b"decrypted".as_slice()));
}

/// Contract: C1, C4.
#[tokio::test]
async fn a_stale_owner_writes_nothing_and_its_session_breaks() {
    let home = TestBox::new(None);
    let keeper = home.keeper(1);
    let old = open(&keeper, 4).await.session;
    old.put_session("a@s", b"1").await.expect("stored");
    let new = open(&keeper, 5).await.session;
    new.put_session("a@s", b"2").await.expect("stored");
    old.put_session("a@s", b"late").await.expect_err("fenced");
    assert!(old.broken().is_cancelled());
    assert!(matches!(old.why_broken(), Some(SessionError::Fenced(_))), "{:?}", old.why_broken());
    assert_eq!(new.get_session("a@s").await.unwrap().as_deref(), Some(b"2".as_slice()));
    assert!(matches!(keeper.open(right(4)).await.err(), Some(SessionError::Fenced(_))));
}

/// Contract: C1.
#[tokio::test]
async fn a_lease_that_can_not_be_proven_lets_nothing_be_written() {
    let home = TestBox::new(None);
    let keeper = home.keeper(1);
    let held = Arc::new(AtomicBool::new(true));
    let asked = held.clone();
    let right = Right { held: Arc::new(move || asked.load(Ordering::SeqCst)), ..right(1) };
    let session = keeper.open(right).await.expect("opened").session;
    session.put_session("a@s", b"1").await.expect("stored");
    held.store(false, Ordering::SeqCst);
    session.put_session("a@s", b"2").await.expect_err("not proven");
    held.store(true, Ordering::SeqCst);
    assert!(session.broken().is_cancelled());
    session.put_session("a@s", b"3").await.expect_err("what was not stored in between may belong to it");
    assert_eq!(session.get_session("a@s").await.unwrap().as_deref(), Some(b"1".as_slice()));
}

/// Contract: C4.
#[tokio::test]
async fn neither_a_key_nor_a_phone_number_can_be_read_from_the_file() {
    let home = TestBox::new(None);
    {
        let session = open(&home.keeper(1), 1).await.session;
        session.put_session("4915112345678@s.whatsapp.net", b"a very secret ratchet").await.expect("stored");
        let entry = LidPnMappingEntry {
            lid: "100000012345678".into(),
            phone_number: "4915112345678".into(),
            created_at: 1,
            updated_at: 1,
            learning_source: "test".into(),
        };
        session.put_lid_mapping(&entry).await.expect("stored");
        session.store_sent_message("4915112345678@s.whatsapp.net", "3EB0", b"hello there").await.expect("stored");
    }
    for file in std::fs::read_dir(home.dir.path()).expect("listed").flatten() {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        for secret in ["4915112345678", "100000012345678", "secret ratchet", "hello there"] {
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "{secret} in {}", file.path().display());
        }
    }
}

/// Contract: C4.
#[tokio::test]
async fn a_changed_row_is_refused_with_a_reason_and_not_used() {
    let home = TestBox::new(None);
    let store = home.store(1);
    let keeper = home.keeper_of(store.clone());
    open(&keeper, 1).await.session.save(&Device::new()).await.expect("saved");
    store
        .write(|connection| Ok(connection.execute("UPDATE session_rows SET value = zeroblob(200)", []).map(|_| ())?))
        .await
        .expect("damaged");
    let error = keeper.open(right(2)).await.err().expect("refused");
    assert!(matches!(&error, SessionError::Refused(reason) if reason.contains("was changed")), "{error}");
}

/// Contract: C4.
#[tokio::test]
async fn a_new_key_seals_the_session_and_the_old_one_is_then_not_needed() {
    let home = TestBox::new(None);
    open(&home.keeper(1), 1).await.session.save(&Device::new()).await.expect("saved");
    let path = home.dir.path().join("secret.key");
    let old = std::fs::read_to_string(&path).expect("read");
    let new = format!("{}\n", STANDARD.encode([9; 32]));
    let with_keys = |text: &str| {
        std::fs::write(&path, text).expect("written");
        let keyring = Arc::new(Keyring::open(&path).expect("keys"));
        TestBox { keyring, dir: tempfile::tempdir().expect("directory"), bucket: None, clock: home.clock.clone() }
    };
    let rotated = with_keys(&format!("{old}{new}"));
    let keeper = rotated.keeper_of(home.store(2));
    assert!(open(&keeper, 2).await.session.exists().await.expect("read"));
    drop(keeper);
    let only_new = with_keys(&new);
    let keeper = only_new.keeper_of(home.store(3));
    assert!(open(&keeper, 3).await.session.exists().await.expect("read"));
    drop(keeper);
    let only_old = with_keys(&old);
    let refused = only_old.keeper_of(home.store(4)).open(right(4)).await.err().expect("refused");
    assert!(refused.to_string().contains("does not hold key"), "{refused}");
}

/// Contract: C4.
#[tokio::test]
async fn a_session_moves_with_its_channel_when_the_layout_changes() {
    let home = TestBox::new(None);
    open(&home.keeper(1), 1).await.session.put_session("a@s", b"1").await.expect("stored");
    let count = 2;
    let index = crate::identity::shard_for_channel(channel(), count);
    let store = slot(home.dir.path(), ShardId { index, count }, 1, &home.clock);
    store.import_foreign().await.expect("imported");
    let session = open(&home.keeper_of(store), 2).await.session;
    assert_eq!(session.get_session("a@s").await.unwrap().as_deref(), Some(b"1".as_slice()));
}
