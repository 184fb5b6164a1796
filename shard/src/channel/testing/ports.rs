//! A clock, a registry, a directory and an outbox that can be taken away.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{sync::Notify, time::Instant};
use uuid::Uuid;

use crate::{
    clock::Clock,
    directory::{ChannelSpec, Directory, DirectoryError},
    event::{Event, EventKind},
    identity::{ChannelId, QueueName},
    job::{JobId, Lane},
    registry::{
        Claim, Fence, Holder, LEASE, LaneFact, Layout, Lease, Registry, RegistryError, Renewal, Reservation, Reserve,
        Resource, Sent,
    },
    sink::{Batch, DeadEvent, Destination, Outbox, OutboxError, Stored},
};

/// Tokio's (paused) clock as the time since boot; it can also jump, as on a suspended machine.
pub(in crate::channel) struct TestClock {
    began: Instant,
    asleep_ms: AtomicU64,
}

impl TestClock {
    pub(in crate::channel) fn new() -> Self {
        Self { began: Instant::now(), asleep_ms: AtomicU64::new(0) }
    }

    pub(in crate::channel) fn suspend(&self, by: Duration) {
        self.asleep_ms.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn wall_ms(&self) -> i64 {
        1_700_000_000_000 + self.boottime().as_millis() as i64
    }

    fn boottime(&self) -> Duration {
        Duration::from_secs(1000) + self.began.elapsed() + Duration::from_millis(self.asleep_ms.load(Ordering::SeqCst))
    }
}

/// Leases in memory, by the same clock. `away` makes it unreachable.
pub(in crate::channel) struct TestRegistry {
    clock: Arc<TestClock>,
    pub(in crate::channel) away: AtomicBool,
    pub(in crate::channel) leases: Mutex<BTreeMap<Resource, (Holder, u64, Duration)>>,
    tokens: AtomicU64,
}

impl TestRegistry {
    pub(in crate::channel) fn new(clock: Arc<TestClock>) -> Self {
        Self { clock, away: AtomicBool::new(false), leases: Mutex::default(), tokens: AtomicU64::new(0) }
    }

    fn reach(&self) -> Result<(), RegistryError> {
        if self.away.load(Ordering::SeqCst) { Err(RegistryError::Unavailable("away".into())) } else { Ok(()) }
    }

    fn grant(&self, holder: &Holder, resource: Resource) -> Lease {
        let token = self.tokens.fetch_add(1, Ordering::SeqCst) + 1;
        let until = self.clock.boottime() + LEASE;
        self.leases.lock().unwrap().insert(resource, (holder.clone(), token, until));
        Lease { resource, token }
    }

    /// Somebody else takes it, whoever holds it.
    pub(in crate::channel) fn rob(&self, channel: ChannelId) {
        let thief = Holder { worker: "thief".into(), incarnation: 1 };
        self.grant(&thief, Resource::Channel(channel));
    }

    pub(in crate::channel) fn holder(&self, channel: ChannelId) -> Option<String> {
        let leases = self.leases.lock().unwrap();
        leases.get(&Resource::Channel(channel)).map(|(holder, ..)| holder.worker.clone())
    }
}

#[async_trait]
impl Registry for TestRegistry {
    async fn publish_layout(&self, shard_count: u32) -> Result<Layout, RegistryError> {
        Ok(Layout { shard_count, epoch: 1 })
    }

    async fn layout(&self) -> Result<Option<Layout>, RegistryError> {
        Ok(None)
    }

    async fn layout_before(&self) -> Result<Option<u32>, RegistryError> {
        Ok(None)
    }

    async fn swept(&self, _: u32) -> Result<u64, RegistryError> {
        Ok(1)
    }

    async fn mark_swept(&self, _: u32, _: u64) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn claim(
        &self,
        holder: &Holder,
        resources: &[Resource],
        supersede: bool,
    ) -> Result<Vec<Claim>, RegistryError> {
        self.reach()?;
        let now = self.clock.boottime();
        let claim = |resource: &Resource| {
            let held = self.leases.lock().unwrap().get(resource).cloned();
            match held {
                Some((by, token, _)) if by == *holder => {
                    self.leases.lock().unwrap().insert(*resource, (by, token, now + LEASE));
                    Claim::Held(Lease { resource: *resource, token })
                }
                Some((by, _, until)) if until > now && !(supersede && by.worker == holder.worker) => {
                    Claim::Taken { by, remaining: until - now }
                }
                _ => Claim::Held(self.grant(holder, *resource)),
            }
        };
        Ok(resources.iter().map(claim).collect())
    }

    async fn renew(&self, holder: &Holder, asked: &[Lease]) -> Result<Renewal, RegistryError> {
        self.reach()?;
        let until = self.clock.boottime() + LEASE;
        let mut leases = self.leases.lock().unwrap();
        let mut renewal = Renewal::default();
        for lease in asked {
            match leases.get_mut(&lease.resource) {
                Some((by, token, end)) if by == holder && *token == lease.token => *end = until,
                _ => renewal.lost.push(*lease),
            }
        }
        Ok(renewal)
    }

    async fn release(&self, holder: &Holder, given: &[Lease]) -> Result<(), RegistryError> {
        self.reach()?;
        let mut leases = self.leases.lock().unwrap();
        for lease in given {
            if leases.get(&lease.resource).is_some_and(|(by, token, _)| by == holder && *token == lease.token) {
                leases.remove(&lease.resource);
            }
        }
        Ok(())
    }

    async fn reserve(&self, _: Reserve) -> Result<Reservation, RegistryError> {
        Ok(Reservation::Fresh)
    }

    async fn mark_sent(&self, _: &Fence, _: &JobId, _: Sent) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn cancel(&self, _: &Fence, _: &JobId) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn mark_uncertain(&self, _: &Fence, _: &JobId, _: &str) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn lane_facts(&self, _: QueueName) -> Result<Vec<LaneFact>, RegistryError> {
        Ok(Vec::new())
    }

    async fn put_lane_fact(&self, _: &LaneFact) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn clear_lane_fact(&self, _: QueueName, _: &Lane) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn count_deaths(&self, jobs: &[(ChannelId, JobId)], _: u32) -> Result<Vec<u32>, RegistryError> {
        Ok(vec![0; jobs.len()])
    }

    async fn place_events(&self, _: &Fence, ids: &[Uuid]) -> Result<Vec<Option<u64>>, RegistryError> {
        Ok(vec![None; ids.len()])
    }

    async fn events_stored(&self, _: &Fence, _: &[Uuid], _: Option<i64>) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn read_to(&self, _: ChannelId) -> Result<Option<i64>, RegistryError> {
        Ok(None)
    }

    async fn mark_events(&self, _: &[(Uuid, Option<String>)]) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn event_marks(&self, ids: &[Uuid]) -> Result<Vec<Option<String>>, RegistryError> {
        Ok(vec![None; ids.len()])
    }

    async fn note(&self, _: &str, _: &str, _: Option<&str>) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn notes(&self, _: &str) -> Result<Vec<(String, String)>, RegistryError> {
        Ok(Vec::new())
    }
}

/// A directory in memory.
#[derive(Default)]
pub(in crate::channel) struct TestDirectory {
    pub(in crate::channel) specs: Mutex<Vec<Arc<ChannelSpec>>>,
    pub(in crate::channel) away: AtomicBool,
    /// It is away, and what it said before is known.
    pub(in crate::channel) stale: AtomicBool,
    pub(in crate::channel) asked: AtomicUsize,
    /// How long an answer is under way, and so how old it is when it comes.
    pub(in crate::channel) slow: Mutex<Duration>,
    changed: Notify,
}

impl TestDirectory {
    pub(in crate::channel) fn set(&self, specs: impl IntoIterator<Item = Arc<ChannelSpec>>) {
        *self.specs.lock().unwrap() = specs.into_iter().collect();
        self.changed.notify_one();
    }
}

#[async_trait]
impl Directory for TestDirectory {
    async fn channels(&self) -> Result<Vec<Arc<ChannelSpec>>, DirectoryError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.away.load(Ordering::SeqCst) {
            return Err(DirectoryError::Unavailable("away".into()));
        }
        let (answer, slow) = (self.specs.lock().unwrap().clone(), *self.slow.lock().unwrap());
        tokio::time::sleep(slow).await;
        if self.stale.load(Ordering::SeqCst) {
            return Err(DirectoryError::Stale { why: "away".into(), last: answer });
        }
        Ok(answer)
    }

    async fn set_enabled(&self, channel: ChannelId, enabled: bool) -> Result<bool, DirectoryError> {
        let mut specs = self.specs.lock().unwrap();
        let Some(spec) = specs.iter_mut().find(|spec| spec.id == channel) else { return Ok(false) };
        *spec = Arc::new(ChannelSpec { enabled, ..(**spec).clone() });
        self.changed.notify_one();
        Ok(true)
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// Keeps what is appended; can be taken away, or find a newer owner.
#[derive(Default)]
pub(in crate::channel) struct TestOutbox {
    pub(in crate::channel) stored: Mutex<Vec<(Event, Vec<Destination>)>>,
    pub(in crate::channel) offsets: Mutex<HashMap<ChannelId, i64>>,
    pub(in crate::channel) appends: AtomicUsize,
    pub(in crate::channel) away: AtomicBool,
    pub(in crate::channel) fenced: AtomicBool,
    /// It goes away after so many appends from the first on.
    pub(in crate::channel) away_after: Mutex<Option<usize>>,
}

impl TestOutbox {
    /// The states that a channel told, in order.
    pub(in crate::channel) fn told(&self, channel: ChannelId) -> Vec<String> {
        let stored = self.stored.lock().unwrap();
        let of_channel = stored.iter().filter(|(event, _)| event.channel_id == channel);
        of_channel
            .filter_map(|(event, _)| match &event.kind {
                EventKind::ChannelState(told) => Some(told.state.clone()),
                _ => None,
            })
            .collect()
    }
}

#[async_trait]
impl Outbox for TestOutbox {
    async fn append(&self, batch: Batch, destinations: &[Destination]) -> Result<Vec<Stored>, OutboxError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(OutboxError::Unavailable("away".into()));
        }
        if self.fenced.load(Ordering::SeqCst) {
            return Err(OutboxError::Fenced(batch.fence.channel));
        }
        let appends = self.appends.fetch_add(1, Ordering::SeqCst) + 1;
        if *self.away_after.lock().unwrap() == Some(appends) {
            self.away.store(true, Ordering::SeqCst);
        }
        if let Some(offset) = batch.offset {
            self.offsets.lock().unwrap().insert(batch.fence.channel, offset);
        }
        let mut stored = self.stored.lock().unwrap();
        let store = |event: Event| {
            stored.push((event.clone(), destinations.to_vec()));
            let open = destinations.iter().map(|destination| (*destination, 0)).collect();
            Stored { position: stored.len() as u64, stored_ms: 0, event, open }
        };
        Ok(batch.events.into_iter().map(store).collect())
    }

    async fn offset(&self, channel: ChannelId) -> Result<Option<i64>, OutboxError> {
        Ok(self.offsets.lock().unwrap().get(&channel).copied())
    }

    async fn open(&self, _: u64, _: usize) -> Result<Vec<Stored>, OutboxError> {
        Ok(Vec::new())
    }

    async fn delivered(&self, _: u64, _: Destination) -> Result<(), OutboxError> {
        Ok(())
    }

    async fn failed(&self, _: u64, _: Destination, _: &str) -> Result<(), OutboxError> {
        Ok(())
    }

    async fn bury(&self, _: u64, _: Destination, _: &str) -> Result<(), OutboxError> {
        Ok(())
    }

    async fn dead(&self, _: usize) -> Result<Vec<DeadEvent>, OutboxError> {
        Ok(Vec::new())
    }

    async fn replay(&self, _: Uuid, _: Destination) -> Result<bool, OutboxError> {
        Ok(false)
    }

    async fn drop_dead(&self, _: Uuid, _: Destination) -> Result<bool, OutboxError> {
        Ok(false)
    }

    async fn prune(&self, _: Duration) -> Result<u64, OutboxError> {
        Ok(0)
    }
}
