//! Delivery against real HTTP servers on loopback, over an outbox in memory.

mod agents;
mod embedded;
mod endpoint;
mod outbox;
mod running;
mod secrecy;
mod server;

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;

use self::{outbox::MemoryOutbox, server::Server};
use super::*;
use crate::{
    clock::SystemClock,
    event::{Author, Event, EventKind, JobDone, Message},
    job::Job,
    platform::PlatformKind,
    registry::Fence,
    secret::Secret,
    sink::{Batch, Destination, HandlerSettings, ReplyError},
};

/// Everything around a delivery, to be started over it again and again.
struct Rig {
    outbox: Arc<MemoryOutbox>,
    handlers: Arc<Settings>,
    replies: Arc<Posted>,
    metrics: Arc<Metrics>,
    config: DeliveryConfig,
}

/// Handlers as they are set.
#[derive(Default)]
struct Settings(Mutex<HashMap<ChannelId, HandlerSettings>>);

impl Handlers for Settings {
    fn handler(&self, channel: ChannelId) -> Option<HandlerSettings> {
        self.0.lock().expect("settings").get(&channel).cloned()
    }
}

/// Jobs as they were handed over.
#[derive(Default)]
struct Posted {
    jobs: Mutex<Vec<Job>>,
    /// How many of the next calls fail, and how many panic.
    failing: AtomicUsize,
    panicking: AtomicUsize,
    /// What was already marked as delivered at each call.
    outbox: Mutex<Option<Arc<MemoryOutbox>>>,
    marked_before: Mutex<Vec<usize>>,
}

fn used_up(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err()
}

#[async_trait]
impl Replies for Posted {
    async fn reply(&self, jobs: Vec<Job>) -> Result<(), ReplyError> {
        assert!(used_up(&self.panicking), "asked to panic");
        if !used_up(&self.failing) {
            return Err(ReplyError("the store is locked".into()));
        }
        if let Some(outbox) = &*self.outbox.lock().expect("outbox") {
            self.marked_before.lock().expect("marks").push(outbox.delivered_count());
        }
        self.jobs.lock().expect("jobs").extend(jobs);
        Ok(())
    }
}

impl Posted {
    fn ids(&self) -> Vec<String> {
        self.jobs.lock().expect("jobs").iter().map(|job| job.id.to_string()).collect()
    }
}

fn channel(n: u128) -> ChannelId {
    ChannelId::from_uuid(uuid::Uuid::from_u128(n << 96 | n))
}

fn text(of: u128, chat: &str, text: &str) -> Event {
    let from = Some(Author { id: "1".into(), ..Author::default() });
    let message =
        Message { message_id: text.into(), chat_id: chat.into(), from, text: Some(text.into()), ..Message::default() };
    let kind = EventKind::MessageReceived(message);
    Event::new(channel(of), PlatformKind::Telegram, Some(chat.into()), Timestamp::UNIX_EPOCH, text, kind)
}

fn job_done(of: u128, id: &str) -> Event {
    let kind = EventKind::JobDone(JobDone { job_id: id.into(), name: "send".into(), ..JobDone::default() });
    Event::new(channel(of), PlatformKind::Telegram, None, Timestamp::UNIX_EPOCH, id, kind)
}

/// Retries that a test can wait for.
fn quick() -> Backoff {
    Backoff { first: Duration::from_millis(10), cap: Duration::from_millis(40), ..Backoff::default() }
}

impl Rig {
    fn new() -> Self {
        let outbox = Arc::new(MemoryOutbox::default());
        Self {
            outbox,
            handlers: Arc::default(),
            replies: Arc::default(),
            metrics: Arc::default(),
            config: DeliveryConfig { backoff: quick(), ..DeliveryConfig::default() },
        }
    }

    fn endpoint(mut self, url: &str) -> Self {
        self.config.endpoint =
            Some(Target::new(url, vec![Secret::new("whsec_new"), Secret::new("whsec_old")]).expect("URL"));
        self
    }

    fn handler(self, of: u128, settings: HandlerSettings) -> Self {
        self.handlers.0.lock().expect("settings").insert(channel(of), settings);
        self
    }

    fn delivery(&self) -> Delivery {
        Delivery {
            config: self.config.clone(),
            outbox: self.outbox.clone(),
            handlers: self.handlers.clone(),
            replies: self.replies.clone(),
            metrics: self.metrics.clone(),
            clock: Arc::new(SystemClock),
        }
    }

    fn start(&self) -> DeliveryHandle {
        self.delivery().start(&Progress::default()).expect("started")
    }

    /// As a channel's inbox does it.
    async fn store(&self, delivery: &DeliveryHandle, events: Vec<Event>, to: &[Destination]) {
        let fence = Fence { channel: events[0].channel_id, token: 1 };
        let stored = self.outbox.append(Batch { fence, events, offset: None }, to).await.expect("stored");
        delivery.on_stored(stored);
    }

    async fn drained(&self) {
        until("the outbox is empty", || self.outbox.open_count() == 0).await;
    }

    fn count(&self, destination: Destination, outcome: &str) -> u64 {
        self.metrics.deliveries.with_label_values(&[destination.as_str(), outcome]).get()
    }
}

/// Waits for a condition, or fails naming it.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    in_time(what, waited).await;
}

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}
