//! What every [`Outbox`] owes.

use std::{sync::Arc, time::Duration};

use crate::suites::within;
use async_trait::async_trait;
use jiff::Timestamp;
use shard::{
    event::{Event, EventKind, Message},
    identity::ChannelId,
    platform::PlatformKind,
    registry::Fence,
    sink::{Batch, Destination, Outbox, OutboxError, Scope, Stored},
};

/// One outbox, the processes that come and go on it, and time.
#[async_trait]
pub(crate) trait OutboxHarness: Send {
    /// The slot's next process. The one before has ended, as by SIGKILL, if it was not dropped.
    async fn start(&mut self) -> Arc<dyn Outbox>;
    /// Time passes.
    async fn advance(&mut self, by: Duration);
}

const BOTH: [Destination; 2] = [Destination::Handler, Destination::Endpoint];

pub(crate) fn channel(number: u128) -> ChannelId {
    ChannelId::from_uuid(uuid::Uuid::from_u128(number << 96 | 0x4000_8000_0000_0000_0000))
}

pub(crate) fn event(channel: ChannelId, key: &str) -> Event {
    let message = Message { message_id: key.to_owned(), text: Some(format!("ü {key}")), ..Message::default() };
    let at = Timestamp::from_second(1_900_000_000).expect("a time");
    let key = format!("update/{key}");
    let kind = EventKind::MessageReceived(message);
    Event::new(channel, PlatformKind::Telegram, Some("chat".into()), at, &key, kind)
}

pub(crate) fn batch(number: u128, token: u64, keys: &[&str], offset: Option<i64>) -> Batch {
    let channel = channel(number);
    let events = keys.iter().map(|key| event(channel, key)).collect();
    Batch { fence: Fence { channel, token }, events, offset }
}

async fn append(outbox: &Arc<dyn Outbox>, batch: Batch) -> Vec<Stored> {
    outbox.append(batch, &BOTH).await.expect("stored")
}

fn seqs(stored: &[Stored]) -> Vec<u64> {
    stored.iter().map(|stored| stored.event.seq).collect()
}

async fn open(outbox: &Arc<dyn Outbox>) -> Vec<Stored> {
    outbox.open(0, 1000).await.expect("read")
}

/// Contract: E1.
pub(crate) async fn events_get_a_place_without_gaps_in_their_channel(mut harness: impl OutboxHarness) {
    let outbox = harness.start().await;
    let first = append(&outbox, batch(1, 1, &["a", "b"], None)).await;
    let other = append(&outbox, batch(2, 1, &["a"], None)).await;
    let second = append(&outbox, batch(1, 1, &["c"], None)).await;
    assert_eq!((seqs(&first), seqs(&other), seqs(&second)), (vec![1, 2], vec![1], vec![3]));
    drop(outbox);
    let outbox = harness.start().await;
    let third = append(&outbox, batch(1, 1, &["d"], None)).await;
    assert_eq!(seqs(&third), [4]);

    let found = open(&outbox).await;
    assert!(found.is_sorted_by(|a, b| a.position < b.position));
    assert_eq!(seqs(&found), [1, 2, 1, 3, 4]);
    assert_eq!(found[0].event, Event { seq: 1, ..event(channel(1), "a") });
    assert_eq!(found[0].open, [(Destination::Handler, 0), (Destination::Endpoint, 0)]);
    let positions = |stored: &[Stored]| stored.iter().map(|stored| stored.position).collect::<Vec<_>>();
    assert_eq!(positions(&found[..2]), positions(&first));
    assert_eq!(seqs(&outbox.open(found[1].position, 2).await.expect("read")), [1, 3]);
}

/// Contract: E1.
pub(crate) async fn what_leads_to_more_is_stored_and_told_of_once(mut harness: impl OutboxHarness) {
    let outbox = harness.start().await;
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    for _ in 0..2 {
        let heard = heard.clone();
        let told = Arc::new(move |stored: Vec<Stored>| heard.lock().expect("heard").extend(stored));
        outbox.append_leading(batch(1, 1, &["a", "b"], Some(7)), &BOTH, told).await.expect("stored");
    }
    let heard = std::mem::take(&mut *heard.lock().expect("heard"));
    assert_eq!(seqs(&heard), [1, 2]);
    let place = |stored: &Stored| (stored.position, stored.event.clone(), stored.open.clone());
    let stored = open(&outbox).await;
    assert_eq!(heard.iter().map(place).collect::<Vec<_>>(), stored.iter().map(place).collect::<Vec<_>>());
    assert_eq!(outbox.offset(channel(1)).await.expect("read"), Some(7));
}

/// Contract: E1.
pub(crate) async fn an_event_told_again_is_stored_once(mut harness: impl OutboxHarness) {
    let outbox = harness.start().await;
    assert_eq!(seqs(&append(&outbox, batch(1, 1, &["a", "a", "b"], None)).await), [1, 2]);
    assert_eq!(seqs(&append(&outbox, batch(1, 1, &["b", "c", "a"], None)).await), [3]);
    for stored in open(&outbox).await {
        for destination in BOTH {
            outbox.delivered(stored.position, destination).await.expect("delivered");
        }
    }
    assert!(open(&outbox).await.is_empty());
    assert!(append(&outbox, batch(1, 1, &["a"], None)).await.is_empty(), "also once it has been delivered");
    drop(outbox);
    let outbox = harness.start().await;
    assert_eq!(seqs(&append(&outbox, batch(1, 1, &["a", "c", "d"], None)).await), [4]);
    assert_eq!(open(&outbox).await.len(), 1);
}

/// Contract: E1.
pub(crate) async fn the_offset_is_stored_with_its_events_or_not_at_all(mut harness: impl OutboxHarness) {
    let outbox = harness.start().await;
    assert_eq!(outbox.offset(channel(1)).await.expect("read"), None);
    append(&outbox, batch(1, 5, &["a"], Some(41))).await;
    append(&outbox, batch(1, 5, &["b"], None)).await;
    assert_eq!(outbox.offset(channel(1)).await.expect("read"), Some(41));
    append(&outbox, batch(1, 5, &[], Some(42))).await;
    let late = outbox.append(batch(1, 4, &["late"], Some(99)), &BOTH).await;
    assert!(matches!(late, Err(OutboxError::Fenced(of)) if of == channel(1)), "{late:?}");
    drop(outbox);
    let outbox = harness.start().await;
    assert_eq!(outbox.offset(channel(1)).await.expect("read"), Some(42));
    assert_eq!(outbox.offset(channel(2)).await.expect("read"), None);
    assert_eq!(open(&outbox).await.len(), 2);
    assert_eq!(seqs(&append(&outbox, batch(1, 6, &["late"], Some(7))).await), [3], "the refused try left no trace");
    assert_eq!(outbox.offset(channel(1)).await.expect("read"), Some(7));
}

/// Contract: E1.
pub(crate) async fn an_event_stays_until_each_destination_is_done_with(mut harness: impl OutboxHarness) {
    let outbox = harness.start().await;
    let stored = append(&outbox, batch(1, 1, &["a", "b"], None)).await;
    let endpoint = [Destination::Endpoint];
    let single = outbox.append(batch(2, 1, &["c"], None), &endpoint).await.expect("stored");
    outbox.failed(stored[0].position, Destination::Handler, "503").await.expect("counted");
    outbox.failed(stored[0].position, Destination::Handler, "503").await.expect("counted");
    outbox.delivered(stored[0].position, Destination::Endpoint).await.expect("delivered");
    outbox.delivered(stored[1].position, Destination::Handler).await.expect("delivered");
    outbox.delivered(stored[1].position, Destination::Handler).await.expect("delivered twice");
    outbox.failed(single[0].position, Destination::Endpoint, "503").await.expect("counted");
    drop(outbox);
    let outbox = harness.start().await;
    let found: Vec<_> = open(&outbox).await.into_iter().map(|stored| stored.open).collect();
    let expected =
        [vec![(Destination::Handler, 2)], vec![(Destination::Endpoint, 0)], vec![(Destination::Endpoint, 1)]];
    assert_eq!(found, expected);
    outbox.delivered(stored[0].position, Destination::Handler).await.expect("delivered");
    outbox.delivered(single[0].position, Destination::Endpoint).await.expect("delivered");
    assert_eq!(open(&outbox).await.len(), 1);
}

/// Contract: E1.
pub(crate) async fn a_later_event_has_a_later_position_also_when_the_outbox_was_empty(mut harness: impl OutboxHarness) {
    let outbox = harness.start().await;
    let mut last = 0;
    for key in ["a", "b", "c"] {
        let stored = append(&outbox, batch(1, 1, &[key], None)).await;
        assert!(stored[0].position > last);
        last = stored[0].position;
        for destination in BOTH {
            outbox.delivered(last, destination).await.expect("delivered");
        }
    }
}

/// Contract: E1.
pub(crate) async fn what_can_not_be_delivered_is_kept_as_a_dead_letter(mut harness: impl OutboxHarness) {
    let outbox = harness.start().await;
    let stored = append(&outbox, batch(1, 1, &["a", "b"], None)).await;
    for _ in 0..3 {
        outbox.failed(stored[0].position, Destination::Endpoint, "410").await.expect("counted");
    }
    outbox.bury(stored[0].position, Destination::Endpoint, "410 Gone").await.expect("buried");
    outbox.bury(stored[1].position, Destination::Handler, "refused").await.expect("buried");
    drop(outbox);
    let outbox = harness.start().await;
    let dead = outbox.dead(10).await.expect("listed");
    assert_eq!(dead.len(), 2);
    assert_eq!(dead[0].event, Event { seq: 1, ..event(channel(1), "a") });
    assert_eq!(
        (dead[0].destination, dead[0].attempts, dead[0].reason.as_str()),
        (Destination::Endpoint, 3, "410 Gone")
    );
    assert_eq!(outbox.dead(1).await.expect("listed").len(), 1);
    let still: Vec<_> = open(&outbox).await.into_iter().map(|stored| stored.open).collect();
    assert_eq!(still, [vec![(Destination::Handler, 0)], vec![(Destination::Endpoint, 0)]]);

    let id = dead[0].event.id;
    assert!(!outbox.replay(id, Destination::Handler).await.expect("another destination"));
    assert!(outbox.replay(id, Destination::Endpoint).await.expect("replayed"));
    assert!(!outbox.replay(id, Destination::Endpoint).await.expect("gone by now"));
    let again = outbox.open(stored[1].position, 10).await.expect("read");
    assert_eq!(again.len(), 1, "behind everything that was there");
    assert_eq!((again[0].event.id, &again[0].open[..]), (id, &[(Destination::Endpoint, 0)][..]));
    assert!(outbox.drop_dead(dead[1].event.id, Destination::Handler).await.expect("dropped"));
    assert!(!outbox.drop_dead(dead[1].event.id, Destination::Handler).await.expect("gone by now"));
    assert!(outbox.dead(10).await.expect("listed").is_empty());
}

/// Contract: E1.
pub(crate) async fn what_has_no_destination_is_kept_for_the_retention_time(mut harness: impl OutboxHarness) {
    let outbox = harness.start().await;
    let day = Duration::from_secs(86_400);
    let stored = outbox.append(batch(1, 1, &["a", "b"], Some(3)), &[]).await.expect("stored");
    assert_eq!(seqs(&stored), [1, 2]);
    assert!(stored[0].open.is_empty());
    assert!(open(&outbox).await.is_empty());
    assert!(outbox.append(batch(1, 1, &["a"], None), &[]).await.expect("known").is_empty());
    harness.advance(day / 2).await;
    outbox.append(batch(1, 1, &["c"], None), &[]).await.expect("stored");
    let waiting = append(&outbox, batch(1, 1, &["d"], None)).await;
    assert_eq!(seqs(&waiting), [4]);
    assert_eq!(outbox.prune(day).await.expect("pruned"), 0);
    harness.advance(day / 2 + Duration::from_secs(1)).await;
    prunes(&outbox, day, 2).await;
    harness.advance(day * 30).await;
    prunes(&outbox, day, 1).await;
    assert_eq!(open(&outbox).await.len(), 1, "what waits for a destination is never pruned");
}

/// So many go, be it not all at once: what somebody has just looked at may be on its way back to its place.
async fn prunes(outbox: &Arc<dyn Outbox>, older_than: Duration, expected: u64) {
    let mut pruned = 0;
    within("all to go", async {
        while pruned < expected {
            pruned += outbox.prune(older_than).await.expect("pruned");
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(pruned, expected);
    assert_eq!(outbox.prune(older_than).await.expect("pruned"), 0);
}

/// Contract: E1.
pub(crate) async fn appends_side_by_side_keep_each_channel_without_gaps(mut harness: impl OutboxHarness) {
    let outbox = harness.start().await;
    let keys: Vec<String> = (0..40).map(|key| key.to_string()).collect();
    let appends = keys.iter().enumerate().map(|(at, key)| {
        let outbox = outbox.clone();
        async move { append(&outbox, batch(at as u128 % 4, 1, &[key], Some(at as i64))).await }
    });
    futures_util::future::join_all(appends).await;
    let found = open(&outbox).await;
    for number in 0..4 {
        let of: Vec<_> = found.iter().filter(|stored| stored.event.channel_id == channel(number)).collect();
        assert_eq!(of.iter().map(|stored| stored.event.seq).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    }
}

/// Contract: E1. What waits for one conversation is found behind however much waits for others.
pub(crate) async fn what_is_open_is_read_by_destination_channel_and_conversation(mut harness: impl OutboxHarness) {
    let outbox = harness.start().await;
    let (handler, endpoint) = (Destination::Handler, Destination::Endpoint);
    let fence = |number| Fence { channel: channel(number), token: 1 };
    let to_endpoint: Vec<Event> = (0..4500).map(|n| event(channel(1), &n.to_string())).collect();
    let many = Batch { fence: fence(1), events: to_endpoint, offset: None };
    let first = outbox.append(many, &[endpoint]).await.expect("stored")[0].position;
    let elsewhere = Event { conversation: Some("elsewhere".into()), ..event(channel(1), "e") };
    let nowhere = Event { conversation: None, ..event(channel(1), "n") };
    let events = vec![elsewhere, nowhere, event(channel(1), "c")];
    let few = outbox.append(Batch { fence: fence(1), events, offset: None }, &BOTH).await.expect("stored");
    let other = append(&outbox, batch(2, 1, &["a", "b"], None)).await;
    outbox.delivered(other[0].position, handler).await.expect("marked");

    let positions = |stored: &[Stored]| stored.iter().map(|stored| stored.position).collect::<Vec<_>>();
    let (few, other) = (positions(&few), positions(&other));
    let conversation = |name: Option<&str>| Scope::Conversation(handler, channel(1), name.map(Arc::from));
    let cases = [
        (Scope::Destination(handler), 0, vec![few[0], few[1], few[2], other[1]]),
        (Scope::Channel(handler, channel(1)), 0, few.clone()),
        (Scope::Channel(handler, channel(1)), few[0], few[1..].to_vec()),
        (Scope::Channel(endpoint, channel(2)), 0, other.clone()),
        (Scope::Channel(handler, channel(3)), 0, vec![]),
        (conversation(Some("elsewhere")), 0, vec![few[0]]),
        (conversation(None), 0, vec![few[1]]),
        (conversation(Some("chat")), 0, vec![few[2]]),
    ];
    for (scope, after, expected) in cases {
        let found = outbox.open_in(&scope, after, 10).await.expect("read");
        assert_eq!(positions(&found), expected, "{scope:?} after {after}");
        let one = outbox.open_in(&scope, after, 1).await.expect("read");
        assert_eq!(positions(&one)[..], expected[..expected.len().min(1)], "the first of {scope:?}");
    }
    let all = outbox.open_in(&Scope::Destination(endpoint), first, 10_000).await.expect("read");
    assert_eq!(all.len(), 4499 + 3 + 2);
    assert!(all.is_sorted_by_key(|stored| stored.position));
}

/// Makes one test of each function for an adapter.
macro_rules! outbox_suite {
    ($harness:expr) => {
        outbox_suite!(@ $harness,
            events_get_a_place_without_gaps_in_their_channel,
            what_leads_to_more_is_stored_and_told_of_once,
            an_event_told_again_is_stored_once,
            the_offset_is_stored_with_its_events_or_not_at_all,
            an_event_stays_until_each_destination_is_done_with,
            a_later_event_has_a_later_position_also_when_the_outbox_was_empty,
            what_can_not_be_delivered_is_kept_as_a_dead_letter,
            what_has_no_destination_is_kept_for_the_retention_time,
            appends_side_by_side_keep_each_channel_without_gaps,
            what_is_open_is_read_by_destination_channel_and_conversation,
        );
    };
    (@ $harness:expr, $($name:ident,)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let Some(harness) = $harness.await else { return };
                crate::suites::outbox::$name(harness).await;
            }
        )*
    };
}
pub(crate) use outbox_suite;
