//! The registry suite on `box.db` and a slot file, and what only the embedded registry promises.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use shard::{
    clock::ManualClock,
    identity::{ChannelId, QueueBase, ShardId},
    job::{JobId, Lane},
    registry::{
        Claim, EmbeddedRegistry, Fence, Holder, LEASE, LaneFact, Registry, RegistryError, Renewal, Reservation,
        Reserve, Resource, Sent,
    },
    store::{BoxStore, SlotStore},
};
use tempfile::TempDir;

use super::{data_dir, holder};
use crate::suites::registry::{RegistryHarness, registry_suite};

struct OneBox {
    dir: TempDir,
    clock: ManualClock,
    shard: ShardId,
    incarnation: u64,
}

impl OneBox {
    async fn new() -> Self {
        Self { dir: data_dir(), clock: ManualClock::at(1_900_000_000_000), shard: ShardId::new(1, 2), incarnation: 0 }
    }

    fn open(&mut self, boot_id: &str) -> (Arc<EmbeddedRegistry>, Holder) {
        self.incarnation += 1;
        let clock = Arc::new(self.clock.clone());
        let me = holder(self.shard, self.incarnation);
        let shared = BoxStore::open_in_boot(self.dir.path(), clock.clone(), boot_id).expect("opened");
        let slot = SlotStore::open(self.dir.path(), self.shard, &me, clock).expect("opened");
        (Arc::new(EmbeddedRegistry::new(shared, Some(slot))), me)
    }
}

#[async_trait]
impl RegistryHarness for OneBox {
    fn shard(&self) -> ShardId {
        self.shard
    }

    async fn start(&mut self) -> (Arc<dyn Registry>, Holder) {
        let (registry, me) = self.open("boot");
        (registry, me)
    }

    async fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
    }

    async fn step_wall(&mut self, by_ms: i64) {
        self.clock.step_wall(by_ms);
    }
}

registry_suite!(async { Some(OneBox::new().await) });

/// Contract: C1, P2.
#[tokio::test]
async fn a_reboot_ends_every_lease_and_no_token_comes_again() {
    let mut harness = OneBox::new().await;
    let (registry, _) = harness.open("first boot");
    let (a, b) = (Holder { worker: "a".into(), incarnation: 1 }, Holder { worker: "b".into(), incarnation: 1 });
    let claim = |registry: Arc<EmbeddedRegistry>, by: Holder| async move {
        registry.claim(&by, &[Resource::Slot(1)], false).await.expect("answered").remove(0)
    };
    let Claim::Held(first) = claim(registry.clone(), a.clone()).await else { panic!("free") };
    drop(registry);
    let (registry, _) = harness.open("second boot");
    let Claim::Held(second) = claim(registry.clone(), b.clone()).await else { panic!("its holder died with the boot") };
    assert!(second.token > first.token);
    assert_eq!(registry.renew(&a, &[first]).await.expect("renewed"), Renewal { lost: vec![first] });
}

/// Contract: C1. A stopped process that wakes after its successor began.
#[tokio::test]
async fn a_fenced_predecessor_is_refused_at_every_write_to_its_slot() {
    fn fenced<T: std::fmt::Debug>(outcome: Result<T, RegistryError>) {
        assert!(matches!(outcome, Err(RegistryError::Fenced { .. })), "{outcome:?}");
    }
    let mut harness = OneBox::new().await;
    let (old, me) = harness.open("boot");
    let channel: ChannelId = "80000000-0000-4000-8000-000000000001".parse().expect("id");
    let (fence, job) = (Fence { channel, token: 1 }, JobId::new("j").expect("id"));
    let request = Reserve { job: job.clone(), fence, holder: me, provider_id: None, resend: false };
    assert_eq!(old.reserve(request.clone()).await.expect("reserved"), Reservation::Fresh);
    let (new, _) = harness.open("boot");

    let queue = harness.shard.queue(QueueBase::Main);
    let lane = Lane { base: QueueBase::Main, channel, chat: None };
    let fact = LaneFact { queue, lane: lane.clone(), head: job.clone(), due_ms: 1, next_seq: 1 };
    fenced(old.reserve(request).await);
    fenced(old.mark_sent(&fence, &job, Sent { provider_id: None, result: None }).await);
    fenced(old.cancel(&fence, &job).await);
    fenced(old.mark_uncertain(&fence, &job, "late").await);
    fenced(old.put_lane_fact(&fact).await);
    fenced(old.clear_lane_fact(queue, &lane).await);
    fenced(old.count_deaths(&[(channel, job)], u32::MAX).await);
    assert!(new.lane_facts(queue).await.expect("read").is_empty());
}

/// Contract: C1. One row is renewed, however many leases there are.
#[tokio::test]
async fn a_thousand_leases_are_renewed_and_a_single_loss_among_them_is_found() {
    let mut harness = OneBox::new().await;
    let (registry, me) = harness.open("boot");
    let resources: Vec<_> =
        (0..1000).map(|number: u128| Resource::Channel(ChannelId::from_uuid(uuid::Uuid::from_u128(number)))).collect();
    let claims = registry.claim(&me, &resources, true).await.expect("answered");
    let leases: Vec<_> = claims
        .iter()
        .map(|claim| match claim {
            Claim::Held(lease) => *lease,
            Claim::Taken { by, .. } => panic!("taken by {by}"),
        })
        .collect();
    harness.clock.advance(LEASE / 2);
    assert_eq!(registry.renew(&me, &leases).await.expect("renewed").lost, []);
    harness.clock.advance(LEASE * 2);
    let other = Holder { worker: "other".into(), incarnation: 1 };
    registry.claim(&other, &resources[500..501], false).await.expect("taken");
    assert_eq!(registry.renew(&me, &leases).await.expect("renewed").lost, [leases[500]]);
}

/// Contract: Q8. Forgetting keeps up with remembering.
#[tokio::test]
async fn the_guard_forgets_after_a_week_and_not_before() {
    let mut harness = OneBox::new().await;
    let (registry, me) = harness.open("boot");
    let channel: ChannelId = "80000000-0000-4000-8000-000000000001".parse().expect("id");
    let fence = Fence { channel, token: 1 };
    let reserve = |id: String| {
        let request =
            Reserve { job: JobId::new(id).expect("id"), fence, holder: me.clone(), provider_id: None, resend: false };
        let registry = registry.clone();
        async move { registry.reserve(request).await.expect("answered") }
    };
    let day = Duration::from_secs(86_400);
    for at in 0..30 {
        reserve(format!("old-{at}")).await;
        registry
            .mark_sent(&fence, &JobId::new(format!("old-{at}")).expect("id"), Sent { provider_id: None, result: None })
            .await
            .expect("marked");
    }
    harness.clock.advance(day * 6);
    for at in 0..60 {
        reserve(format!("new-{at}")).await;
    }
    assert!(matches!(reserve("old-3".into()).await, Reservation::Sent(_)));
    harness.clock.advance(day * 2);
    for at in 0..60 {
        reserve(format!("newer-{at}")).await;
    }
    for at in 0..30 {
        assert_eq!(reserve(format!("old-{at}")).await, Reservation::Fresh, "old-{at}");
    }
    assert!(matches!(reserve("new-3".into()).await, Reservation::Busy { .. }));
}

/// Contract: I3b.
#[tokio::test]
async fn incarnations_grow_for_each_worker_over_restarts() {
    let dir = data_dir();
    let clock = Arc::new(ManualClock::at(0));
    for round in 1..4 {
        let shared = BoxStore::open(dir.path(), clock.clone()).expect("opened");
        assert_eq!(shared.next_incarnation("a").await.expect("given"), round);
        if round == 2 {
            assert_eq!(shared.next_incarnation("b").await.expect("given"), 1);
        }
    }
}
