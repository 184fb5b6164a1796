//! Our own ports, held in memory, for the unit tests of this module: a registry, a directory, an outbox that can be
//! taken away, and a network whose connections do as a test says.

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
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Roster, RosterConfig, RosterPorts};
use crate::{
    clock::Clock,
    directory::{ChannelSpec, Directory, DirectoryError, Handler},
    event::{Event, EventKind},
    identity::{ChannelId, QueueName, ShardId},
    job::{Job, JobId, Lane},
    metrics::Metrics,
    platform::{Closed, Done, Failed, Inbox, Platform, PlatformKind, Sender},
    progress::Progress,
    registry::{
        Claim, Fence, Holder, LEASE, LaneFact, Layout, Lease, Registry, RegistryError, Renewal, Reservation, Reserve,
        Resource, Sent,
    },
    secret::Secret,
    sink::{Batch, DeadEvent, Destination, Outbox, OutboxError, Stored},
};

pub(super) fn id(n: u32) -> ChannelId {
    ChannelId::from_uuid(Uuid::from_u128(u128::from(n) << 96 | 1))
}

pub(super) fn spec(n: u32) -> Arc<ChannelSpec> {
    Arc::new(ChannelSpec {
        id: id(n),
        platform: PlatformKind::Telegram,
        token: Some(Secret::new(format!("{n}:token"))),
        handler: Handler::Echo,
        enabled: true,
        label: None,
    })
}

/// Tokio's (paused) clock as the time since boot; it can also jump, as on a suspended machine.
pub(super) struct TestClock {
    began: Instant,
    asleep_ms: AtomicU64,
}

impl TestClock {
    pub(super) fn suspend(&self, by: Duration) {
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
pub(super) struct TestRegistry {
    clock: Arc<TestClock>,
    pub(super) away: AtomicBool,
    pub(super) leases: Mutex<BTreeMap<Resource, (Holder, u64, Duration)>>,
    tokens: AtomicU64,
}

impl TestRegistry {
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
    pub(super) fn rob(&self, channel: ChannelId) {
        let thief = Holder { worker: "thief".into(), incarnation: 1 };
        self.grant(&thief, Resource::Channel(channel));
    }

    pub(super) fn holder(&self, channel: ChannelId) -> Option<String> {
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
}

/// A directory in memory.
#[derive(Default)]
pub(super) struct TestDirectory {
    pub(super) specs: Mutex<Vec<Arc<ChannelSpec>>>,
    pub(super) away: AtomicBool,
    pub(super) asked: AtomicUsize,
    changed: Notify,
}

impl TestDirectory {
    pub(super) fn set(&self, specs: impl IntoIterator<Item = Arc<ChannelSpec>>) {
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
        Ok(self.specs.lock().unwrap().clone())
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
pub(super) struct TestOutbox {
    pub(super) stored: Mutex<Vec<(Event, Vec<Destination>)>>,
    pub(super) offsets: Mutex<HashMap<ChannelId, i64>>,
    pub(super) appends: AtomicUsize,
    pub(super) away: AtomicBool,
    pub(super) fenced: AtomicBool,
}

impl TestOutbox {
    /// The states that a channel told, in order.
    pub(super) fn told(&self, channel: ChannelId) -> Vec<String> {
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
        self.appends.fetch_add(1, Ordering::SeqCst);
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

/// What a connection of the test network does.
#[derive(Debug, Clone)]
pub(super) enum Script {
    /// Logs in and stays until it is asked to end.
    Stay,
    /// Logs in, lasts so long, ends so.
    Last(Duration, Closed),
    /// Ends before it is up.
    Refuse(Closed),
    /// Logs in, then panics.
    Panic,
    /// Logs in, and does not listen when asked to end.
    Deaf,
}

/// A network whose connections follow a script, one line a login; the last line repeats. It counts.
pub(super) struct TestPlatform {
    pub(super) scripts: Mutex<HashMap<ChannelId, Vec<Script>>>,
    pub(super) login: Mutex<Duration>,
    /// Each login: whose, when, with which token.
    pub(super) logins: Mutex<Vec<(ChannelId, Instant, String)>>,
    pub(super) dialing: AtomicUsize,
    pub(super) most_dialing: AtomicUsize,
    pub(super) open: Mutex<BTreeMap<ChannelId, usize>>,
    pub(super) inboxes: Mutex<HashMap<ChannelId, Arc<dyn Inbox>>>,
}

struct OpenGuard<'a>(&'a TestPlatform, ChannelId);

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        *self.0.open.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

struct NoSender;

#[async_trait]
impl Sender for NoSender {
    async fn perform(&self, _: &Job, _: Option<&str>) -> Result<Done, Failed> {
        Ok(Done::default())
    }
}

impl TestPlatform {
    pub(super) fn logins_of(&self, channel: ChannelId) -> Vec<(Instant, String)> {
        let logins = self.logins.lock().unwrap();
        logins.iter().filter(|(of, ..)| *of == channel).map(|(_, at, token)| (*at, token.clone())).collect()
    }

    pub(super) fn open_now(&self) -> usize {
        self.open.lock().unwrap().values().sum()
    }
}

#[async_trait]
impl Platform for TestPlatform {
    fn kind(&self) -> PlatformKind {
        PlatformKind::Telegram
    }

    fn provider_id(&self, _: &Job) -> Option<String> {
        None
    }

    fn sender(&self, _: &Arc<ChannelSpec>) -> Option<Arc<dyn Sender>> {
        Some(Arc::new(NoSender))
    }

    async fn receive(&self, spec: Arc<ChannelSpec>, inbox: Arc<dyn Inbox>, stop: CancellationToken) -> Closed {
        let token = spec.token.as_ref().unwrap().expose().to_owned();
        self.logins.lock().unwrap().push((spec.id, Instant::now(), token));
        {
            let mut open = self.open.lock().unwrap();
            let count = open.entry(spec.id).or_default();
            *count += 1;
            assert_eq!(*count, 1, "two connections of one channel");
        }
        let _guard = OpenGuard(self, spec.id);
        let script = {
            let mut scripts = self.scripts.lock().unwrap();
            match scripts.get_mut(&spec.id) {
                Some(lines) if lines.len() > 1 => lines.remove(0),
                Some(lines) => lines[0].clone(),
                None => Script::Stay,
            }
        };
        let dialing = self.dialing.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_dialing.fetch_max(dialing, Ordering::SeqCst);
        let login = *self.login.lock().unwrap();
        tokio::select! {
            () = tokio::time::sleep(login) => {}
            () = stop.cancelled() => {
                self.dialing.fetch_sub(1, Ordering::SeqCst);
                return Closed::Asked;
            }
        }
        self.dialing.fetch_sub(1, Ordering::SeqCst);
        if let Script::Refuse(closed) = script {
            return closed;
        }
        if let Err(closed) = inbox.held() {
            return closed;
        }
        inbox.connected();
        self.inboxes.lock().unwrap().insert(spec.id, inbox);
        match script {
            Script::Panic => panic!("a bug in this channel's code"),
            Script::Last(time, closed) => tokio::select! {
                () = tokio::time::sleep(time) => closed,
                () = stop.cancelled() => Closed::Asked,
            },
            Script::Deaf => std::future::pending().await,
            Script::Stay | Script::Refuse(_) => {
                stop.cancelled().await;
                Closed::Asked
            }
        }
    }
}

/// All of it, wired to a roster.
pub(super) struct World {
    pub(super) clock: Arc<TestClock>,
    pub(super) registry: Arc<TestRegistry>,
    pub(super) directory: Arc<TestDirectory>,
    pub(super) outbox: Arc<TestOutbox>,
    pub(super) platform: Arc<TestPlatform>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) progress: Progress,
}

impl World {
    pub(super) fn new() -> Self {
        let clock = Arc::new(TestClock { began: Instant::now(), asleep_ms: AtomicU64::new(0) });
        let registry = TestRegistry {
            clock: clock.clone(),
            away: AtomicBool::new(false),
            leases: Mutex::default(),
            tokens: AtomicU64::new(0),
        };
        let platform = TestPlatform {
            scripts: Mutex::default(),
            login: Mutex::new(Duration::from_millis(200)),
            logins: Mutex::default(),
            dialing: AtomicUsize::new(0),
            most_dialing: AtomicUsize::new(0),
            open: Mutex::default(),
            inboxes: Mutex::default(),
        };
        Self {
            clock,
            registry: Arc::new(registry),
            directory: Arc::default(),
            outbox: Arc::default(),
            platform: Arc::new(platform),
            metrics: Arc::default(),
            progress: Progress::default(),
        }
    }

    pub(super) fn script(&self, n: u32, lines: impl IntoIterator<Item = Script>) {
        self.platform.scripts.lock().unwrap().insert(id(n), lines.into_iter().collect());
    }

    pub(super) fn config(&self) -> RosterConfig {
        let holder = Holder { worker: "w".into(), incarnation: 1 };
        RosterConfig { endpoint: true, ..RosterConfig::new(ShardId::new(0, 1), holder) }
    }

    pub(super) fn roster(&self, config: RosterConfig) -> Roster {
        let ports = RosterPorts {
            registry: self.registry.clone(),
            directory: self.directory.clone(),
            outbox: self.outbox.clone(),
            platforms: vec![self.platform.clone()],
            on_stored: Arc::new(|_| {}),
            on_changed: Arc::new(|_| {}),
            metrics: self.metrics.clone(),
            clock: self.clock.clone(),
            progress: self.progress.clone(),
        };
        Roster::new(config, ports)
    }
}
