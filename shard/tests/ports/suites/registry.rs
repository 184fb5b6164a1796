//! What every [`Registry`] owes.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::json;
use shard::{
    identity::{ChannelId, QueueBase, QueueName, ShardId},
    job::{JobId, Lane},
    registry::{
        Claim, Fence, Holder, LEASE, LaneFact, Layout, Lease, Registry, RegistryError, Reservation, Reserve, Resource,
        Sent,
    },
};

/// One registry, the processes that come and go on it, and time.
#[async_trait]
pub(crate) trait RegistryHarness: Send {
    /// The slot whose processes [`RegistryHarness::start`] starts.
    fn shard(&self) -> ShardId;
    /// The slot's next process and who it is. The one before has ended, as by SIGKILL, if it was not dropped.
    async fn start(&mut self) -> (Arc<dyn Registry>, Holder);
    /// Time passes.
    async fn advance(&mut self, by: Duration);
    /// Somebody sets the wall clock of the machine.
    async fn step_wall(&mut self, by_ms: i64);
}

fn holder(worker: &str, incarnation: u64) -> Holder {
    Holder { worker: worker.to_owned(), incarnation }
}

fn channel(number: u128) -> ChannelId {
    ChannelId::from_uuid(uuid::Uuid::from_u128(number << 96 | 0x4000_8000_0000_0000_0000))
}

fn job(id: &str) -> JobId {
    JobId::new(id).expect("an id")
}

async fn claim(registry: &Arc<dyn Registry>, by: &Holder, resource: Resource, supersede: bool) -> Claim {
    let claims = registry.claim(by, &[resource], supersede).await.expect("answered");
    claims.into_iter().next().expect("one answer")
}

async fn held(registry: &Arc<dyn Registry>, by: &Holder, resource: Resource) -> Lease {
    match claim(registry, by, resource, false).await {
        Claim::Held(lease) => lease,
        Claim::Taken { by, .. } => panic!("{resource} is taken by {by}"),
    }
}

async fn taken(registry: &Arc<dyn Registry>, by: &Holder, resource: Resource) -> (Holder, Duration) {
    match claim(registry, by, resource, false).await {
        Claim::Taken { by, remaining } => (by, remaining),
        Claim::Held(lease) => panic!("{resource} was free: {lease:?}"),
    }
}

async fn lost(registry: &Arc<dyn Registry>, by: &Holder, leases: &[Lease]) -> Vec<Lease> {
    registry.renew(by, leases).await.expect("renewed").lost
}

fn fenced<T: std::fmt::Debug>(outcome: Result<T, RegistryError>) {
    assert!(matches!(outcome, Err(RegistryError::Fenced { .. })), "{outcome:?}");
}

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
    assert_eq!(registry.count_deaths(&jobs).await.expect("counted"), [1, 1]);
    assert_eq!(registry.count_deaths(&jobs[1..]).await.expect("counted"), [2]);
    drop(registry);
    let (registry, _) = harness.start().await;
    assert_eq!(registry.count_deaths(&jobs).await.expect("counted"), [2, 3]);
    assert_eq!(registry.count_deaths(&[]).await.expect("counted"), Vec::<u32>::new());
}

fn request(id: &str, by: &Holder, token: u64, provider_id: Option<&str>) -> Reserve {
    Reserve {
        job: job(id),
        fence: Fence { channel: channel(1), token },
        holder: by.clone(),
        provider_id: provider_id.map(str::to_owned),
    }
}

async fn reserve(registry: &Arc<dyn Registry>, id: &str, by: &Holder, provider_id: Option<&str>) -> Reservation {
    registry.reserve(request(id, by, 1, provider_id)).await.expect("answered")
}

const FENCE: fn(u64) -> Fence = |token| Fence { channel: channel(1), token };

fn sent(id: &str) -> Sent {
    Sent { provider_id: Some(id.to_owned()), result: Some(json!({"message_id": id, "parts": [1, 2.5, null]})) }
}

/// Contract: Q8.
pub(crate) async fn a_send_that_was_done_answers_every_later_job_of_its_id(mut harness: impl RegistryHarness) {
    let (registry, me) = harness.start().await;
    assert_eq!(reserve(&registry, "j", &me, None).await, Reservation::Fresh);
    assert_eq!(reserve(&registry, "other", &me, None).await, Reservation::Fresh);
    assert_eq!(reserve(&registry, "j", &me, None).await, Reservation::Busy { by: me.clone() });
    registry.mark_sent(&FENCE(1), &job("j"), sent("42")).await.expect("marked");
    assert_eq!(reserve(&registry, "j", &me, None).await, Reservation::Sent(sent("42")));
    // Nothing takes that back.
    registry.mark_sent(&FENCE(1), &job("j"), sent("43")).await.expect("too late");
    registry.cancel(&FENCE(1), &job("j")).await.expect("too late");
    registry.mark_uncertain(&FENCE(1), &job("j"), "timed out").await.expect("too late");
    drop(registry);
    let (registry, me) = harness.start().await;
    assert_eq!(reserve(&registry, "j", &me, Some("mine")).await, Reservation::Sent(sent("42")));
    registry.mark_sent(&FENCE(1), &job("unreserved"), Sent { provider_id: None, result: None }).await.expect("marked");
    let answer = reserve(&registry, "unreserved", &me, None).await;
    assert_eq!(answer, Reservation::Sent(Sent { provider_id: None, result: None }));
}

/// Contract: Q8.
pub(crate) async fn a_send_that_did_not_happen_can_be_tried_again(mut harness: impl RegistryHarness) {
    let (registry, me) = harness.start().await;
    reserve(&registry, "j", &me, None).await;
    registry.cancel(&FENCE(1), &job("j")).await.expect("cancelled");
    registry.cancel(&FENCE(1), &job("j")).await.expect("cancelled twice");
    assert_eq!(reserve(&registry, "j", &me, None).await, Reservation::Fresh);
}

/// Contract: Q8. Field report R33.
pub(crate) async fn what_a_dead_process_had_on_the_wire_is_sent_again_under_its_id_or_uncertain(
    mut harness: impl RegistryHarness,
) {
    let (registry, dead) = harness.start().await;
    reserve(&registry, "chosen", &dead, Some("id-1")).await;
    reserve(&registry, "open", &dead, None).await;
    drop(registry);

    let (registry, me) = harness.start().await;
    assert!(me.incarnation > dead.incarnation);
    let again = reserve(&registry, "chosen", &me, Some("id-2")).await;
    assert_eq!(again, Reservation::Again { provider_id: "id-1".into() });
    assert_eq!(reserve(&registry, "chosen", &me, None).await, Reservation::Busy { by: me.clone() });
    for _ in 0..2 {
        assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Uncertain { by: dead.clone() });
    }
    drop(registry);

    let (registry, me) = harness.start().await;
    let again = reserve(&registry, "chosen", &me, None).await;
    assert_eq!(again, Reservation::Again { provider_id: "id-1".into() });
    assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Uncertain { by: dead.clone() });
    registry.cancel(&FENCE(1), &job("open")).await.expect("a resend begins");
    assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Fresh);
    registry.mark_sent(&FENCE(1), &job("open"), sent("9")).await.expect("marked");
    assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Sent(sent("9")));
}

/// Contract: Q8.
pub(crate) async fn a_doubt_is_kept_until_it_is_settled(mut harness: impl RegistryHarness) {
    let (registry, me) = harness.start().await;
    reserve(&registry, "j", &me, None).await;
    registry.mark_uncertain(&FENCE(1), &job("j"), "timed out").await.expect("marked");
    registry.mark_uncertain(&FENCE(1), &job("unreserved"), "timed out").await.expect("marked");
    drop(registry);
    let (registry, next) = harness.start().await;
    assert_eq!(reserve(&registry, "j", &next, Some("id")).await, Reservation::Uncertain { by: me });
    assert!(matches!(reserve(&registry, "unreserved", &next, None).await, Reservation::Uncertain { .. }));
    registry.mark_sent(&FENCE(1), &job("j"), sent("5")).await.expect("found out");
    assert_eq!(reserve(&registry, "j", &next, None).await, Reservation::Sent(sent("5")));
}

/// Contract: Q8.
pub(crate) async fn another_worker_is_waited_for_only_while_it_provably_lives(mut harness: impl RegistryHarness) {
    let (registry, me) = harness.start().await;
    let other = holder("elsewhere", 4);
    let lease = held(&registry, &other, Resource::Slot(77)).await;
    reserve(&registry, "open", &other, None).await;
    reserve(&registry, "chosen", &other, Some("id-1")).await;
    harness.advance(LEASE * 6 / 10).await;
    assert_eq!(lost(&registry, &other, &[lease]).await, []);
    harness.advance(LEASE * 6 / 10).await;
    assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Busy { by: other.clone() });
    harness.advance(LEASE * 6 / 10).await;
    assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Uncertain { by: other.clone() });
    let again = reserve(&registry, "chosen", &me, None).await;
    assert_eq!(again, Reservation::Again { provider_id: "id-1".into() });
    let never_seen = holder("nobody", 1);
    reserve(&registry, "x", &never_seen, None).await;
    assert_eq!(reserve(&registry, "x", &me, None).await, Reservation::Uncertain { by: never_seen });
}

/// Contract: C1.
pub(crate) async fn an_older_token_writes_nothing(mut harness: impl RegistryHarness) {
    let (registry, me) = harness.start().await;
    registry.reserve(request("a", &me, 5, None)).await.expect("reserved");
    fenced(registry.reserve(request("b", &me, 4, None)).await);
    fenced(registry.mark_sent(&FENCE(4), &job("a"), sent("1")).await);
    fenced(registry.cancel(&FENCE(4), &job("a")).await);
    fenced(registry.mark_uncertain(&FENCE(4), &job("a"), "late").await);
    assert_eq!(
        registry.reserve(request("a", &me, 5, None)).await.expect("still"),
        Reservation::Busy { by: me.clone() }
    );
    registry.mark_sent(&FENCE(6), &job("a"), sent("1")).await.expect("a newer owner");
    fenced(registry.reserve(request("c", &me, 5, None)).await);
    let elsewhere = Reserve { fence: Fence { channel: channel(2), token: 1 }, ..request("d", &me, 1, None) };
    assert_eq!(registry.reserve(elsewhere).await.expect("another channel"), Reservation::Fresh);
}

/// Makes one test of each function for an adapter.
macro_rules! registry_suite {
    ($harness:expr) => {
        registry_suite!(@ $harness,
            a_resource_has_one_holder_whose_token_stays_while_it_is_held,
            a_lease_ends_unless_it_is_renewed_and_the_loss_is_named,
            a_step_of_the_wall_clock_takes_nothing_from_anybody,
            a_token_only_grows_also_after_a_release,
            a_release_of_what_is_somebody_elses_changes_nothing,
            a_successor_takes_over_at_once_from_its_own_earlier_life_alone,
            the_layout_epoch_grows_with_each_change_of_the_count,
            lanes_that_wait_are_known_after_a_restart,
            deaths_are_counted_for_each_job_over_restarts,
            a_send_that_was_done_answers_every_later_job_of_its_id,
            a_send_that_did_not_happen_can_be_tried_again,
            what_a_dead_process_had_on_the_wire_is_sent_again_under_its_id_or_uncertain,
            a_doubt_is_kept_until_it_is_settled,
            another_worker_is_waited_for_only_while_it_provably_lives,
            an_older_token_writes_nothing,
        );
    };
    (@ $harness:expr, $($name:ident,)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                crate::suites::registry::$name($harness.await).await;
            }
        )*
    };
}
pub(crate) use registry_suite;
