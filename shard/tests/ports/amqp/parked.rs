//! Parked queues of a broker: many lanes in one queue, whatever fits into memory, whoever looks into them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use shard::queue::{AmqpQueue, Message, Queue, QueueError};

use super::{
    Host,
    own::{OTHER, OWN, lane, next, text},
};
use crate::{servers::Use, suites::within};

async fn park_many(queue: &Arc<AmqpQueue>, lanes: u32, each: u64) {
    queue.declare(OWN).await.expect("declared");
    for seq in 0..each {
        for which in 0..lanes {
            queue.publish(OWN, Message::new(format!("{which}.{seq}"))).await.expect("published");
        }
    }
    let mut consumer = queue.consume(OWN, 500).await.expect("consumes");
    let mut parks = Vec::new();
    for number in 0..u64::from(lanes) * each {
        let delivery = next(&mut consumer).await;
        let which = (number % u64::from(lanes)) as u32;
        let queue = queue.clone();
        parks.push(async move {
            queue.park(delivery.receipt, &lane(which), number / u64::from(lanes), delivery.message).await
        });
    }
    for parked in join_all(parks).await {
        parked.expect("parked");
    }
}

/// Contract: Q3. Bodies that do not fit into memory come again from the broker.
#[tokio::test]
async fn many_lanes_are_parked_and_each_comes_back_in_order_whatever_fits_into_memory() {
    for (budget, reread) in [(usize::MAX, 600), (100, 600), (usize::MAX, 0)] {
        let host = Host::fresh(Use::Beside);
        let mut settings = host.config();
        settings.parked_budget = budget;
        settings.parked_reread = Duration::from_secs(reread);
        let queue = Arc::new(AmqpQueue::new(settings));
        park_many(&queue, 20, 20).await;
        for which in (0..20).rev() {
            for (lot, expected) in [(16, 0..16), (16, 16..20), (16, 20..20)] {
                let deliveries = queue.unpark(OWN, &lane(which), lot).await.expect("unparked");
                let expected: Vec<_> = expected.map(|seq| format!("{which}.{seq}")).collect();
                assert_eq!(deliveries.iter().map(text).collect::<Vec<_>>(), expected);
                for delivery in deliveries {
                    queue.ack(delivery.receipt).await.expect("acked");
                }
            }
        }
        assert_eq!(queue.depth(OWN).await.expect("depth").parked, 0);
    }
}

/// Contract: Q3, Q7. Shard 0 looks into the parked queues of a layout of before.
#[tokio::test]
async fn a_parked_queue_that_nobody_reads_can_be_emptied_and_is_let_go() {
    let host = Host::fresh(Use::Beside);
    park_many(&host.queue(), 2, 3).await;
    let queue = host.queue();
    queue.declare(OTHER).await.expect("declared");
    for delivery in queue.unpark(OWN, &lane(0), 10).await.expect("unparked") {
        queue.forward(delivery.receipt, OTHER, delivery.message).await.expect("forwarded");
    }
    assert!(queue.unpark(OWN, &lane(0), 10).await.expect("unparked").is_empty());
    let mut consumer = queue.consume(OTHER, 10).await.expect("consumes");
    for seq in 0..3 {
        let delivery = next(&mut consumer).await;
        assert_eq!((text(&delivery), delivery.message.headers.lane_seq), (format!("0.{seq}"), None));
    }
    let successor = host.queue();
    let left = within("the other lane", successor.unpark(OWN, &lane(1), 10)).await.expect("nobody holds it");
    assert_eq!(left.len(), 3);
}

/// Contract: Q3. Somebody else still holds what is parked: that is no empty lane.
#[tokio::test]
async fn a_parked_queue_in_other_hands_is_unavailable_and_never_taken_for_empty() {
    let host = Host::fresh(Use::Beside);
    park_many(&host.queue(), 1, 3).await;
    let holder = host.queue();
    let held = holder.unpark(OWN, &lane(0), 1).await.expect("unparked");
    assert_eq!(held.len(), 1);
    let mut settings = host.config();
    settings.answer_timeout = Duration::from_secs(1);
    let other = AmqpQueue::new(settings);
    let refused = other.unpark(OWN, &lane(0), 10).await;
    assert!(matches!(refused, Err(QueueError::Unavailable { .. })), "{refused:?}");
    for delivery in held {
        holder.release(vec![delivery.receipt]).await.expect("released");
    }
    let all = holder.unpark(OWN, &lane(0), 10).await.expect("unparked");
    assert_eq!(all.len(), 3, "what the other one asked for was given back");
}
