//! What happens when the broker itself, or one of its queues, is unwell.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use shard::{
    identity::{QueueBase, QueueName},
    queue::{AmqpQueue, Consumer, Delivery, Message, Queue, QueueError},
};

use super::{Host, config};
use crate::{servers::Use, suites::within};

const OWN: QueueName = QueueName { base: QueueBase::Main, index: Some(0) };

/// Subscribes again whenever the subscription ends, as the daemon does.
async fn next_somehow(queue: &Arc<AmqpQueue>, consumer: &mut Option<Box<dyn Consumer>>) -> Delivery {
    let patience = Duration::from_secs(60);
    let somehow = async {
        loop {
            if consumer.is_none() {
                match queue.consume(OWN, 5).await {
                    Ok(fresh) => *consumer = Some(fresh),
                    Err(QueueError::Unavailable { .. } | QueueError::Missing { .. }) => {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            match consumer.as_mut().expect("subscribed").next().await {
                Some(Ok(delivery)) => return delivery,
                _ => *consumer = None,
            }
        }
    };
    tokio::time::timeout(patience, somehow).await.expect("a delivery in the end")
}

async fn publish_somehow(queue: &Arc<AmqpQueue>, body: &str) {
    loop {
        match queue.publish(OWN, Message::new(body.to_owned())).await {
            Ok(()) => return,
            Err(QueueError::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.message.body).into_owned()
}

/// Field report R24.
#[tokio::test]
async fn a_job_held_longer_than_the_broker_allows_ends_the_subscription_and_comes_again() {
    let host = Host::fresh(Use::Alone);
    let set = |name: &str, value: &str| {
        host.broker.run("ctl", &["eval", &format!("application:set_env(rabbit, {name}, {value}).")]);
    };
    set("channel_tick_interval", "200");
    set("consumer_timeout", "500");
    let queue = host.queue();
    queue.declare(OWN).await.expect("declared");
    publish_somehow(&queue, "1").await;
    let mut consumer = Some(queue.consume(OWN, 5).await.expect("consumes"));
    let held = next_somehow(&queue, &mut consumer).await;
    let ended = within("the end", consumer.as_mut().expect("subscribed").next()).await;
    assert!(matches!(ended, Some(Err(QueueError::Unavailable { .. }))), "{ended:?}");
    consumer = None;
    let late = queue.ack(held.receipt).await;
    assert!(matches!(late, Err(QueueError::Stale { .. })), "{late:?}");
    let again = next_somehow(&queue, &mut consumer).await;
    assert!(again.redelivered);
    queue.ack(again.receipt).await.expect("acked");
    set("consumer_timeout", "1800000");
    set("channel_tick_interval", "60000");
}

/// Field report R25.
#[tokio::test]
async fn a_broker_that_stops_and_starts_loses_nothing_that_was_confirmed() {
    let host = Host::fresh(Use::Alone);
    let queue = host.queue();
    queue.declare(OWN).await.expect("declared");
    for body in ["1", "2", "3"] {
        publish_somehow(&queue, body).await;
    }
    let mut consumer = None;
    let first = next_somehow(&queue, &mut consumer).await;
    queue.ack(first.receipt).await.expect("acked");
    host.broker.run("ctl", &["stop_app"]);
    let away = queue.publish(OWN, Message::new("lost")).await;
    assert!(matches!(away, Err(QueueError::Unavailable { .. })), "{away:?}");
    host.broker.run("ctl", &["start_app"]);
    for body in ["2", "3"] {
        loop {
            let delivery = next_somehow(&queue, &mut consumer).await;
            assert_eq!(text(&delivery), body);
            // A delivery may be on its way through us while its channel ends.
            match queue.ack(delivery.receipt).await {
                Ok(()) => break,
                Err(QueueError::Stale { .. }) => consumer = None,
                Err(error) => panic!("{error}"),
            }
        }
    }
    publish_somehow(&queue, "4").await;
    assert_eq!(text(&next_somehow(&queue, &mut consumer).await), "4");
}

/// Contract: Q2. The broker is in need of memory.
#[tokio::test]
async fn a_blocked_broker_delays_publishing_and_not_acknowledging() {
    let host = Host::fresh(Use::Alone);
    let mut settings = config(&host.direct());
    settings.confirm_timeout = Duration::from_secs(1);
    let queue = Arc::new(AmqpQueue::new(settings));
    queue.declare(OWN).await.expect("declared");
    publish_somehow(&queue, "1").await;
    let mut consumer = None;
    let delivery = next_somehow(&queue, &mut consumer).await;
    host.broker.run("ctl", &["set_vm_memory_high_watermark", "absolute", "1MB"]);
    let waiting = within("the alarm", async {
        loop {
            match queue.publish(OWN, Message::new("2")).await {
                Err(error) => return error,
                // The alarm takes effect a moment after it was set.
                Ok(()) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert!(waiting.to_string().contains("for want of memory"), "{waiting}");
    assert!(queue.is_blocked());
    queue.ack(delivery.receipt).await.expect("acked all the same");
    host.broker.run("ctl", &["set_vm_memory_high_watermark", "absolute", "512MB"]);
    within("published", publish_somehow(&queue, "3")).await;
    assert!(!queue.is_blocked());
}

/// Has the broker refuse what would make the queue longer than this.
fn limit(host: &Host, messages: u32) {
    let limit = format!(r#"{{"max-length":{messages},"overflow":"reject-publish"}}"#);
    host.broker.run("ctl", &["set_policy", "-p", host.name(), "full", "^whatsapp-0$", &limit, "--apply-to", "queues"]);
}

/// Contract: Q1. A quorum queue that has only just been made refuses what comes first; a full one behaves the same.
#[tokio::test]
async fn what_a_queue_refuses_at_first_is_offered_again_and_stays_in_order() {
    let host = Host::fresh(Use::Beside);
    let filling = host.queue();
    filling.declare(OWN).await.expect("declared");
    limit(&host, 12);
    let mut filled = 0;
    let refused = loop {
        match filling.publish(OWN, Message::new("old")).await {
            Ok(()) => filled += 1,
            Err(error) => break error,
        }
        assert!(filled < 100, "the limit is not kept");
    };
    // What was taken before was: such a refusal is told at once.
    assert!(refused.to_string().contains("the queue is full"), "{refused}");

    let fresh = host.queue();
    let mut all = Box::pin(join_all((0..10).map(|n| fresh.publish(OWN, Message::new(n.to_string())))));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut all).await;
    assert!(early.is_err(), "{early:?}");

    let mut consumer = None;
    for _ in 0..filled {
        let delivery = next_somehow(&filling, &mut consumer).await;
        assert_eq!(text(&delivery), "old");
        filling.ack(delivery.receipt).await.expect("acked");
    }
    for put in within("taken in the end", all).await {
        put.expect("taken");
    }
    for n in 0..10 {
        let delivery = next_somehow(&filling, &mut consumer).await;
        assert_eq!(text(&delivery), n.to_string());
        filling.ack(delivery.receipt).await.expect("acked");
    }
}

/// A queue that stays full is told of, with what waited behind.
#[tokio::test]
async fn a_queue_that_refuses_for_long_is_told_of() {
    let host = Host::fresh(Use::Beside);
    let queue = host.queue();
    queue.declare(OWN).await.expect("declared");
    limit(&host, 0);
    while queue.publish(OWN, Message::new("old")).await.is_ok() {}
    let fresh = host.queue();
    let puts = join_all((0..3).map(|n| fresh.publish(OWN, Message::new(n.to_string()))));
    for put in within("told", puts).await {
        let error = put.expect_err("refused");
        assert!(error.to_string().contains("the queue is full"), "{error}");
    }
}
