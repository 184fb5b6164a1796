//! Deliveries: order, prefetch, what comes again and what doesn't.

use super::*;

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

/// Contract: Q10.
pub(crate) async fn what_is_released_goes_back_to_its_old_place_and_no_attempt_is_counted(
    mut harness: impl QueueHarness,
) {
    let (queue, name) = started(&mut harness).await;
    // More than a broker hands back in order by itself.
    publish(&queue, name, 0..150).await;
    let mut consumer = queue.consume(name, 100).await.expect("consumes");
    let taken = take(&mut consumer, 100).await;
    consumer.stop().await;
    queue.release(taken.into_iter().map(|delivery| delivery.receipt).collect()).await.expect("released");
    drop(consumer);

    let mut consumer = queue.consume(name, 200).await.expect("consumes");
    let again = take(&mut consumer, 150).await;
    assert_eq!(texts(&again), numbers(0..150));
    assert!(again.iter().all(|delivery| delivery.message.headers == Headers::default()));
}

/// Contract: Q2.
pub(crate) async fn what_a_dropped_consumer_had_out_goes_to_the_next_one(mut harness: impl QueueHarness) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..120).await;
    let mut consumer = queue.consume(name, 90).await.expect("consumes");
    let mut taken = take(&mut consumer, 90).await;
    queue.ack(taken.remove(0).receipt).await.expect("acked");
    drop(consumer);
    let mut consumer = queue.consume(name, 200).await.expect("consumes");
    let again = take(&mut consumer, 119).await;
    assert_eq!(texts(&again), numbers(1..120));
    assert!(again[0].redelivered);
}

/// Contract: Q2, Q3.
pub(crate) async fn what_a_killed_process_had_out_comes_again_in_its_old_place_and_is_marked(
    mut harness: impl QueueHarness,
) {
    let (queue, name) = started(&mut harness).await;
    publish(&queue, name, 0..400).await;
    let mut consumer = queue.consume(name, 60).await.expect("consumes");
    let mut taken = take(&mut consumer, 60).await;
    queue.ack(taken.remove(1).receipt).await.expect("acked");
    harness.kill(queue, vec![consumer]).await;

    let queue = harness.start().await;
    let mut consumer = queue.consume(name, 500).await.expect("consumes");
    let again = take(&mut consumer, 399).await;
    let expected: Vec<_> = [0].into_iter().chain(2..400).collect();
    assert_eq!(texts(&again), numbers(expected));
    assert!(again[..59].iter().all(|delivery| delivery.redelivered), "these were out");
    assert!(again[300..].iter().all(|delivery| !delivery.redelivered), "these were far from out");
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
