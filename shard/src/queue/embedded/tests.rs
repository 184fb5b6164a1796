//! Jobs that are given out before they are stored, and then are not.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    clock::SystemClock,
    identity::ShardId,
    registry::Holder,
    store::{OpError, SlotStore},
};

fn open(dir: &Path) -> Arc<SlotStore> {
    let holder = Holder { worker: "w".into(), incarnation: 1 };
    SlotStore::open(dir, ShardId::new(0, 1), &holder, Arc::new(SystemClock)).expect("opened")
}

/// Contract: Q2. Whoever had it begins anew, and the job that is published again is given out once.
#[tokio::test]
async fn a_job_that_is_not_stored_after_all_ends_the_subscription_and_nothing_of_it_stays() {
    let dir = tempfile::tempdir().expect("directory");
    let slot = open(dir.path());
    let queue = EmbeddedQueue::new(slot.clone());
    let name = QueueName::bare(QueueBase::Main);
    queue.declare(name).await.expect("declared");
    let mut consumer = queue.consume(name, 8).await.expect("consumes");
    for body in ["first", "second"] {
        queue.publish(name, Message::new(body)).await.expect("published");
        let delivery = consumer.next().await.expect("there").expect("delivered");
        queue.ack(delivery.receipt).await.expect("acked");
    }
    // The first publish is in the transaction that the second write makes impossible to commit.
    let (go, gate) = std::sync::mpsc::channel::<()>();
    slot.writer().post(move |_| {
        let _ = gate.recv();
        Ok(())
    });
    let published = queue.publish_guarded(name, Message::new("third"));
    let spoiled = slot.write(|connection| {
        connection.execute_batch(
            "CREATE TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
             INSERT INTO child VALUES (1);",
        )?;
        Ok::<_, OpError>(())
    });
    let release = async { go.send(()).expect("waits") };
    let (published, spoiled, ()) = tokio::join!(published, spoiled, release);
    assert!(published.is_err() && spoiled.is_err(), "{published:?} {spoiled:?}");
    let next = tokio::time::timeout(Duration::from_secs(20), consumer.next()).await.expect("ends");
    assert!(matches!(next, Some(Err(QueueError::Stale { .. }))), "{next:?}");
    drop(consumer);

    let mut consumer = queue.consume(name, 8).await.expect("consumes");
    queue.publish_guarded(name, Message::new("third")).await.expect("published");
    let delivery = consumer.next().await.expect("there").expect("delivered");
    assert_eq!(delivery.message.body, "third");
    assert_eq!(queue.depth(name).await.expect("depth").ready, 1);
    queue.ack(delivery.receipt).await.expect("acked");
    assert_eq!(queue.depth(name).await.expect("depth").ready, 0);
}
