//! Events that are told of before they are stored, and then are not.

use std::sync::{Mutex, mpsc};

use jiff::Timestamp;

use super::*;
use crate::{
    clock::SystemClock,
    event::{EventKind, Message},
    identity::ShardId,
    platform::PlatformKind,
    registry::Holder,
};

fn batch(key: &str) -> Batch {
    let channel = ChannelId::from_uuid(Uuid::from_u128(1));
    let kind = EventKind::MessageReceived(Message::default());
    let event = Event::new(channel, PlatformKind::Telegram, None, Timestamp::UNIX_EPOCH, key, kind);
    Batch { fence: Fence { channel, token: 1 }, events: vec![event], offset: Some(1) }
}

/// Contract: E1. What is still to be written about the one that was not stored must not meet another event.
#[tokio::test]
async fn the_position_of_an_event_that_was_not_stored_after_all_is_never_given_again() {
    let dir = tempfile::tempdir().expect("directory");
    let holder = Holder { worker: "w".into(), incarnation: 1 };
    let clock = Arc::new(SystemClock);
    let slot = SlotStore::open(dir.path(), ShardId::new(0, 1), &holder, clock).expect("opened");
    let outbox = EmbeddedOutbox::new(slot.clone());
    let (go, gate) = mpsc::channel::<()>();
    slot.writer().post(move |_| {
        let _ = gate.recv();
        Ok(())
    });
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = {
        let heard = heard.clone();
        Arc::new(move |stored: Vec<Stored>| heard.lock().expect("heard").extend(stored))
    };
    let leading = outbox.append_leading(batch("a"), &[Destination::Handler], told);
    let spoiled = slot.write(|connection| {
        connection.execute_batch(
            "CREATE TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
             INSERT INTO child VALUES (1);",
        )?;
        Ok::<_, OpError>(())
    });
    let release = async { go.send(()).expect("waits") };
    let (leading, spoiled, ()) = tokio::join!(leading, spoiled, release);
    assert!(leading.is_err() && spoiled.is_err(), "{leading:?} {spoiled:?}");
    let phantom = heard.lock().expect("heard")[0].position;
    assert!(outbox.open(0, 10).await.expect("read").is_empty());
    assert_eq!(outbox.offset(batch("a").fence.channel).await.expect("read"), None, "the platform gives it again");

    let stored = outbox.append(batch("b"), &[Destination::Handler]).await.expect("stored");
    outbox.delivered(phantom, Destination::Handler).await.expect("nothing to do");
    let open: Vec<_> = outbox.open(0, 10).await.expect("read").into_iter().map(|stored| stored.position).collect();
    assert_eq!(open, [stored[0].position]);
}
