//! What every [`Registry`] owes.

mod events;
mod guard;
mod lease;

pub(crate) use self::{events::*, guard::*, lease::*};

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

/// Makes one test of each function for an adapter. The harness comes as an option: none where what it needs isn't there.
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
            an_epoch_is_swept_when_all_its_shards_have_said_so_and_the_next_one_is_not,
            lanes_that_wait_are_known_after_a_restart,
            deaths_are_counted_for_each_job_over_restarts,
            a_send_that_was_done_answers_every_later_job_of_its_id,
            a_send_that_did_not_happen_can_be_tried_again,
            what_a_dead_process_had_on_the_wire_is_sent_again_under_its_id_or_uncertain,
            a_doubt_is_kept_until_it_is_settled,
            another_worker_is_waited_for_only_while_it_provably_lives,
            an_older_token_writes_nothing,
            a_place_is_given_once_and_none_to_what_is_stored,
            a_stale_owner_stores_no_event_and_no_offset,
            ids_of_events_are_known_for_a_day_and_forgotten_in_the_end,
            marks_and_notes_are_kept_over_restarts_until_they_are_taken_away,
        );
    };
    (@ $harness:expr, $($name:ident,)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let Some(harness) = $harness.await else { return };
                crate::suites::registry::$name(harness).await;
            }
        )*
    };
}
pub(crate) use registry_suite;
