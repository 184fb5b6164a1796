//! What is there whether or not a process runs: the data directory, the network, the channels, and what a producer and
//! an operator see.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shard::{
    clock::{Clock, SystemClock},
    event::{EventKind, JobDone, JobFailed},
    identity::{ChannelId, QueueBase, QueueName, ShardId},
    job::Job,
    queue::{Depth, EmbeddedQueue, Message, Queue},
    sink::{Outbox, outbox::EmbeddedOutbox},
    store::SlotStore,
};
use tempfile::TempDir;

use super::{
    channels::{Book, Standing},
    eventually,
    faults::Faults,
    journal::Journal,
    process::{Options, Process},
    wire::{Kind, Wire},
};

/// A clock for leases: whoever is dead is found out at once.
struct LeaseClock(AtomicU64);

impl Clock for LeaseClock {
    fn wall_ms(&self) -> i64 {
        SystemClock.wall_ms()
    }

    fn boottime(&self) -> Duration {
        SystemClock.boottime() + Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// A dead letter as an operator sees it.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) queue: QueueName,
    pub(crate) number: u64,
    pub(crate) message: Message,
}

impl Letter {
    /// The word of the closed list.
    pub(crate) fn reason(&self) -> String {
        let reason = self.message.headers.reason.clone().unwrap_or_default();
        reason.split_once(':').map_or(reason.clone(), |(word, _)| word.to_owned())
    }

    /// The id of the job that it is.
    pub(crate) fn job(&self) -> Option<String> {
        Job::parse(&self.message.body).ok().map(|job| job.id.to_string())
    }
}

/// The world.
pub(crate) struct World {
    dir: TempDir,
    pub(crate) wire: Arc<Wire>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) journal: Arc<Journal>,
    pub(super) book: Arc<Book>,
    producer: Arc<dyn Queue>,
    #[cfg(feature = "amqp")]
    broker: Option<super::broker::Broker>,
    leases: Arc<LeaseClock>,
    incarnations: AtomicU64,
    published: Mutex<Vec<Job>>,
}

impl World {
    /// An empty one.
    pub(crate) fn new(kind: Kind) -> Arc<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let producer = Arc::new(EmbeddedQueue::producer(dir.path()));
        Self::over(
            dir,
            kind,
            producer,
            #[cfg(feature = "amqp")]
            None,
        )
    }

    /// An empty one whose queues are RabbitMQ's. Whatever is told of waiting jobs leaves out those at work.
    #[cfg(feature = "amqp")]
    pub(crate) fn on_broker(kind: Kind) -> Arc<Self> {
        let broker = super::broker::Broker::fresh();
        Self::over(tempfile::tempdir().expect("a temporary directory"), kind, broker.queue(), Some(broker))
    }

    fn over(
        dir: TempDir,
        kind: Kind,
        producer: Arc<dyn Queue>,
        #[cfg(feature = "amqp")] broker: Option<super::broker::Broker>,
    ) -> Arc<Self> {
        Arc::new(Self {
            dir,
            wire: Wire::new(kind),
            faults: Arc::default(),
            journal: Arc::default(),
            book: Arc::default(),
            producer,
            #[cfg(feature = "amqp")]
            broker,
            leases: Arc::new(LeaseClock(AtomicU64::new(0))),
            incarnations: AtomicU64::new(0),
            published: Mutex::default(),
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The queues as one more process has them.
    pub(super) fn queue(&self, slot: &Arc<SlotStore>) -> Arc<dyn Queue> {
        #[cfg(feature = "amqp")]
        if let Some(broker) = &self.broker {
            return broker.queue();
        }
        Arc::new(EmbeddedQueue::new(slot.clone()))
    }

    pub(super) fn next_incarnation(&self) -> u64 {
        self.incarnations.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn lease_clock(&self) -> Arc<dyn Clock> {
        self.leases.clone()
    }

    /// The leases of whoever is dead by now have ended.
    pub(crate) fn leases_end(&self) {
        self.leases.0.fetch_add(11, Ordering::Relaxed);
    }

    /// Starts the next life of a slot.
    pub(crate) fn start(self: &Arc<Self>, index: u32, count: u32, options: Options) -> Process {
        Process::start(self, ShardId::new(index, count), options)
    }

    /// Starts all slots of a layout.
    pub(crate) fn start_all(self: &Arc<Self>, count: u32, options: Options) -> Vec<Process> {
        (0..count).map(|index| self.start(index, count, options)).collect()
    }

    pub(crate) fn starting(&self, channel: ChannelId) {
        self.book.set(channel, Standing::Starting);
    }

    pub(crate) fn ready(&self, channel: ChannelId) {
        self.book.set(channel, Standing::Ready);
    }

    pub(crate) fn disabled(&self, channel: ChannelId) {
        self.book.set(channel, Standing::Disabled);
    }

    pub(crate) fn unknown(&self, channel: ChannelId) {
        self.book.set(channel, Standing::Unknown);
    }

    /// Every channel's lease goes, and comes back to the same process.
    pub(crate) fn leases_renewed(&self) {
        self.book.claims.fetch_add(1, Ordering::Relaxed);
    }

    /// Connects and disconnects so far, in order.
    pub(crate) fn controls(&self) -> Vec<(ChannelId, bool)> {
        self.book.controls.lock().expect("controls").clone()
    }

    /// Declares the queues of a layout, as whoever runs first does.
    pub(crate) async fn declare(&self, count: u32) {
        for index in 0..count {
            for base in QueueBase::ALL {
                self.producer.declare(QueueName::of(base, index, count)).await.expect("declared");
            }
        }
    }

    /// Publishes whatever to a queue.
    pub(crate) async fn publish(&self, queue: QueueName, body: impl Into<bytes::Bytes>) {
        self.producer.publish(queue, Message::new(body)).await.expect("published");
    }

    /// Publishes a job where a producer that believes in `count` shards would.
    pub(crate) async fn submit(&self, count: u32, job: &Job) {
        let queue = ShardId::new(0, count).queue_for_channel(job.base(), job.channel);
        self.submit_to(queue, job).await;
    }

    /// Publishes a job to whatever queue.
    pub(crate) async fn submit_to(&self, queue: QueueName, job: &Job) {
        self.journal.note(format!("published {} to {queue}", job.id));
        self.published.lock().expect("published").push(job.clone());
        self.publish(queue, job.to_json()).await;
    }

    /// What was published, in order.
    pub(crate) fn published(&self) -> Vec<Job> {
        self.published.lock().expect("published").clone()
    }

    /// What waits in a queue.
    pub(crate) async fn depth(&self, queue: QueueName) -> Depth {
        self.producer.depth(queue).await.expect("depth")
    }

    /// What waits anywhere.
    async fn all(&self) -> Depth {
        let mut all = Depth::default();
        for queue in self.producer.existing().await.expect("queues") {
            let depth = self.depth(queue).await;
            all.ready += depth.ready;
            all.parked += depth.parked;
            all.dead += depth.dead;
        }
        all
    }

    /// Jobs that wait anywhere, parked ones included.
    pub(crate) async fn left(&self) -> u64 {
        let all = self.all().await;
        all.ready + all.parked
    }

    /// Jobs that are parked anywhere.
    pub(crate) async fn parked(&self) -> u64 {
        self.all().await.parked
    }

    /// How often the one parked job of the bare queues was tried, as it is stored with it.
    pub(crate) fn stored_attempts(&self) -> Option<u64> {
        let file = rusqlite::Connection::open(self.dir.path().join("queue.db")).expect("the queue's file");
        let headers: Option<String> = file.query_row("SELECT headers FROM parked", [], |row| row.get(0)).ok()?;
        serde_json::from_str::<serde_json::Value>(&headers?).expect("headers")["attempts"].as_u64()
    }

    /// Waits until nothing waits anywhere.
    pub(crate) async fn empties(&self) {
        eventually("empty queues", async || self.left().await == 0).await;
    }

    /// All dead letters, whatever queue they are of.
    pub(crate) async fn dead(&self) -> Vec<Letter> {
        let mut letters = Vec::new();
        for queue in self.producer.existing().await.expect("queues") {
            let dead = self.producer.dead(queue, 0, 100_000).await.expect("dead letters");
            letters.extend(dead.into_iter().map(|dead| Letter { queue, number: dead.number, message: dead.message }));
        }
        letters
    }

    /// The dead letter of a job.
    pub(crate) async fn dead_letter(&self, job: &str) -> Option<Letter> {
        self.dead().await.into_iter().find(|letter| letter.job().as_deref() == Some(job))
    }

    /// An operator replays a dead letter.
    pub(crate) async fn replay(&self, letter: &Letter, to: QueueName) -> bool {
        self.producer.replay(letter.queue, letter.number, to).await.expect("replayed")
    }

    /// What events tell of jobs, over all slots that ever were.
    pub(crate) async fn told(&self) -> Told {
        let mut told = Told::default();
        for index in [None, Some(0), Some(1), Some(2)] {
            let Ok(outbox) = EmbeddedOutbox::visit(self.dir(), index, Arc::new(SystemClock)).await else { continue };
            for stored in outbox.open(0, 1_000_000).await.expect("events") {
                match stored.event.kind {
                    EventKind::JobDone(done) => told.done.push(done),
                    EventKind::JobFailed(failed) => told.failed.push(failed),
                    _ => {}
                }
            }
        }
        told
    }

    /// The slots' files, as an auditor reads them.
    fn files(&self) -> impl Iterator<Item = (String, rusqlite::Connection)> {
        let files = std::fs::read_dir(self.dir()).expect("the data directory").flatten();
        let is_slot = |name: &String| name.starts_with("queue") && name.ends_with(".db");
        let slots = files.map(|file| file.file_name().to_string_lossy().into_owned()).filter(is_slot);
        let opened = slots.map(|name| {
            let file = rusqlite::Connection::open(self.dir().join(&name)).expect("a store");
            (name, file)
        });
        // One may be there and not be set up yet.
        opened.filter(|(_, file)| {
            file.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).expect("read") > 0
        })
    }

    /// Whether a doubt about a job's send was ever stored.
    pub(crate) fn was_uncertain(&self, job: &str) -> bool {
        let sql = "SELECT 1 FROM guard WHERE job = ?1 AND uncertain_ms IS NOT NULL";
        self.files().any(|(_, file)| file.prepare(sql).expect("a guard").exists([job]).expect("read"))
    }

    /// How many lanes of a layout wait, as far as is stored.
    pub(crate) fn facts(&self, count: u32) -> u64 {
        let facts = |file: rusqlite::Connection| -> i64 {
            file.query_row("SELECT count(*) FROM lanes", [], |row| row.get(0)).expect("read")
        };
        let ours = |name: &str| (0..count).any(|index| name == file_of(index, count));
        self.files().filter(|(name, _)| ours(name)).map(|(_, file)| facts(file)).sum::<i64>() as u64
    }

    /// Whether every job lies in a file of the shard that owns it.
    pub(crate) fn is_migrated(&self, count: u32) -> bool {
        self.files().all(|(name, file)| {
            let sql = "SELECT body FROM jobs UNION ALL SELECT body FROM parked";
            let mut statement = file.prepare(sql).expect("jobs");
            let bodies = statement.query_map([], |row| row.get::<_, Vec<u8>>(0)).expect("read");
            let jobs = bodies.filter_map(|body| Job::parse(&body.expect("read")).ok());
            jobs.map(|job| shard::identity::shard_for_channel(job.channel, count))
                .all(|index| name == file_of(index, count))
        })
    }
}

/// The file of a slot.
fn file_of(index: u32, count: u32) -> String {
    if count > 1 { format!("queue-{index}.db") } else { "queue.db".to_owned() }
}

/// Events about jobs.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) done: Vec<JobDone>,
    pub(crate) failed: Vec<JobFailed>,
}

impl Told {
    pub(crate) fn done(&self, job: &str) -> Vec<&JobDone> {
        self.done.iter().filter(|done| done.job_id == job).collect()
    }

    pub(crate) fn failed(&self, job: &str) -> Vec<&JobFailed> {
        self.failed.iter().filter(|failed| failed.job_id == job).collect()
    }
}
