//! The queues of the broker: making them, finding them, counting what waits in them.
//!
//! Beside each work queue lie `<queue>.straggler`, `<queue>.parked` and `<queue>.dead`. What is consumed has a single active
//! consumer, so that a predecessor that is not gone yet and its successor are never both given jobs, and it dead-letters into
//! `<queue>.dead`, so that what a broker would drop by a limit of its own ends there too.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use lapin::{
    Channel,
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};
use tokio::time::Instant;

use super::{
    super::QueueError,
    config::{AmqpConfig, DeclareMode, QueueType},
    error::{Cause, answered},
    link::{Link, Live},
};
use crate::identity::{QueueBase, QueueName};

/// After how long queues of other layouts are looked for again where there were none.
const PROBE_AGAIN: Duration = Duration::from_secs(300);
/// Probes at a time.
const PROBES: usize = 8;
const DELIVERY_LIMIT: &str = "x-delivery-limit";
/// As good as none. RabbitMQ 4 has a limit of 20 unless told otherwise and takes -1 for none, which older ones take for a
/// limit that the first redelivery is beyond.
const UNLIMITED: i64 = 1_000_000_000;

/// What is known of the broker's queues.
pub(super) struct Topology {
    link: Arc<Link>,
    config: Arc<AmqpConfig>,
    /// Made or seen on the connection in force.
    declared: Mutex<(Weak<Live>, HashSet<QueueName>)>,
    found: Mutex<Option<(Instant, HashSet<QueueName>)>>,
    /// The queues were made without a limit of deliveries, by somebody else or by an older broker.
    no_limit: AtomicBool,
}

/// Which queue of the four.
#[derive(Clone, Copy)]
enum Part {
    Work,
    Straggler,
    Parked,
    Dead,
}

/// Messages that are ready, queue by queue.
pub(super) struct Ready {
    pub(super) work: u64,
    pub(super) stragglers: u64,
    pub(super) parked: u64,
    pub(super) dead: u64,
}

impl Topology {
    pub(super) fn new(link: Arc<Link>, config: Arc<AmqpConfig>) -> Self {
        Self { link, config, declared: Mutex::default(), found: Mutex::default(), no_limit: AtomicBool::new(false) }
    }

    /// Makes a queue and its companions, or looks whether they are there.
    pub(super) async fn declare(&self, queue: QueueName) -> Result<(), QueueError> {
        let live = self.link.live().await.map_err(|cause| cause.of(queue))?;
        if self.is_declared(&live, queue) {
            return Ok(());
        }
        self.make(&live, queue, Part::Dead, queue.dead()).await.map_err(|cause| cause.of(queue.dead()))?;
        // Side by side, since a shard that was killed waits for these before it works again, and a busy broker takes its time.
        let make = async |part, name: String| {
            let made = self.make(&live, queue, part, name.clone()).await;
            made.map_err(|cause| cause.of(name))
        };
        tokio::try_join!(
            make(Part::Parked, queue.parked()),
            make(Part::Straggler, queue.straggler()),
            make(Part::Work, queue.to_string()),
        )?;
        let mut declared = self.declared.lock().expect("declared");
        if declared.0.as_ptr() != Arc::as_ptr(&live) {
            *declared = (Arc::downgrade(&live), HashSet::new());
        }
        declared.1.insert(queue);
        Ok(())
    }

    fn is_declared(&self, live: &Arc<Live>, queue: QueueName) -> bool {
        let declared = self.declared.lock().expect("declared");
        declared.0.as_ptr() == Arc::as_ptr(live) && declared.1.contains(&queue)
    }

    /// Somebody has deleted it.
    pub(super) fn forget(&self, queue: QueueName) {
        self.declared.lock().expect("declared").1.remove(&queue);
    }

    async fn make(&self, live: &Live, queue: QueueName, part: Part, name: String) -> Result<(), Cause> {
        if matches!(part, Part::Work) && self.config.declare == DeclareMode::Passive {
            return look(live, &self.config, &name).await.map(drop);
        }
        loop {
            let unlimited = !self.no_limit.load(Ordering::Relaxed);
            let channel = live.channel().await?;
            let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            let arguments = self.arguments(queue, part, unlimited);
            let made = channel.queue_declare(name.as_str().into(), options, arguments);
            match answered(self.config.answer_timeout, made).await {
                Ok(_) => {
                    let _ = channel.close(200, "".into()).await;
                    return Ok(());
                }
                Err(Cause::Refused(text)) if unlimited && text.contains(DELIVERY_LIMIT) => {
                    self.no_limit.store(true, Ordering::Relaxed);
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn arguments(&self, queue: QueueName, part: Part, unlimited: bool) -> FieldTable {
        let text = |text: &str| AMQPValue::LongString(text.into());
        let quorum = self.config.queue_type == QueueType::Quorum;
        let mut table = FieldTable::default();
        table.insert("x-queue-type".into(), text(if quorum { "quorum" } else { "classic" }));
        if quorum && unlimited {
            // Attempts are counted by us; the broker also counts the deaths of neighbours and what is handed back.
            table.insert(DELIVERY_LIMIT.into(), AMQPValue::LongLongInt(UNLIMITED));
        }
        if matches!(part, Part::Work | Part::Straggler) {
            table.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
            table.insert("x-dead-letter-exchange".into(), text(""));
            table.insert("x-dead-letter-routing-key".into(), text(&queue.dead()));
            if quorum {
                table.insert("x-dead-letter-strategy".into(), text("at-least-once"));
                table.insert("x-overflow".into(), text("reject-publish"));
            }
        }
        table
    }

    /// What is ready in a queue and beside it, as a process sees it that holds nothing of it.
    pub(super) async fn ready(&self, queue: QueueName) -> Result<Ready, QueueError> {
        let live = self.link.live().await.map_err(|cause| cause.of(queue))?;
        let work = look(&live, &self.config, &queue.to_string()).await.map_err(|cause| cause.of(queue))?;
        let mut beside = [0; 3];
        for (count, name) in beside.iter_mut().zip([queue.straggler(), queue.parked(), queue.dead()]) {
            *count = match look(&live, &self.config, &name).await {
                Ok(count) => count,
                Err(Cause::Missing) => 0,
                Err(cause) => return Err(cause.of(name)),
            };
        }
        let [stragglers, parked, dead] = beside;
        Ok(Ready { work, stragglers, parked, dead })
    }

    /// The queues of ours that exist: those found before are looked at again, and from time to time all that there could be.
    pub(super) async fn existing(&self) -> Result<Vec<QueueName>, QueueError> {
        let all = "whatsapp*";
        let live = self.link.live().await.map_err(|cause| cause.of(all))?;
        let known = self.found.lock().expect("found").clone();
        let recent = known.filter(|(at, _)| at.elapsed() < PROBE_AGAIN);
        let (at, candidates) = match recent {
            Some((at, found)) => {
                let declared = self.declared.lock().expect("declared").1.clone();
                (at, found.union(&declared).copied().collect())
            }
            None => (Instant::now(), self.candidates()),
        };
        let found = self.probe(&live, candidates).await.map_err(|cause| cause.of(all))?;
        *self.found.lock().expect("found") = Some((at, found.iter().copied().collect()));
        Ok(found)
    }

    fn candidates(&self) -> Vec<QueueName> {
        let names = |base| {
            let indexed = (0..self.config.probe_to).map(move |index| QueueName { base, index: Some(index) });
            std::iter::once(QueueName::bare(base)).chain(indexed)
        };
        QueueBase::ALL.into_iter().flat_map(names).collect()
    }

    async fn probe(&self, live: &Arc<Live>, candidates: Vec<QueueName>) -> Result<Vec<QueueName>, Cause> {
        let probes = candidates.into_iter().map(|queue| async move {
            match look(live, &self.config, &queue.to_string()).await {
                Ok(_) => Ok(Some(queue)),
                Err(Cause::Missing) => Ok(None),
                Err(cause) => Err(cause),
            }
        });
        let mut probes = stream::iter(probes).buffered(PROBES);
        let mut found = Vec::new();
        while let Some(probe) = probes.next().await {
            found.extend(probe?);
        }
        Ok(found)
    }
}

/// How many messages of a queue are ready, on a channel of its own: a queue that is missing takes the channel with it.
pub(super) async fn look(live: &Live, config: &AmqpConfig, queue: &str) -> Result<u64, Cause> {
    let channel = live.channel().await?;
    let (ready, _) = count(&channel, config, queue).await?;
    let _ = channel.close(200, "".into()).await;
    Ok(ready)
}

/// How many messages of a queue are ready, and how many consumers it has. (Of a quorum queue with a single active consumer
/// the broker counts that one alone, which is why parked queues have none.)
pub(super) async fn count(channel: &Channel, config: &AmqpConfig, queue: &str) -> Result<(u64, u32), Cause> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let declared = channel.queue_declare(queue.into(), options, FieldTable::default());
    let queue = answered(config.answer_timeout, declared).await?;
    Ok((queue.message_count().into(), queue.consumer_count()))
}
