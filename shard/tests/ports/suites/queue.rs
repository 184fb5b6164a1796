//! What every [`Queue`] owes.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use shard::{
    identity::{ChannelId, QueueBase, QueueName, ShardId},
    job::Lane,
    queue::{Consumer, Delivery, Depth, Headers, Message, Queue, QueueError, Receipt},
};

use super::{nothing, within};

/// One slot's queues on one set of data, and the processes that come and go on it.
#[async_trait]
pub(crate) trait QueueHarness: Send {
    /// The slot: one of at least two.
    fn shard(&self) -> ShardId;
    /// The slot's next process, once the one before has ended.
    async fn start(&mut self) -> Arc<dyn Queue>;
    /// The process ends as by SIGKILL: nothing is tidied up.
    async fn kill(&mut self, queue: Arc<dyn Queue>, consumers: Vec<Box<dyn Consumer>>);
    /// Another process, which holds no slot.
    async fn producer(&self) -> Arc<dyn Queue>;
}

fn own(harness: &dyn QueueHarness) -> QueueName {
    harness.shard().queue(QueueBase::Main)
}

fn other(harness: &dyn QueueHarness) -> QueueName {
    let shard = harness.shard();
    QueueName::of(QueueBase::Main, (shard.index + 1) % shard.count, shard.count)
}

fn lane(chat: &str) -> Lane {
    let channel: ChannelId = "0b7c1f3e-0000-4000-8000-000000000001".parse().expect("uuid");
    Lane { base: QueueBase::Main, channel, chat: Some(chat.to_owned()) }
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.message.body.to_vec()).expect("text")
}

async fn publish(queue: &Arc<dyn Queue>, name: QueueName, bodies: impl IntoIterator<Item = usize>) {
    for body in bodies {
        queue.publish(name, Message::new(body.to_string())).await.expect("published");
    }
}

async fn next(consumer: &mut Box<dyn Consumer>) -> Delivery {
    within("a delivery", consumer.next()).await.expect("not ended").expect("delivered")
}

async fn take(consumer: &mut Box<dyn Consumer>, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(next(consumer).await);
    }
    taken
}

fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(text).collect()
}

fn numbers(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|number| number.to_string()).collect()
}

async fn depth(queue: &Arc<dyn Queue>, name: QueueName) -> Depth {
    queue.depth(name).await.expect("depth")
}

async fn started(harness: &mut impl QueueHarness) -> (Arc<dyn Queue>, QueueName) {
    let queue = harness.start().await;
    let name = own(harness);
    for base in QueueBase::ALL {
        queue.declare(harness.shard().queue(base)).await.expect("declared");
    }
    (queue, name)
}

/// Contract: Q3.
pub(crate) async fn deliveries_come_in_publishing_order_whoever_publishes(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    let producer = harness.producer().await;
    let mut consumer = queue.consume(name, 50).await.expect("consumes");
    for body in 0..40 {
        let from = if body % 3 == 0 { &producer } else { &queue };
        publish(from, name, [body]).await;
    }
    let taken = take(&mut consumer, 40).await;
    assert_eq!(texts(&taken), numbers(0..40));
    assert!(taken.iter().all(|delivery| !delivery.redelivered));
    for delivery in taken {
        queue.ack(delivery.receipt).await.expect("acked");
    }
    assert_eq!(depth(&queue, name).await, Depth::default());
}

/// Contract: Q2.
pub(crate) async fn no_more_than_the_prefetch_is_out(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..5).await;
    let mut consumer = queue.consume(name, 2).await.expect("consumes");
    let mut taken = take(&mut consumer, 2).await;
    nothing("beyond the prefetch", consumer.next()).await;
    queue.ack(taken.remove(0).receipt).await.expect("acked");
    assert_eq!(text(&next(&mut consumer).await), "2");
    nothing("beyond the prefetch", consumer.next()).await;
}

/// Contract: Q2, Q3.
pub(crate) async fn what_a_killed_process_had_out_comes_again_in_its_old_place_and_is_marked(
    mut harness: impl QueueHarness,
) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..40).await;
    let mut consumer = queue.consume(name, 4).await.expect("consumes");
    let mut taken = take(&mut consumer, 4).await;
    queue.ack(taken.remove(1).receipt).await.expect("acked");
    harness.kill(queue, vec![consumer]).await;

    let queue = harness.start().await;
    let mut consumer = queue.consume(name, 50).await.expect("consumes");
    let again = take(&mut consumer, 39).await;
    let expected: Vec<_> = [0].into_iter().chain(2..40).collect();
    assert_eq!(texts(&again), numbers(expected));
    assert!(again[..3].iter().all(|delivery| delivery.redelivered), "these were out");
    assert!(again[30..].iter().all(|delivery| !delivery.redelivered), "these were far from out");
    assert!(again.iter().all(|delivery| delivery.message.headers.attempts == 0), "a death is no attempt");
}

/// Contract: Q2.
pub(crate) async fn what_was_settled_never_comes_again(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    queue.declare(other(&harness)).await.expect("declared");
    publish(&queue, name, 0..5).await;
    let mut consumer = queue.consume(name, 10).await.expect("consumes");
    let mut taken = take(&mut consumer, 5).await.into_iter().map(|delivery| (delivery.receipt, delivery.message));
    let mut settle = || taken.next().expect("taken");
    let (receipt, _) = settle();
    queue.ack(receipt).await.expect("acked");
    let (receipt, message) = settle();
    queue.forward(receipt, other(&harness), message).await.expect("forwarded");
    let (receipt, message) = settle();
    queue.park(receipt, &lane("a"), 1, message).await.expect("parked");
    let (receipt, message) = settle();
    queue.bury(receipt, message).await.expect("buried");
    harness.kill(queue, vec![consumer]).await;

    let queue = harness.start().await;
    let mut consumer = queue.consume(name, 10).await.expect("consumes");
    assert_eq!(text(&next(&mut consumer).await), "4");
    nothing("settled ones", consumer.next()).await;
    assert_eq!(depth(&queue, name).await, Depth { ready: 1, parked: 1, dead: 1 });
    assert_eq!(depth(&queue, other(&harness)).await.ready, 1);
}

/// Contract: Q10.
pub(crate) async fn what_is_released_goes_back_to_its_old_place_and_no_attempt_is_counted(
    mut harness: impl QueueHarness,
) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..6).await;
    let mut consumer = queue.consume(name, 3).await.expect("consumes");
    let taken = take(&mut consumer, 3).await;
    consumer.stop().await;
    queue.release(taken.into_iter().map(|delivery| delivery.receipt).collect()).await.expect("released");
    drop(consumer);

    let mut consumer = queue.consume(name, 10).await.expect("consumes");
    let again = take(&mut consumer, 6).await;
    assert_eq!(texts(&again), numbers(0..6));
    assert!(again.iter().all(|delivery| delivery.message.headers == Headers::default()));
}

/// Contract: Q10.
pub(crate) async fn a_stopped_consumer_ends_and_what_is_out_can_still_be_settled(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..3).await;
    let mut consumer = queue.consume(name, 1).await.expect("consumes");
    let first = next(&mut consumer).await;
    consumer.stop().await;
    let mut after = Vec::new();
    while let Some(delivery) = within("the end", consumer.next()).await {
        after.push(delivery.expect("delivered"));
    }
    queue.ack(first.receipt).await.expect("acked");
    queue.release(after.into_iter().map(|delivery| delivery.receipt).collect()).await.expect("released");
    assert_eq!(depth(&queue, name).await.ready, 2);
}

/// Contract: Q2.
pub(crate) async fn what_a_dropped_consumer_had_out_goes_to_the_next_one(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..3).await;
    let mut consumer = queue.consume(name, 2).await.expect("consumes");
    let mut taken = take(&mut consumer, 2).await;
    queue.ack(taken.remove(0).receipt).await.expect("acked");
    drop(consumer);
    let mut consumer = queue.consume(name, 2).await.expect("consumes");
    let again = take(&mut consumer, 2).await;
    assert_eq!(texts(&again), numbers(1..3));
    assert!(again[0].redelivered);
}

/// Contract: Q2.
pub(crate) async fn a_receipt_of_an_ended_session_is_refused(mut harness: impl QueueHarness) {
    fn stale(outcome: Result<(), QueueError>) {
        assert!(matches!(outcome, Err(QueueError::Stale { .. })), "{outcome:?}");
    }
    fn copy(receipt: &Receipt) -> Receipt {
        Receipt { queue: receipt.queue, tag: receipt.tag, session: receipt.session }
    }
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..1).await;
    let mut consumer = queue.consume(name, 2).await.expect("consumes");
    let old = next(&mut consumer).await;
    drop(consumer);
    stale(queue.ack(copy(&old.receipt)).await);
    let mut consumer = queue.consume(name, 2).await.expect("consumes");
    let fresh = next(&mut consumer).await;
    stale(queue.ack(copy(&old.receipt)).await);
    stale(queue.release(vec![copy(&old.receipt)]).await);
    stale(queue.bury(copy(&old.receipt), old.message.clone()).await);
    stale(queue.park(copy(&old.receipt), &lane("a"), 1, old.message.clone()).await);
    stale(queue.forward(copy(&old.receipt), name, old.message.clone()).await);
    harness.kill(queue, vec![consumer]).await;

    let queue = harness.start().await;
    let mut consumer = queue.consume(name, 2).await.expect("consumes");
    let last = next(&mut consumer).await;
    stale(queue.ack(fresh.receipt).await);
    queue.ack(copy(&last.receipt)).await.expect("acked");
    stale(queue.ack(last.receipt).await);
    assert_eq!(depth(&queue, name).await, Depth::default());
}

/// Contract: Q6.
pub(crate) async fn a_forwarded_message_goes_to_the_end_of_the_other_queue(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    let (media, foreign) = (harness.shard().queue(QueueBase::Media), other(&harness));
    queue.declare(foreign).await.expect("declared");
    publish(&queue, foreign, [7]).await;
    publish(&queue, media, [7]).await;
    publish(&queue, name, 0..2).await;
    let mut consumer = queue.consume(name, 5).await.expect("consumes");
    for to in [foreign, media] {
        let delivery = next(&mut consumer).await;
        let mut message = delivery.message;
        message.headers.foreign.insert("x-trace".into(), "t1".into());
        queue.forward(delivery.receipt, to, message).await.expect("forwarded");
    }
    assert_eq!(depth(&queue, name).await.ready, 0);
    let mut media = queue.consume(media, 5).await.expect("consumes");
    let arrived = take(&mut media, 2).await;
    assert_eq!(texts(&arrived), ["7", "1"]);
    assert_eq!(arrived[1].message.headers.foreign["x-trace"], "t1");
    assert_eq!(depth(&queue, foreign).await.ready, 2);
}

/// Contract: Q6.
pub(crate) async fn what_can_not_be_forwarded_stays(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..1).await;
    let mut consumer = queue.consume(name, 5).await.expect("consumes");
    let delivery = next(&mut consumer).await;
    let gone = queue.forward(delivery.receipt, other(&harness), delivery.message).await;
    assert!(matches!(gone, Err(QueueError::Missing { .. })), "{gone:?}");
    harness.kill(queue, vec![consumer]).await;
    let queue = harness.start().await;
    let mut consumer = queue.consume(name, 5).await.expect("consumes");
    assert_eq!(text(&next(&mut consumer).await), "0");
}

/// Contract: Q3.
pub(crate) async fn parked_messages_come_back_in_the_order_of_their_lane_and_not_twice(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..6).await;
    let mut consumer = queue.consume(name, 10).await.expect("consumes");
    let taken = take(&mut consumer, 6).await;
    // Parked in another order than that of their places; the last one belongs to another lane.
    for (delivery, seq) in taken.into_iter().zip([3, 1, 5, 2, 4, 1]) {
        let which = if text(&delivery) == "5" { lane("b") } else { lane("a") };
        queue.park(delivery.receipt, &which, seq, delivery.message).await.expect("parked");
    }
    assert_eq!(depth(&queue, name).await, Depth { ready: 0, parked: 6, dead: 0 });

    let first = queue.unpark(name, &lane("a"), 2).await.expect("unparked");
    assert_eq!(texts(&first), ["1", "3"]);
    assert_eq!(first[0].message.headers.lane_seq, Some(1));
    let rest = queue.unpark(name, &lane("a"), 10).await.expect("unparked");
    assert_eq!(texts(&rest), ["0", "4", "2"]);
    assert!(queue.unpark(name, &lane("a"), 10).await.expect("unparked").is_empty(), "all are out");
    assert_eq!(texts(&queue.unpark(name, &lane("b"), 10).await.expect("unparked")), ["5"]);

    let mut first = first.into_iter();
    let (done, failed) = (first.next().expect("1"), first.next().expect("3"));
    queue.ack(done.receipt).await.expect("acked");
    let mut message = failed.message;
    message.headers.attempts = 1;
    queue.park(failed.receipt, &lane("a"), 2, message).await.expect("parked again");
    queue.release(rest.into_iter().map(|delivery| delivery.receipt).collect()).await.expect("released");
    let again = queue.unpark(name, &lane("a"), 10).await.expect("unparked");
    assert_eq!(texts(&again), ["3", "0", "4", "2"]);
    assert_eq!(again[0].message.headers.attempts, 1);
    assert!(again.iter().all(|delivery| !delivery.redelivered), "what was put back was not out");
}

/// Contract: Q3, Q4.
pub(crate) async fn parked_messages_survive_a_kill_and_those_that_were_out_are_marked(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..3).await;
    let mut consumer = queue.consume(name, 10).await.expect("consumes");
    for (seq, delivery) in take(&mut consumer, 3).await.into_iter().enumerate() {
        queue.park(delivery.receipt, &lane("a"), seq as u64, delivery.message).await.expect("parked");
    }
    let out = queue.unpark(name, &lane("a"), 1).await.expect("unparked");
    assert_eq!(texts(&out), ["0"]);
    harness.kill(queue, vec![consumer]).await;

    let queue = harness.start().await;
    let mut consumer = queue.consume(name, 10).await.expect("consumes");
    nothing("a parked message", consumer.next()).await;
    let again = queue.unpark(name, &lane("a"), 10).await.expect("unparked");
    assert_eq!(texts(&again), ["0", "1", "2"]);
    assert!(again[0].redelivered && !again[2].redelivered);
    for delivery in again {
        queue.bury(delivery.receipt, delivery.message).await.expect("buried");
    }
    assert_eq!(depth(&queue, name).await, Depth { ready: 0, parked: 0, dead: 3 });
}

/// Contract: Q4.
pub(crate) async fn dead_letters_are_listed_replayed_and_dropped(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..3).await;
    let mut consumer = queue.consume(name, 10).await.expect("consumes");
    for delivery in take(&mut consumer, 3).await {
        let mut message = delivery.message;
        message.headers.attempts = 8;
        message.headers.reason = Some("expired".into());
        message.headers.last_error = Some("too late".into());
        message.headers.foreign.insert("x-trace".into(), "t1".into());
        queue.bury(delivery.receipt, message).await.expect("buried");
    }
    let producer = harness.producer().await;
    let letters = producer.dead(name, 0, 2).await.expect("listed");
    assert_eq!(letters.len(), 2);
    assert_eq!(letters[0].message.headers.reason.as_deref(), Some("expired"));
    let rest = producer.dead(name, letters[1].number, 10).await.expect("listed");
    assert_eq!(rest.len(), 1);

    assert!(producer.replay(name, letters[0].number, name).await.expect("replayed"));
    assert!(!producer.replay(name, letters[0].number, name).await.expect("gone by now"));
    assert!(producer.drop_dead(name, letters[1].number).await.expect("dropped"));
    assert!(!producer.drop_dead(name, letters[1].number).await.expect("gone by now"));
    let back = next(&mut consumer).await;
    assert_eq!(text(&back), "0");
    let expected = Headers { foreign: back.message.headers.foreign.clone(), ..Headers::default() };
    assert_eq!(back.message.headers, expected, "attempts and reason are forgotten");
    assert_eq!(back.message.headers.foreign["x-trace"], "t1");
    assert_eq!(producer.dead(name, 0, 10).await.expect("listed"), rest);
}

/// Contract: Q2.
pub(crate) async fn a_waiting_consumer_is_woken_by_another_process(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    let producer = harness.producer().await;
    let mut consumer = queue.consume(name, 10).await.expect("consumes");
    publish(&producer, name, [0]).await;
    next(&mut consumer).await;
    for body in 1..6 {
        let waiting = next(&mut consumer);
        tokio::pin!(waiting);
        nothing("before it was published", &mut waiting).await;
        let began = Instant::now();
        publish(&producer, name, [body]).await;
        assert_eq!(text(&waiting.await), body.to_string());
        assert!(began.elapsed().as_millis() < 700, "woken, not found by looking: {:?}", began.elapsed());
    }
}

/// Contract: I2.
pub(crate) async fn a_queue_that_was_never_declared_is_missing(mut harness: impl QueueHarness) {
    fn missing<T>(outcome: Result<T, QueueError>) {
        assert!(matches!(outcome, Err(QueueError::Missing { .. })));
    }
    let queue = harness.start().await;
    let producer = harness.producer().await;
    let name = own(&harness);
    missing(producer.publish(other(&harness), Message::new("x")).await);
    missing(queue.publish(name, Message::new("x")).await);
    missing(queue.consume(name, 1).await.map(|_| ()));
    missing(producer.depth(other(&harness)).await);
    producer.declare(other(&harness)).await.expect("declared");
    producer.declare(other(&harness)).await.expect("declared twice");
    producer.publish(other(&harness), Message::new("x")).await.expect("published");
    assert_eq!(queue.existing().await.expect("existing"), [other(&harness)]);
}

/// Contract: Q5.
pub(crate) async fn bodies_of_any_content_and_beyond_a_mebibyte_pass_unchanged(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    let producer = harness.producer().await;
    let bodies: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0xff, 0x00, 0xfe],
        vec![b'x'; 1 << 20],
        (0..(5 << 20)).map(|at| (at % 251) as u8).collect(),
    ];
    for body in &bodies {
        producer.publish(name, Message::new(body.clone())).await.expect("published");
    }
    let mut consumer = queue.consume(name, 10).await.expect("consumes");
    for body in &bodies {
        let delivery = next(&mut consumer).await;
        assert!(delivery.message.body == body, "{} bytes came as {}", body.len(), delivery.message.body.len());
        queue.bury(delivery.receipt, delivery.message).await.expect("buried");
    }
    let dead = queue.dead(name, 0, 10).await.expect("listed");
    assert!(dead.iter().zip(&bodies).all(|(letter, body)| letter.message.body == body));
}

/// Contract: Q7.
pub(crate) async fn depth_and_existence_are_told_for_any_layout(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    let straggler = QueueName { base: QueueBase::Media, index: Some(11) };
    let producer = harness.producer().await;
    producer.declare(straggler).await.expect("declared");
    publish(&producer, straggler, 0..3).await;
    publish(&queue, name, 0..4).await;
    let mut consumer = queue.consume(name, 2).await.expect("consumes");
    let first = next(&mut consumer).await;
    assert_eq!(depth(&queue, name).await, Depth { ready: 4, parked: 0, dead: 0 }, "what is out counts");
    queue.ack(first.receipt).await.expect("acked");
    publish(&producer, name, [4]).await;
    for handle in [&queue, &producer] {
        assert_eq!(depth(handle, name).await.ready, 4);
        assert_eq!(depth(handle, straggler).await.ready, 3);
        let mut existing = handle.existing().await.expect("existing");
        existing.sort();
        let mut expected: Vec<_> = QueueBase::ALL.map(|base| harness.shard().queue(base)).to_vec();
        expected.push(straggler);
        expected.sort();
        assert_eq!(existing, expected);
    }
}

/// Makes one test of each function for an adapter.
macro_rules! queue_suite {
    ($harness:expr) => {
        queue_suite!(@ $harness,
            deliveries_come_in_publishing_order_whoever_publishes,
            no_more_than_the_prefetch_is_out,
            what_a_killed_process_had_out_comes_again_in_its_old_place_and_is_marked,
            what_was_settled_never_comes_again,
            what_is_released_goes_back_to_its_old_place_and_no_attempt_is_counted,
            a_stopped_consumer_ends_and_what_is_out_can_still_be_settled,
            what_a_dropped_consumer_had_out_goes_to_the_next_one,
            a_receipt_of_an_ended_session_is_refused,
            a_forwarded_message_goes_to_the_end_of_the_other_queue,
            what_can_not_be_forwarded_stays,
            parked_messages_come_back_in_the_order_of_their_lane_and_not_twice,
            parked_messages_survive_a_kill_and_those_that_were_out_are_marked,
            dead_letters_are_listed_replayed_and_dropped,
            a_waiting_consumer_is_woken_by_another_process,
            a_queue_that_was_never_declared_is_missing,
            bodies_of_any_content_and_beyond_a_mebibyte_pass_unchanged,
            depth_and_existence_are_told_for_any_layout,
        );
    };
    (@ $harness:expr, $($name:ident,)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                crate::suites::queue::$name($harness.await).await;
            }
        )*
    };
}
pub(crate) use queue_suite;
