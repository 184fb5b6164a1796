//! Many events that wait for what is dead, beside others that need not.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use shard::{
    identity::ChannelId,
    registry::Fence,
    sink::{
        Batch, Destination, Outbox, OutboxError, Scope, Stored,
        outbox::{AmqpOutbox, AmqpOutboxOptions},
    },
};

use super::Slot;
use crate::{
    servers::Use,
    suites::outbox::{OutboxHarness, channel, event},
};

const ENDPOINT: Destination = Destination::Endpoint;
const HANDLER: Destination = Destination::Handler;

fn narrow() -> Slot {
    let options = AmqpOutboxOptions { window: 64, ..AmqpOutboxOptions::default() };
    Slot { options, ..Slot::new(Use::Beside) }
}

/// Stores, and tries on while there is no room, as a platform's inbox does.
async fn store(outbox: &Arc<AmqpOutbox>, number: u128, keys: std::ops::Range<u32>, to: &[Destination]) -> Vec<Stored> {
    let events: Vec<_> = keys.map(|key| event(channel(number), &key.to_string())).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let fence = Fence { channel: channel(number), token: 1 };
        match outbox.append(Batch { fence, events: events.clone(), offset: None }, to).await {
            Ok(stored) => return stored,
            Err(OutboxError::Unavailable(_)) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Delivers what waits in a scope until so many are done; the `seq` of each, by channel, in the order of delivery.
async fn deliver(outbox: &Arc<dyn Outbox>, scope: Scope, count: usize) -> HashMap<ChannelId, Vec<u64>> {
    let (mut seqs, mut done) = (HashMap::<_, Vec<u64>>::new(), 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while done < count {
        assert!(Instant::now() < deadline, "{done} of {count} came: {seqs:?}");
        let page = match outbox.open_in(&scope, 0, (count - done).min(7)).await {
            Ok(page) => page,
            Err(OutboxError::Unavailable(_)) => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        if page.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for stored in page {
            seqs.entry(stored.event.channel_id).or_default().push(stored.event.seq);
            outbox.delivered(stored.position, scope.destination()).await.expect("delivered");
            done += 1;
        }
    }
    seqs
}

/// Contract: E1. Nothing is lost, the order is kept, memory is bounded, others are not disturbed; also over a restart.
#[tokio::test]
async fn what_waits_for_a_dead_endpoint_is_set_aside_and_comes_back_in_order() {
    let mut slot = narrow();
    let outbox = slot.direct();
    for round in 0..30 {
        for number in 1..5 {
            let stored = store(&outbox, number, round * 5..(round + 1) * 5, &[ENDPOINT]).await;
            assert_eq!(stored.len(), 5);
        }
        assert!(outbox.held() <= 160, "{} events are held", outbox.held());
    }
    store(&outbox, 9, 0..3, &[HANDLER, ENDPOINT]).await;
    let outbox: Arc<dyn Outbox> = outbox;
    let others = deliver(&outbox, Scope::Channel(HANDLER, channel(9)), 3).await;
    assert_eq!(others[&channel(9)], [1, 2, 3], "delivered while the endpoint is dead");

    let first = deliver(&outbox, Scope::Channel(ENDPOINT, channel(1)), 3).await;
    assert_eq!(first[&channel(1)], [1, 2, 3]);
    drop(outbox);
    let outbox = slot.start().await;
    let rest = deliver(&outbox, Scope::Destination(ENDPOINT), 600).await;
    assert_eq!(rest[&channel(1)], (4..=150).collect::<Vec<_>>());
    for number in 2..5 {
        assert_eq!(rest[&channel(number)], (1..=150).collect::<Vec<_>>(), "channel {number}");
    }
    assert_eq!(rest[&channel(9)], [1, 2, 3]);
    assert!(outbox.open(0, 10).await.expect("read").is_empty());
}

/// Contract: E1. A dead handler holds up its own channel alone.
#[tokio::test]
async fn a_dead_handler_holds_nobody_up_and_its_events_take_the_usual_way_again_in_the_end() {
    let mut slot = narrow();
    let outbox = slot.direct();
    let ports: Arc<dyn Outbox> = outbox.clone();
    for round in 0..20 {
        store(&outbox, 1, round * 10..(round + 1) * 10, &[HANDLER, ENDPOINT]).await;
        let delivered = deliver(&ports, Scope::Destination(ENDPOINT), 10).await;
        let first = u64::from(round) * 10;
        assert_eq!(delivered[&channel(1)], (first + 1..=first + 10).collect::<Vec<_>>());
    }
    store(&outbox, 2, 0..4, &[HANDLER]).await;
    assert_eq!(deliver(&ports, Scope::Channel(HANDLER, channel(2)), 4).await[&channel(2)], [1, 2, 3, 4]);

    let dead = deliver(&ports, Scope::Channel(HANDLER, channel(1)), 100).await;
    assert_eq!(dead[&channel(1)], (1..=100).collect::<Vec<_>>());
    store(&outbox, 1, 200..203, &[HANDLER]).await;
    let dead = deliver(&ports, Scope::Channel(HANDLER, channel(1)), 103).await;
    assert_eq!(dead[&channel(1)], (101..=203).collect::<Vec<_>>(), "what is stored meanwhile stays behind");
    // Nothing is set aside any more: what is stored is told at once.
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut key = 300;
    loop {
        let stored = store(&outbox, 1, key..key + 1, &[HANDLER]).await;
        key += 1;
        deliver(&ports, Scope::Channel(HANDLER, channel(1)), 1).await;
        if !stored[0].open.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "still set aside");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
