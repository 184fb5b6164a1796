//! Leases, the layout, lanes that wait, deaths.

use super::*;

/// Contract: C1.
pub(crate) async fn a_resource_has_one_holder_whose_token_stays_while_it_is_held(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let (a, b) = (holder("a", 1), holder("b", 1));
    let resources = [Resource::Slot(3), Resource::Channel(channel(1)), Resource::Channel(channel(2))];
    let claims = registry.claim(&a, &resources, false).await.expect("answered");
    for (claim, resource) in claims.iter().zip(resources) {
        assert!(matches!(claim, Claim::Held(lease) if lease.resource == resource && lease.token > 0), "{claim:?}");
    }
    let (by, remaining) = taken(&registry, &b, resources[1]).await;
    assert_eq!(by, a);
    assert!(remaining <= LEASE && remaining > Duration::ZERO);
    let again = registry.claim(&a, &resources, false).await.expect("answered");
    assert_eq!(again, claims, "those already ours keep their token");
    let mixed = registry.claim(&b, &[resources[0], Resource::Slot(4)], false).await.expect("answered");
    assert!(matches!((&mixed[0], &mixed[1]), (Claim::Taken { .. }, Claim::Held(_))), "each on its own: {mixed:?}");
}

/// Contract: C1.
pub(crate) async fn a_lease_ends_unless_it_is_renewed_and_the_loss_is_named(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let (a, b) = (holder("a", 1), holder("b", 1));
    let (kept, gone) = (Resource::Slot(1), Resource::Slot(2));
    let leases = [held(&registry, &a, kept).await, held(&registry, &a, gone).await];
    for _ in 0..3 {
        harness.advance(LEASE * 6 / 10).await;
        assert_eq!(lost(&registry, &a, &leases).await, []);
        taken(&registry, &b, gone).await;
    }
    harness.advance(LEASE + Duration::from_millis(200)).await;
    let stolen = held(&registry, &b, gone).await;
    assert!(stolen.token > leases[1].token);
    assert_eq!(lost(&registry, &a, &leases).await, [leases[1]], "what nobody took is still ours");
    assert_eq!(lost(&registry, &a, &leases[..1]).await, []);
    taken(&registry, &b, kept).await;
    assert_eq!(lost(&registry, &b, &[stolen]).await, []);
}

/// Contract: C1. Field report R40.
pub(crate) async fn a_step_of_the_wall_clock_takes_nothing_from_anybody(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let (a, b) = (holder("a", 1), holder("b", 1));
    let lease = held(&registry, &a, Resource::Slot(1)).await;
    for step in [600_000, -1_200_000, 86_400_000_000] {
        harness.step_wall(step).await;
        taken(&registry, &b, Resource::Slot(1)).await;
        assert_eq!(lost(&registry, &a, &[lease]).await, []);
    }
    harness.step_wall(-600_000).await;
    harness.advance(LEASE + Duration::from_millis(200)).await;
    held(&registry, &b, Resource::Slot(1)).await;
}

/// Contract: C1.
pub(crate) async fn a_token_only_grows_also_after_a_release(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let resource = Resource::Channel(channel(7));
    let mut last = 0;
    for round in 1..6 {
        let by = holder(if round % 2 == 0 { "a" } else { "b" }, round);
        let lease = held(&registry, &by, resource).await;
        assert!(lease.token > last, "{} after {last}", lease.token);
        last = lease.token;
        registry.release(&by, &[lease]).await.expect("released");
        assert_eq!(lost(&registry, &by, &[lease]).await, [lease], "released is not held");
    }
}

/// Contract: C1.
pub(crate) async fn a_release_of_what_is_somebody_elses_changes_nothing(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let (a, b) = (holder("a", 1), holder("b", 1));
    let old = held(&registry, &a, Resource::Slot(1)).await;
    harness.advance(LEASE + Duration::from_millis(200)).await;
    let new = held(&registry, &b, Resource::Slot(1)).await;
    registry.release(&a, &[old, new]).await.expect("harmless");
    registry.release(&b, &[old]).await.expect("an old token");
    let (by, _) = taken(&registry, &a, Resource::Slot(1)).await;
    assert_eq!(by, b);
    assert_eq!(lost(&registry, &b, &[new]).await, []);
}

/// Contract: C1, P2.
pub(crate) async fn a_successor_takes_over_at_once_from_its_own_earlier_life_alone(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let (first, second, other) = (holder("a", 1), holder("a", 2), holder("b", 9));
    let (ours, theirs) = (Resource::Slot(1), Resource::Slot(2));
    let old = [held(&registry, &first, ours).await, held(&registry, &first, Resource::Slot(5)).await];
    held(&registry, &other, theirs).await;
    assert_eq!(taken(&registry, &second, ours).await.0, first, "without proof its time must run out");
    let Claim::Held(new) = claim(&registry, &second, ours, true).await else { panic!("superseded") };
    assert!(new.token > old[0].token);
    assert!(matches!(claim(&registry, &second, theirs, true).await, Claim::Taken { by, .. } if by == other));
    assert_eq!(lost(&registry, &first, &old).await, old, "the earlier life has lost all");
    fenced(registry.claim(&first, &[ours], true).await);
    assert_eq!(lost(&registry, &second, &[new]).await, []);
    held(&registry, &other, Resource::Slot(5)).await;
}

/// Contract: I3b.
pub(crate) async fn the_layout_epoch_grows_with_each_change_of_the_count(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    assert_eq!(registry.layout().await.expect("read"), None);
    let mut last = 0;
    for count in [2, 2, 3, 1, 1, 2] {
        let before = registry.layout().await.expect("read");
        let layout = registry.publish_layout(count).await.expect("published");
        assert_eq!(registry.layout().await.expect("read"), Some(layout));
        if before.is_some_and(|before| before.shard_count == count) {
            assert_eq!(before, Some(layout));
        } else {
            assert!(layout.epoch > last && layout.shard_count == count);
        }
        last = layout.epoch;
    }
    drop(registry);
    let (registry, _) = harness.start().await;
    assert_eq!(registry.layout().await.expect("read"), Some(Layout { shard_count: 2, epoch: last }));
}

/// Contract: Q7.
pub(crate) async fn an_epoch_is_swept_when_all_its_shards_have_said_so_and_the_next_one_is_not(
    mut harness: impl RegistryHarness,
) {
    let (registry, _) = harness.start().await;
    let swept = async |shards| registry.swept(shards).await.expect("read");
    assert_eq!(swept(2).await, 0);
    let first = registry.publish_layout(2).await.expect("published").epoch;
    registry.mark_swept(1, first).await.expect("marked");
    assert_eq!(swept(2).await, 0, "the other one has not");
    registry.mark_swept(0, first).await.expect("marked");
    assert_eq!(swept(2).await, first);
    assert_eq!(registry.publish_layout(2).await.expect("published").epoch, first);
    assert_eq!(swept(2).await, first, "publishing the same count changes nothing");
    assert_eq!(registry.layout_before().await.expect("read"), None);
    let second = registry.publish_layout(3).await.expect("published").epoch;
    assert_eq!(registry.layout_before().await.expect("read"), Some(2));
    assert!(swept(3).await < second && swept(2).await < second);
}

/// Contract: Q3.
pub(crate) async fn lanes_that_wait_are_known_after_a_restart(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let queue = harness.shard().queue(QueueBase::Main);
    let media = harness.shard().queue(QueueBase::Media);
    let fact = |queue: QueueName, chat: Option<&str>, due_ms| LaneFact {
        queue,
        lane: Lane { base: queue.base, channel: channel(1), chat: chat.map(str::to_owned) },
        head: job("head"),
        due_ms,
        next_seq: 4,
    };
    let facts = [fact(queue, Some("a"), 10), fact(queue, None, 20), fact(queue, Some("ü/ b"), 30)];
    for fact in &facts {
        registry.put_lane_fact(fact).await.expect("stored");
    }
    registry.put_lane_fact(&fact(media, Some("a"), 5)).await.expect("stored");
    let later = LaneFact { due_ms: 15, next_seq: 9, ..facts[0].clone() };
    registry.put_lane_fact(&later).await.expect("replaced");
    drop(registry);

    let (registry, _) = harness.start().await;
    let mut found = registry.lane_facts(queue).await.expect("read");
    found.sort_by_key(|fact| fact.due_ms);
    assert_eq!(found, [later, facts[1].clone(), facts[2].clone()]);
    registry.clear_lane_fact(queue, &facts[0].lane).await.expect("cleared");
    registry.clear_lane_fact(queue, &facts[0].lane).await.expect("cleared twice");
    assert_eq!(registry.lane_facts(queue).await.expect("read").len(), 2);
    assert_eq!(registry.lane_facts(media).await.expect("read").len(), 1);
}

/// Contract: Q4. Field report R27.
pub(crate) async fn deaths_are_counted_for_each_job_over_restarts(mut harness: impl RegistryHarness) {
    let (registry, _) = harness.start().await;
    let jobs = [(channel(1), job("x")), (channel(2), job("y"))];
    assert_eq!(registry.count_deaths(&jobs, u32::MAX).await.expect("counted"), [1, 1]);
    assert_eq!(registry.count_deaths(&jobs[1..], u32::MAX).await.expect("counted"), [2]);
    drop(registry);
    let (registry, _) = harness.start().await;
    assert_eq!(registry.count_deaths(&jobs, u32::MAX).await.expect("counted"), [2, 3]);
    assert_eq!(registry.count_deaths(&jobs, 2).await.expect("counted"), [2, 3], "not above the bound, never back");
    assert_eq!(registry.count_deaths(&[], u32::MAX).await.expect("counted"), Vec::<u32>::new());
}
