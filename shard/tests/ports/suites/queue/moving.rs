//! What leaves its queue: forwarded, parked, buried; and what there is to be told about queues.

use super::*;

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
    assert!(again[0].redelivered);
    assert!(!again[2].redelivered || !harness.marks_no_more_than_was_out());
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
        if Arc::ptr_eq(handle, &queue) || harness.counts_what_others_hold() {
            assert_eq!(depth(handle, name).await.ready, 4);
        }
        assert_eq!(depth(handle, straggler).await.ready, 3);
        let mut existing = handle.existing().await.expect("existing");
        existing.sort();
        let mut expected: Vec<_> = QueueBase::ALL.map(|base| harness.shard().queue(base)).to_vec();
        expected.push(straggler);
        expected.sort();
        assert_eq!(existing, expected);
    }
}
