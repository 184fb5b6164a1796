//! A broker that goes and comes, and processes that end at a bad moment.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use shard::{
    registry::Fence,
    sink::{Destination, Outbox, OutboxError, Stored},
};

use super::{Proxy, Slot};
use crate::{
    servers::Use,
    suites::{
        outbox::{batch, channel, event},
        within,
    },
};

const HANDLER: Destination = Destination::Handler;

async fn somehow<T, F: Future<Output = Result<T, OutboxError>>>(mut call: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match call().await {
            Ok(value) => return value,
            Err(OutboxError::Unavailable(_)) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn seqs(stored: &[Stored]) -> Vec<u64> {
    stored.iter().map(|stored| stored.event.seq).collect()
}

/// Contract: E1. Field report R25.
#[tokio::test]
async fn a_broker_that_stops_and_starts_loses_no_event_and_mixes_none_up() {
    let mut slot = Slot::new(Use::Alone);
    let outbox = slot.direct();
    let first = somehow(|| outbox.append(batch(1, 1, &["a", "b"], Some(1)), &[HANDLER])).await;
    somehow(|| outbox.open(0, 10)).await;
    slot.host.broker.run("ctl", &["stop_app"]);
    let away = outbox.append(batch(1, 1, &["c", "d"], Some(2)), &[HANDLER]).await;
    assert!(matches!(away, Err(OutboxError::Unavailable(_))), "{away:?}");
    assert_eq!(outbox.offset(channel(1)).await.expect("read"), Some(1), "the platform was not told");
    outbox.delivered(first[0].position, HANDLER).await.expect("known, and told to the broker when it comes again");
    slot.host.broker.run("ctl", &["start_app"]);
    let stored = somehow(|| outbox.append(batch(1, 1, &["c", "d"], Some(2)), &[HANDLER])).await;
    assert_eq!(seqs(&stored), [3, 4], "the same places as the first time");
    let open = somehow(|| outbox.open(0, 10)).await;
    assert_eq!(seqs(&open), [2, 3, 4]);
    drop(outbox);
    let outbox = slot.direct();
    assert_eq!(seqs(&somehow(|| outbox.open(0, 10)).await), [2, 3, 4]);
}

/// Contract: E1. What was published and not yet noted down is told again, and stored under the same place.
#[tokio::test]
async fn a_process_that_ends_between_publishing_and_noting_down_leaves_no_gap() {
    let mut slot = Slot::new(Use::Beside);
    let registry = slot.registry();
    let fence = Fence { channel: channel(1), token: 1 };
    let ids = [event(channel(1), "a").id, event(channel(1), "b").id];
    assert_eq!(registry.place_events(&fence, &ids).await.expect("placed"), [Some(1), Some(2)]);
    drop(registry);
    let outbox = slot.direct();
    let stored = outbox.append(batch(1, 1, &["b", "c", "a"], None), &[HANDLER]).await.expect("stored");
    assert_eq!(seqs(&stored), [2, 3, 1]);
    assert!(outbox.append(batch(1, 1, &["a", "b"], None), &[HANDLER]).await.expect("known").is_empty());
}

/// Contract: C0, E1. A predecessor that is not gone yet holds the queue alone.
#[tokio::test]
async fn a_successor_reads_nothing_before_its_predecessor_is_gone_and_then_everything() {
    let mut slot = Slot::new(Use::Beside);
    let way = Proxy::to(slot.host.broker.port()).await;
    let old = slot.outbox(way.port());
    old.append(batch(1, 1, &["a", "b"], None), &[HANDLER]).await.expect("stored");
    assert_eq!(old.open(0, 10).await.expect("read").len(), 2);
    let new: Arc<dyn Outbox> = slot.direct();
    let reading = new.open(0, 10);
    tokio::pin!(reading);
    let early = tokio::time::timeout(Duration::from_millis(500), &mut reading).await;
    assert!(early.is_err(), "{early:?}");
    let third = new.append(batch(1, 2, &["c"], None), &[HANDLER]).await.expect("stored");
    assert_eq!(seqs(&third), [3]);
    drop(way);
    let open = within("the predecessor's end", reading).await.expect("read");
    assert_eq!(seqs(&open), [1, 2, 3]);
    drop(old);
}

/// Contract: E1. Dead letters are looked after from another process.
#[tokio::test]
async fn a_visitor_replays_dead_letters_of_a_running_outbox() {
    let mut slot = Slot::new(Use::Beside);
    let outbox = slot.direct();
    let stored = outbox.append(batch(1, 1, &["a"], None), &[HANDLER]).await.expect("stored");
    within("the start", outbox.news()).await;
    outbox.failed(stored[0].position, HANDLER, "503").await.expect("counted");
    outbox.bury(stored[0].position, HANDLER, "refused").await.expect("buried");
    let visitor = slot.direct();
    let dead = visitor.dead(10).await.expect("listed");
    assert_eq!((dead.len(), dead[0].attempts), (1, 1));
    assert!(visitor.replay(dead[0].event.id, HANDLER).await.expect("replayed"));
    within("the replayed event", outbox.news()).await;
    let open = outbox.open(stored[0].position, 10).await.expect("read");
    assert_eq!((open.len(), open[0].event.id, &open[0].open[..]), (1, dead[0].event.id, &[(HANDLER, 0)][..]));
}
