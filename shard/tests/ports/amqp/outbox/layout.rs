//! Outboxes of other layouts.

use std::time::{Duration, Instant};

use shard::{
    identity::ShardId,
    sink::{
        Destination, Outbox,
        outbox::{AmqpOutbox, AmqpOutboxOptions},
    },
};

use super::Slot;
use crate::{
    servers::Use,
    suites::outbox::{batch, channel},
};

const BOTH: [Destination; 2] = [Destination::Handler, Destination::Endpoint];

async fn until_open(outbox: &AmqpOutbox, count: usize) -> Vec<shard::sink::Stored> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        // It may be away for a moment, as for everybody.
        let open = outbox.open(0, 100).await.unwrap_or_default();
        if open.len() >= count {
            return open;
        }
        assert!(Instant::now() < deadline, "{} of {count} came", open.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Contract: E1, Q7. Three shards become two, then one.
#[tokio::test]
async fn what_lies_in_the_outbox_of_another_layout_is_delivered_where_its_channel_belongs() {
    let options = AmqpOutboxOptions { drain_every: Duration::from_millis(200), ..AmqpOutboxOptions::default() };
    let mut slot = Slot { shard: ShardId::new(2, 3), options, ..Slot::new(Use::Beside) };
    let old = slot.direct();
    assert_eq!(old.queue(), "shardvisor.outbox-2");
    let even = old.append(batch(2, 1, &["a", "b", "c"], None), &BOTH).await.expect("stored");
    old.append(batch(5, 1, &["a"], None), &BOTH).await.expect("stored");
    assert_eq!(until_open(&old, 4).await.len(), 4);
    old.delivered(even[0].position, Destination::Handler).await.expect("delivered");
    old.bury(even[2].position, Destination::Endpoint, "refused").await.expect("buried");
    drop(old);

    slot.shard = ShardId::new(0, 2);
    let first = slot.direct();
    let open = until_open(&first, 3).await;
    let found: Vec<_> =
        open.iter().map(|stored| (stored.event.channel_id, stored.event.seq, stored.open.len())).collect();
    assert_eq!(found, [(channel(2), 1, 1), (channel(2), 2, 2), (channel(2), 3, 1)]);
    assert_eq!(open[0].open, [(Destination::Endpoint, 0)], "what was done of it stays done");
    let deadline = Instant::now() + Duration::from_secs(30);
    while first.dead(10).await.expect("listed").is_empty() {
        assert!(Instant::now() < deadline, "the dead letter did not come");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    slot.shard = ShardId::new(1, 2);
    let second = slot.direct();
    let open = until_open(&second, 1).await;
    assert_eq!((open[0].event.channel_id, open[0].event.seq), (channel(5), 1));
    drop((first, second));

    slot.shard = ShardId::new(0, 1);
    let only = slot.direct();
    assert_eq!(only.queue(), "shardvisor.outbox");
    assert_eq!(until_open(&only, 4).await.len(), 4);
}
