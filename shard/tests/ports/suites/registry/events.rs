//! Events that lie in an outbox elsewhere.

use std::{sync::Arc, time::Duration};

use shard::registry::{Fence, Registry, RegistryError};
use uuid::Uuid;

use super::{RegistryHarness, channel};

fn ids(range: std::ops::Range<u128>) -> Vec<Uuid> {
    range.map(Uuid::from_u128).collect()
}

async fn places(registry: &Arc<dyn Registry>, fence: &Fence, ids: &[Uuid]) -> Vec<Option<u64>> {
    registry.place_events(fence, ids).await.expect("answered")
}

/// Contract: E1.
pub(crate) async fn a_place_is_given_once_and_none_to_what_is_stored(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let (fence, other) = (Fence { channel: channel(1), token: 5 }, Fence { channel: channel(2), token: 5 });
    assert_eq!(places(&registry, &fence, &ids(1..4)).await, [Some(1), Some(2), Some(3)]);
    assert_eq!(places(&registry, &other, &ids(11..12)).await, [Some(1)]);
    registry.events_stored(&fence, &ids(1..3), None).await.expect("stored");
    drop(registry);
    let (registry, _) = harness.start().await;
    assert_eq!(places(&registry, &fence, &ids(1..5)).await, [None, None, Some(3), Some(4)]);
    registry.events_stored(&fence, &ids(3..5), None).await.expect("stored");
    registry.events_stored(&fence, &ids(3..5), None).await.expect("stored twice");
    assert_eq!(places(&registry, &fence, &ids(4..6)).await, [None, Some(5)]);
    assert_eq!(places(&registry, &fence, &[]).await, Vec::<Option<u64>>::new());
}

/// Contract: C1, E1.
pub(crate) async fn a_stale_owner_stores_no_event_and_no_offset(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let (old, new) = (Fence { channel: channel(1), token: 4 }, Fence { channel: channel(1), token: 5 });
    assert_eq!(registry.read_to(channel(1)).await.expect("read"), None);
    registry.events_stored(&new, &[], Some(7)).await.expect("stored");
    let late = registry.place_events(&old, &ids(1..2)).await;
    assert!(matches!(late, Err(RegistryError::Fenced { .. })), "{late:?}");
    let late = registry.events_stored(&old, &ids(1..2), Some(99)).await;
    assert!(matches!(late, Err(RegistryError::Fenced { .. })), "{late:?}");
    drop(registry);
    let (registry, _) = harness.start().await;
    assert_eq!(places(&registry, &new, &ids(1..2)).await, [Some(1)], "the late ones left no trace");
    registry.events_stored(&new, &ids(1..2), None).await.expect("stored");
    assert_eq!(registry.read_to(channel(1)).await.expect("read"), Some(7));
    assert_eq!(registry.read_to(channel(2)).await.expect("read"), None);
}

/// Contract: E1. A platform keeps what it was not told to forget for a day.
pub(crate) async fn ids_of_events_are_known_for_a_day_and_forgotten_in_the_end(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let fence = Fence { channel: channel(1), token: 1 };
    places(&registry, &fence, &ids(1..2)).await;
    registry.events_stored(&fence, &ids(1..2), None).await.expect("stored");
    let mut next = 100;
    let mut days = async |hours: u64| {
        // Whatever forgets does so when something new comes.
        for _ in 0..hours {
            harness.advance(Duration::from_secs(3600)).await;
            places(&registry, &fence, &ids(next..next + 1)).await;
            next += 1;
        }
    };
    days(23).await;
    assert_eq!(places(&registry, &fence, &ids(1..2)).await, [None]);
    days(50).await;
    assert_eq!(places(&registry, &fence, &ids(1..2)).await, [Some(75)]);
}

/// Contract: E1.
pub(crate) async fn marks_and_notes_are_kept_over_restarts_until_they_are_taken_away(
    mut harness: impl RegistryHarness,
) {
    let (registry, _) = harness.start().await;
    let [a, b, c] = [1, 2, 3].map(Uuid::from_u128);
    registry.mark_events(&[(a, Some("h1".into())), (b, Some("e2".into()))]).await.expect("marked");
    registry.mark_events(&[(a, Some("h2".into()))]).await.expect("marked");
    registry.note("out-1", "x", Some("1")).await.expect("noted");
    registry.note("out-1", "y", Some("2")).await.expect("noted");
    registry.note("out-2", "x", Some("3")).await.expect("noted");
    drop(registry);
    let (registry, _) = harness.start().await;
    let marks = registry.event_marks(&[a, b, c]).await.expect("read");
    assert_eq!(marks, [Some("h2".to_owned()), Some("e2".to_owned()), None]);
    registry.mark_events(&[(a, None), (c, None)]).await.expect("taken away");
    assert_eq!(registry.event_marks(&[a]).await.expect("read"), [None]);
    assert_eq!(registry.event_marks(&[]).await.expect("read"), Vec::<Option<String>>::new());
    registry.note("out-1", "x", None).await.expect("taken away");
    assert_eq!(registry.notes("out-1").await.expect("read"), [("y".to_owned(), "2".to_owned())]);
    assert_eq!(registry.notes("out-3").await.expect("read"), []);
}
