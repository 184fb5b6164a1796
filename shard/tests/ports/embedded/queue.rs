//! The queue suite on slot files, and what only the embedded queue promises.

use std::sync::Arc;

use async_trait::async_trait;
use shard::{
    identity::{QueueBase, QueueName, ShardId},
    job::Lane,
    queue::{Consumer, EmbeddedQueue, Message, Queue, QueueError},
    store::StoreError,
};
use tempfile::TempDir;

use super::{data_dir, open_slot};
use crate::suites::{
    queue::{QueueHarness, queue_suite},
    within,
};

struct Slot {
    dir: TempDir,
    shard: ShardId,
    incarnation: u64,
}

impl Slot {
    async fn of(index: u32, count: u32) -> Self {
        Self { dir: data_dir(), shard: ShardId::new(index, count), incarnation: 0 }
    }

    fn open(&mut self) -> Arc<EmbeddedQueue> {
        self.incarnation += 1;
        let slot = open_slot(self.dir.path(), self.shard, self.incarnation).expect("opened");
        Arc::new(EmbeddedQueue::new(slot))
    }
}

#[async_trait]
impl QueueHarness for Slot {
    fn shard(&self) -> ShardId {
        self.shard
    }

    async fn start(&mut self) -> Arc<dyn Queue> {
        self.open()
    }

    async fn kill(&mut self, queue: Arc<dyn Queue>, consumers: Vec<Box<dyn Consumer>>) {
        // Nothing of it runs to its end: no consumer says goodbye, and the file stays open as a stopped process has it.
        consumers.into_iter().for_each(std::mem::forget);
        std::mem::forget(queue);
    }

    async fn producer(&self) -> Arc<dyn Queue> {
        Arc::new(EmbeddedQueue::producer(self.dir.path()))
    }
}

queue_suite!(Slot::of(1, 2));

async fn declared(queue: &Arc<EmbeddedQueue>, name: QueueName) {
    queue.declare(name).await.expect("declared");
}

/// Contract: C1, Q2. A stopped process that wakes after its successor began.
#[tokio::test]
async fn a_fenced_predecessor_is_refused_at_every_write_and_every_reading() {
    fn fenced<T>(what: &str, outcome: Result<T, QueueError>) {
        match outcome {
            Err(QueueError::Fenced { .. }) => {}
            Err(other) => panic!("{what}: {other}"),
            Ok(_) => panic!("{what}: went through"),
        }
    }
    let mut slot = Slot::of(0, 2).await;
    let old = slot.open();
    let name = slot.shard.queue(QueueBase::Main);
    declared(&old, name).await;
    for body in 0..12 {
        old.publish(name, Message::new(body.to_string())).await.expect("published");
    }
    let lane =
        Lane { base: QueueBase::Main, channel: "0b7c1f3e000040008000000000000001".parse().expect("id"), chat: None };
    let mut consumer = old.consume(name, 6).await.expect("consumes");
    let mut out = Vec::new();
    for _ in 0..6 {
        out.push(consumer.next().await.expect("there").expect("delivered"));
    }
    let first = out.remove(0);
    old.park(first.receipt, &lane, 1, first.message).await.expect("parked");

    let new = slot.open();
    let mut take = || out.remove(0);
    fenced("publish", old.publish(name, Message::new("late")).await);
    fenced("declare", old.declare(slot.shard.queue(QueueBase::Media)).await);
    fenced("ack", old.ack(take().receipt).await);
    let delivery = take();
    fenced("forward", old.forward(delivery.receipt, slot.shard.queue(QueueBase::Main), delivery.message).await);
    let delivery = take();
    fenced("park", old.park(delivery.receipt, &lane, 2, delivery.message).await);
    let delivery = take();
    fenced("bury", old.bury(delivery.receipt, delivery.message).await);
    fenced("unpark", old.unpark(name, &lane, 1).await);
    fenced("consume", old.consume(name, 6).await);
    old.release(vec![take().receipt]).await.expect("in memory only");
    fenced("next", consumer.next().await.expect("there"));

    let mut consumer = new.consume(name, 20).await.expect("consumes");
    for body in 1..12 {
        let delivery = within("a delivery", consumer.next()).await.expect("there").expect("delivered");
        assert_eq!(delivery.message.body, body.to_string());
    }
    let again = open_slot(slot.dir.path(), slot.shard, 1).expect_err("an older incarnation does not come back");
    assert!(matches!(again, StoreError::Fenced { .. }), "{again}");
}

/// Contract: Q2, Q10.
#[tokio::test]
async fn after_a_clean_end_nothing_is_marked_as_redelivered() {
    let mut slot = Slot::of(0, 1).await;
    let queue = slot.open();
    let name = slot.shard.queue(QueueBase::Main);
    declared(&queue, name).await;
    for body in 0..8 {
        queue.publish(name, Message::new(body.to_string())).await.expect("published");
    }
    let mut consumer = queue.consume(name, 4).await.expect("consumes");
    let mut out = Vec::new();
    for _ in 0..4 {
        out.push(consumer.next().await.expect("there").expect("delivered").receipt);
    }
    consumer.stop().await;
    queue.ack(out.remove(0)).await.expect("acked");
    queue.release(out).await.expect("released");
    drop(consumer);
    drop(queue);

    let queue = slot.open();
    let mut consumer = queue.consume(name, 10).await.expect("consumes");
    for body in 1..8 {
        let delivery = within("a delivery", consumer.next()).await.expect("there").expect("delivered");
        assert_eq!((delivery.message.body, delivery.redelivered), (body.to_string().into(), false));
    }
}

/// Contract: Q6. Shard 0 empties the bare queues that a layout of one has left.
#[tokio::test]
async fn the_bare_file_is_drained_by_a_shard_of_a_larger_layout() {
    let mut slot = Slot::of(0, 2).await;
    let queue = slot.open();
    let (bare, own) = (QueueName::bare(QueueBase::Main), slot.shard.queue(QueueBase::Main));
    declared(&queue, own).await;
    let producer = EmbeddedQueue::producer(slot.dir.path());
    producer.declare(bare).await.expect("declared");
    producer.publish(bare, Message::new("before")).await.expect("published");
    let mut consumer = queue.consume(bare, 5).await.expect("consumes");
    let mut own_consumer = queue.consume(own, 5).await.expect("consumes");
    for body in ["before", "after"] {
        if body == "after" {
            producer.publish(bare, Message::new(body)).await.expect("published");
        }
        let delivery = within("a straggler", consumer.next()).await.expect("there").expect("delivered");
        assert_eq!(delivery.message.body, body);
        queue.forward(delivery.receipt, own, delivery.message).await.expect("forwarded");
        let moved = within("the straggler", own_consumer.next()).await.expect("there").expect("delivered");
        assert_eq!(moved.message.body, body);
    }
    assert_eq!(producer.depth(bare).await.expect("depth").ready, 0);

    let successor = slot.open();
    let mut next = successor.consume(bare, 5).await.expect("takes the draining over");
    let old = queue.consume(bare, 5).await.map(|_| ());
    assert!(matches!(old, Err(QueueError::Fenced { .. })), "{old:?}");
    producer.publish(bare, Message::new("late")).await.expect("published");
    within("a straggler", next.next()).await.expect("there").expect("delivered");
}

/// Contract: Q2. A wake-up that got lost costs a second, no job.
#[tokio::test]
async fn a_lost_knock_is_made_good_by_looking() {
    let mut slot = Slot::of(0, 1).await;
    let queue = slot.open();
    let name = slot.shard.queue(QueueBase::Avatars);
    declared(&queue, name).await;
    let mut consumer = queue.consume(name, 5).await.expect("consumes");
    std::fs::remove_file(slot.dir.path().join("wake/queue.sock")).expect("the socket was there");
    let producer = EmbeddedQueue::producer(slot.dir.path());
    for body in ["1", "2"] {
        producer.publish(name, Message::new(body)).await.expect("published");
        let delivery = within("a delivery", consumer.next()).await.expect("there").expect("delivered");
        assert_eq!(delivery.message.body, body);
    }
}

/// Contract: Q2.
#[tokio::test]
async fn a_process_without_a_slot_can_not_consume() {
    let slot = Slot::of(0, 1).await;
    let name = slot.shard.queue(QueueBase::Main);
    let producer = EmbeddedQueue::producer(slot.dir.path());
    assert!(producer.existing().await.expect("nothing yet").is_empty());
    producer.declare(name).await.expect("declared");
    let refused = producer.consume(name, 1).await.map(|_| ());
    assert!(matches!(refused, Err(QueueError::Refused { .. })), "{refused:?}");
}
