//! The built-in directory.

use std::{path::Path, sync::Arc};

use shard::{
    clock::SystemClock,
    directory::{ChannelSpec, Directory, DirectoryError, Handler, store::StoreDirectory},
    identity::ChannelId,
    platform::PlatformKind,
    secret::Secret,
    store::BoxStore,
};

use super::data_dir;
use crate::suites::{nothing, within};

fn open(dir: &Path) -> StoreDirectory {
    let shared = BoxStore::open(dir, Arc::new(SystemClock)).expect("opened");
    StoreDirectory::open(shared, &dir.join("secret.key")).expect("opened")
}

fn spec(number: u128, handler: Handler) -> ChannelSpec {
    ChannelSpec {
        id: ChannelId::from_uuid(uuid::Uuid::from_u128(number)),
        platform: PlatformKind::Telegram,
        token: Some(Secret::new("123456:very-secret-token")),
        handler,
        enabled: true,
        label: Some("a bot".into()),
    }
}

/// Contract: C2.
#[tokio::test]
async fn channels_are_added_listed_changed_and_removed() {
    let dir = data_dir();
    let directory = open(dir.path());
    assert!(directory.channels().await.expect("listed").is_empty());
    let agent = Handler::Agent { url: "http://127.0.0.1:1/agent".into(), secret: Some(Secret::new("sign-with-this")) };
    let specs =
        [spec(1, Handler::Echo), spec(2, agent), ChannelSpec { token: None, label: None, ..spec(3, Handler::None) }];
    for spec in &specs {
        assert!(directory.put(spec).await.expect("put"), "it is new");
    }
    drop(directory);

    let directory = open(dir.path());
    let listed: Vec<_> = directory.channels().await.expect("listed").iter().map(|spec| (**spec).clone()).collect();
    assert_eq!(listed, specs);
    assert!(!directory.put(&spec(1, Handler::None)).await.expect("put"), "it was there");
    assert!(directory.set_enabled(specs[1].id, false).await.expect("set"));
    assert!(directory.set_enabled(specs[1].id, false).await.expect("set again"));
    assert!(directory.remove(specs[2].id).await.expect("removed"));
    assert!(!directory.remove(specs[2].id).await.expect("gone by now"));
    assert!(!directory.set_enabled(specs[2].id, true).await.expect("gone by now"));
    let listed = directory.channels().await.expect("listed");
    let short: Vec<_> = listed.iter().map(|spec| (spec.enabled, spec.handler == Handler::None)).collect();
    assert_eq!(short, [(true, true), (false, false)]);
}

/// Contract: C2. Tokens are encrypted at rest.
#[tokio::test]
async fn no_file_but_the_key_file_gives_a_token_away() {
    let dir = data_dir();
    let directory = open(dir.path());
    let agent = Handler::Agent { url: "http://127.0.0.1:1/agent".into(), secret: Some(Secret::new("sign-with-this")) };
    directory.put(&spec(1, agent)).await.expect("put");
    drop(directory);
    let mut looked_at = 0;
    for entry in dir.path().read_dir().expect("read") {
        let bytes = std::fs::read(entry.expect("entry").path()).expect("read");
        for secret in ["very-secret-token", "sign-with-this"] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()));
        }
        looked_at += bytes.windows(5).filter(|part| part == b"a bot").count();
    }
    assert!(looked_at > 0, "the label lies there in the open, so that the search would have found a token");
}

/// Contract: C2.
#[tokio::test]
async fn every_process_of_the_box_learns_of_a_change() {
    let dir = data_dir();
    let mut listeners = [open(dir.path()), open(dir.path())];
    for (slot, listener) in listeners.iter_mut().enumerate() {
        listener.listen(slot as u32);
        listener.channels().await.expect("listed");
    }
    let deaf = open(dir.path());
    deaf.channels().await.expect("listed");
    nothing("before a change", listeners[0].changed()).await;
    let elsewhere = open(dir.path());
    elsewhere.put(&spec(1, Handler::Echo)).await.expect("put");
    for listener in &listeners {
        within("a change", listener.changed()).await;
        assert_eq!(listener.channels().await.expect("listed").len(), 1);
        nothing("twice", listener.changed()).await;
    }
    within("a change, found by looking", deaf.changed()).await;
    let id = spec(1, Handler::Echo).id;
    elsewhere.set_enabled(id, true).await.expect("as it was");
    nothing("what changes nothing", listeners[1].changed()).await;
    listeners[0].set_enabled(id, false).await.expect("changed");
    for listener in &listeners {
        within("a change", listener.changed()).await;
    }
}

/// Contract: C2.
#[tokio::test]
async fn a_lost_key_is_one_clear_line() {
    let dir = data_dir();
    let directory = open(dir.path());
    directory.put(&spec(1, Handler::Echo)).await.expect("put");
    std::fs::remove_file(dir.path().join("secret.key")).expect("removed");
    let directory = open(dir.path());
    let error = directory.channels().await.expect_err("sealed with the old key");
    let DirectoryError::Refused(line) = &error else { panic!("{error}") };
    assert!(line.contains("secret.key") && line.contains("does not hold key") && !line.contains('\n'), "{line}");
}
