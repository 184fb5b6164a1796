//! What only the AMQP adapter promises, on a broker that is well.

use std::{collections::HashSet, sync::Arc};

use futures_util::future::join_all;
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{BasicConsumeOptions, BasicPublishOptions, BasicRejectOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use shard::{
    identity::{ChannelId, QueueBase, QueueName},
    job::Lane,
    queue::{AmqpQueue, Consumer, DeclareMode, Delivery, Message, Queue, QueueError, QueueType},
};

use super::{Host, config, proxy::Proxy};
use crate::{
    servers::Use,
    suites::{nothing, within},
};

pub(super) const OWN: QueueName = QueueName { base: QueueBase::Main, index: Some(1) };
pub(super) const OTHER: QueueName = QueueName { base: QueueBase::Main, index: Some(0) };

pub(super) fn lane(number: u32) -> Lane {
    let channel: ChannelId = "0b7c1f3e-0000-4000-8000-000000000001".parse().expect("id");
    Lane { base: QueueBase::Main, channel, chat: Some(number.to_string()) }
}

pub(super) async fn next(consumer: &mut Box<dyn Consumer>) -> Delivery {
    within("a delivery", consumer.next()).await.expect("not ended").expect("delivered")
}

pub(super) fn text(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.message.body).into_owned()
}

/// Somebody else's way into the same broker.
async fn somebody(host: &Host) -> lapin::Channel {
    let connection = Connection::connect(&host.direct(), ConnectionProperties::default()).await.expect("connected");
    connection.create_channel().await.expect("a channel")
}

/// Contract: Q2. The client may hand a message that came back to another one's confirm.
#[tokio::test]
async fn a_message_to_a_missing_queue_is_told_apart_among_many() {
    let host = Host::fresh(Use::Beside);
    let queue = host.queue();
    queue.declare(OWN).await.expect("declared");
    let mut stored = 0;
    for round in 0..20 {
        let publishes = (0..60).map(|number| {
            let queue = queue.clone();
            async move {
                let to = if (number + round) % 5 == 0 { OTHER } else { OWN };
                (to, queue.publish(to, Message::new(format!("{round}.{number}"))).await)
            }
        });
        for (to, outcome) in join_all(publishes).await {
            match outcome {
                Ok(()) => {
                    assert_eq!(to, OWN);
                    stored += 1;
                }
                Err(QueueError::Missing { .. }) => assert_eq!(to, OTHER),
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(stored, 20 * 48);
    assert_eq!(queue.depth(OWN).await.expect("depth").ready, stored);
}

/// Contract: Q2, Q5.
#[tokio::test]
async fn a_queue_of_other_making_is_refused_by_name_and_taken_passively() {
    let host = Host::fresh(Use::Beside);
    let mut settings = host.config();
    settings.declare = DeclareMode::Passive;
    let passive = AmqpQueue::new(settings);
    let absent = passive.declare(OWN).await;
    assert!(matches!(absent, Err(QueueError::Missing { .. })), "{absent:?}");

    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    somebody(&host)
        .await
        .queue_declare(OWN.to_string().as_str().into(), durable, FieldTable::default())
        .await
        .expect("declared by somebody");
    let refused = host.queue().declare(OWN).await;
    match refused {
        Err(QueueError::Refused { queue, cause }) => {
            assert_eq!(queue, "whatsapp-1");
            assert!(cause.contains("inequivalent arg"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
    passive.declare(OWN).await.expect("there");
    passive.publish(OWN, Message::new("1")).await.expect("published");
    let mut consumer = passive.consume(OWN, 5).await.expect("consumes");
    let delivery = next(&mut consumer).await;
    passive.bury(delivery.receipt, delivery.message).await.expect("the companions are ours to make");
}

/// Contract: C0.
#[tokio::test]
async fn a_successor_gets_nothing_before_its_predecessor_is_gone_and_then_everything_in_order() {
    let host = Host::fresh(Use::Beside);
    let way = Proxy::to(host.broker.port()).await;
    let old = AmqpQueue::new(config(&host.url(way.port())));
    let new = host.queue();
    old.declare(OWN).await.expect("declared");
    let mut first = old.consume(OWN, 3).await.expect("consumes");
    let mut second = new.consume(OWN, 10).await.expect("stands by");
    for body in 0..6 {
        new.publish(OWN, Message::new(body.to_string())).await.expect("published");
    }
    assert_eq!(text(&next(&mut first).await), "0");
    nothing("to the one that stands by", second.next()).await;
    drop(way);
    for body in 0..6 {
        assert_eq!(text(&next(&mut second).await), body.to_string());
    }
}

/// Field report R25.
#[tokio::test]
async fn a_cut_connection_ends_the_subscription_with_an_error_and_the_next_one_works() {
    let host = Host::fresh(Use::Beside);
    let way = Proxy::to(host.broker.port()).await;
    let port = way.port();
    let queue = AmqpQueue::new(config(&host.url(port)));
    queue.declare(OWN).await.expect("declared");
    queue.publish(OWN, Message::new("1")).await.expect("published");
    let mut consumer = queue.consume(OWN, 5).await.expect("consumes");
    let held = next(&mut consumer).await;
    drop(way);
    let ended = within("the end", consumer.next()).await;
    assert!(matches!(ended, Some(Err(QueueError::Unavailable { .. }))), "{ended:?}");
    assert!(within("nothing more", consumer.next()).await.is_none());
    let late = queue.ack(held.receipt).await;
    assert!(matches!(late, Err(QueueError::Stale { .. })), "{late:?}");
    let unreachable = queue.publish(OWN, Message::new("2")).await;
    assert!(matches!(unreachable, Err(QueueError::Unavailable { .. })), "{unreachable:?}");
    drop(consumer);
    drop(queue);

    let queue = host.queue();
    let mut consumer = queue.consume(OWN, 5).await.expect("consumes again");
    let again = next(&mut consumer).await;
    assert!(again.redelivered && text(&again) == "1");
}

/// Field report R25. A broker that stands still behind a connection that stands.
#[tokio::test]
async fn a_silent_broker_is_noticed_by_its_missing_heartbeats() {
    let host = Host::fresh(Use::Beside);
    let way = Proxy::to(host.broker.port()).await;
    let url = format!("{}?heartbeat=1", host.url(way.port()));
    let queue = AmqpQueue::new(config(&url));
    queue.declare(OWN).await.expect("declared");
    let mut consumer = queue.consume(OWN, 5).await.expect("consumes");
    way.silence(true);
    let ended = within("the end", consumer.next()).await;
    assert!(matches!(ended, Some(Err(QueueError::Unavailable { .. }))), "{ended:?}");
    way.silence(false);
    let mut consumer = within("a new connection", queue.consume(OWN, 5)).await.expect("consumes again");
    within("published", queue.publish(OWN, Message::new("1"))).await.expect("published");
    assert_eq!(text(&next(&mut consumer).await), "1");
}

/// Contract: Q2.
#[tokio::test]
async fn addresses_are_tried_in_turn_and_a_wrong_password_is_told_without_it() {
    let host = Host::fresh(Use::Beside);
    let both = format!("amqp://guest:guest@127.0.0.1:1/,{}", host.direct());
    let queue = AmqpQueue::new(config(&both));
    queue.declare(OWN).await.expect("the second one answers");

    let wrong = host.direct().replace("guest:guest", "guest:hush");
    let refused = AmqpQueue::new(config(&wrong)).declare(OWN).await;
    match &refused {
        Err(QueueError::Refused { cause, .. }) => assert!(!cause.contains("hush"), "{cause}"),
        other => panic!("{other:?}"),
    }
}

/// Contract: Q2.
#[tokio::test]
async fn a_broker_is_reached_over_tls_when_its_authority_is_trusted_and_not_otherwise() {
    let host = Host::fresh(Use::Beside);
    let port: u16 = host.broker.told("TLS_PORT").parse().expect("a port");
    let url = host.url(port).replace("amqp://guest:guest@127.0.0.1", "amqps://guest:guest@localhost");
    let mut trusting = config(&url);
    trusting.trusted = Some(std::fs::read_to_string(host.broker.told("CA")).expect("the authority"));
    let queue = AmqpQueue::new(trusting);
    queue.declare(OWN).await.expect("declared");
    queue.publish(OWN, Message::new("1")).await.expect("published");
    let distrusting = AmqpQueue::new(config(&url)).declare(OWN).await;
    assert!(matches!(distrusting, Err(QueueError::Unavailable { .. })), "{distrusting:?}");
}

/// Field report R27. What the broker itself drops ends among the dead letters, with its reason.
#[tokio::test]
async fn what_the_broker_would_drop_is_a_dead_letter_with_a_stable_number() {
    let host = Host::fresh(Use::Beside);
    let queue = host.queue();
    queue.declare(OWN).await.expect("declared");
    queue.publish(OWN, Message::new("1")).await.expect("published");
    let channel = somebody(&host).await;
    let consuming = channel.basic_consume(
        OWN.to_string().as_str().into(),
        "x".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let mut stream = consuming.await.expect("consumes");
    let raw = within("a delivery", futures_util::StreamExt::next(&mut stream)).await.expect("one").expect("delivered");
    raw.acker.reject(BasicRejectOptions { requeue: false }).await.expect("rejected");
    let letters = within("the dead letter", async {
        loop {
            let letters = queue.dead(OWN, 0, 10).await.expect("listed");
            if !letters.is_empty() {
                return letters;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(letters[0].message.headers.reason.as_deref(), Some("rejected"));
    assert_eq!(queue.dead(OWN, 0, 10).await.expect("listed again"), letters);
    channel.close(200, "".into()).await.expect("closed");
    assert!(queue.replay(OWN, letters[0].number, OWN).await.expect("replayed"));
    let mut consumer = queue.consume(OWN, 5).await.expect("consumes");
    let back = next(&mut consumer).await;
    assert_eq!((text(&back).as_str(), back.message.headers.reason.as_deref()), ("1", None));
}

/// Contract: I2, Q7.
#[tokio::test]
async fn a_deleted_queue_is_missing_from_then_on_and_can_be_declared_again() {
    let host = Host::fresh(Use::Beside);
    let queue = host.queue();
    queue.declare(OWN).await.expect("declared");
    assert_eq!(queue.existing().await.expect("existing"), [OWN]);
    let mut consumer = queue.consume(OWN, 5).await.expect("consumes");
    let deleted = somebody(&host).await;
    deleted.queue_delete(OWN.to_string().as_str().into(), QueueDeleteOptions::default()).await.expect("deleted");
    let ended = within("the end", consumer.next()).await;
    assert!(matches!(ended, Some(Err(QueueError::Unavailable { .. }))), "{ended:?}");
    drop(consumer);
    let gone = queue.consume(OWN, 5).await.map(|_| ());
    assert!(matches!(gone, Err(QueueError::Missing { .. })), "{gone:?}");
    let gone = queue.publish(OWN, Message::new("1")).await;
    assert!(matches!(gone, Err(QueueError::Missing { .. })), "{gone:?}");
    queue.declare(OWN).await.expect("declared again");
    queue.publish(OWN, Message::new("1")).await.expect("published");
}

/// Contract: Q1, Q5. What producers in other languages send.
#[tokio::test]
async fn headers_of_a_producer_are_kept_through_every_move() {
    let host = Host::fresh(Use::Beside);
    let mut settings = host.config();
    settings.queue_type = QueueType::Classic;
    let queue = Arc::new(AmqpQueue::new(settings));
    queue.declare(OWN).await.expect("declared");
    let mut table = FieldTable::default();
    table.insert("traceparent".into(), AMQPValue::LongString("00-1-2-01".into()));
    table.insert("tenant".into(), AMQPValue::LongInt(7));
    let properties = BasicProperties::default().with_message_id("j1".into()).with_headers(table);
    somebody(&host)
        .await
        .basic_publish("".into(), OWN.to_string().as_str().into(), BasicPublishOptions::default(), b"1", properties)
        .await
        .expect("published");
    let mut consumer = queue.consume(OWN, 5).await.expect("consumes");
    let delivery = next(&mut consumer).await;
    let foreign = delivery.message.headers.foreign.clone();
    let names: HashSet<_> = foreign.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(names, HashSet::from([("traceparent", "00-1-2-01"), ("tenant", "7"), ("amqp-message-id", "j1")]));
    queue.park(delivery.receipt, &lane(0), 3, delivery.message).await.expect("parked");
    let parked = queue.unpark(OWN, &lane(0), 1).await.expect("unparked").remove(0);
    queue.bury(parked.receipt, parked.message).await.expect("buried");
    let letter = queue.dead(OWN, 0, 1).await.expect("listed").remove(0);
    assert!(queue.replay(OWN, letter.number, OWN).await.expect("replayed"));
    assert_eq!(next(&mut consumer).await.message.headers.foreign, foreign);
}

/// Contract: Q6, Q7. Jobs of another layout are older than all that producers write by the new one.
#[tokio::test]
async fn stragglers_are_read_before_the_queue_itself_and_late_ones_beside_it() {
    let host = Host::fresh(Use::Beside);
    let (zero, one) = (host.queue(), host.queue());
    zero.declare(OTHER).await.expect("declared");
    one.declare(OWN).await.expect("declared");
    for number in 0..5 {
        one.publish(OWN, Message::new(format!("new {number}"))).await.expect("published");
        zero.publish(OTHER, Message::new(format!("old {number}"))).await.expect("published");
    }
    let mut leaving = zero.consume(OTHER, 10).await.expect("consumes");
    for _ in 0..4 {
        let Delivery { receipt, message, .. } = next(&mut leaving).await;
        zero.forward_straggler(receipt, OWN, message).await.expect("forwarded");
    }
    assert_eq!(one.depth(OWN).await.expect("counted").ready, 9);
    // So few at a time that the stragglers take several rounds.
    let mut consumer = one.consume(OWN, 2).await.expect("consumes");
    let mut seen = Vec::new();
    for _ in 0..9 {
        let delivery = next(&mut consumer).await;
        seen.push(text(&delivery));
        one.ack(delivery.receipt).await.expect("acked");
    }
    let expected: Vec<String> =
        (0..4).map(|number| format!("old {number}")).chain((0..5).map(|number| format!("new {number}"))).collect();
    assert_eq!(seen, expected);
    let Delivery { receipt, message, .. } = next(&mut leaving).await;
    zero.forward_straggler(receipt, OWN, message).await.expect("forwarded");
    let late = next(&mut consumer).await;
    assert_eq!(text(&late), "old 4");
    // It is parked, and comes back, like any other of the queue.
    one.park(late.receipt, &lane(1), 1, late.message).await.expect("parked");
    let parked = one.unpark(OWN, &lane(1), 5).await.expect("unparked");
    assert_eq!(parked.iter().map(text).collect::<Vec<_>>(), ["old 4"]);
    assert_eq!(one.depth(OWN).await.expect("counted").ready, 0);
}

/// Contract: Q2, Q7.
#[tokio::test]
async fn a_straggler_that_was_out_when_its_process_died_comes_first_again() {
    let host = Host::fresh(Use::Beside);
    let zero = host.queue();
    zero.declare(OTHER).await.expect("declared");
    zero.declare(OWN).await.expect("declared");
    zero.publish(OWN, Message::new("new")).await.expect("published");
    zero.publish(OTHER, Message::new("old")).await.expect("published");
    let mut leaving = zero.consume(OTHER, 10).await.expect("consumes");
    let Delivery { receipt, message, .. } = next(&mut leaving).await;
    zero.forward_straggler(receipt, OWN, message).await.expect("forwarded");
    let way = Proxy::to(host.broker.port()).await;
    let dies = Arc::new(AmqpQueue::new(config(&host.url(way.port()))));
    let mut consumer = dies.consume(OWN, 10).await.expect("consumes");
    assert_eq!(text(&next(&mut consumer).await), "old");
    assert_eq!(text(&next(&mut consumer).await), "new");
    std::mem::forget((consumer, dies));
    drop(way);
    let next_life = host.queue();
    let mut consumer = next_life.consume(OWN, 10).await.expect("consumes");
    let (first, second) = (next(&mut consumer).await, next(&mut consumer).await);
    assert_eq!([text(&first), text(&second)], ["old", "new"]);
    assert!(first.redelivered && second.redelivered);
}
