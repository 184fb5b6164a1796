//! A shard as far as jobs go: its workers over the embedded adapters, on a thread and a runtime of its own, and a network
//! that does nothing.

use std::{path::Path, sync::Arc, thread::JoinHandle, time::Duration};

use async_trait::async_trait;
use shard::{
    clock::SystemClock,
    directory::{ChannelSpec, DirectoryError, Handler},
    dispatch::{Availability, Channels, Context, QueueWorker, Ready, WorkerOptions},
    identity::{ChannelId, QueueBase, ShardId},
    job::Job,
    metrics::Metrics,
    platform::{Closed, Done, Failed, Inbox, Platform, PlatformKind, Sender},
    progress::Progress,
    queue::{EmbeddedQueue, Limits, RetryPolicy},
    registry::{EmbeddedRegistry, Fence, Holder},
    sink::outbox::EmbeddedOutbox,
    standing::Standing,
    store::{BoxStore, SlotStore},
};
use tokio_util::sync::CancellationToken;

use super::Failure;

/// A network that takes everything at once.
struct Nothing;

#[async_trait]
impl Platform for Nothing {
    fn kind(&self) -> PlatformKind {
        PlatformKind::Telegram
    }

    fn provider_id(&self, _: &Job) -> Option<String> {
        None
    }

    fn sender(&self, _: &Arc<ChannelSpec>) -> Option<Arc<dyn Sender>> {
        Some(Arc::new(Self))
    }

    async fn receive(&self, _: Arc<ChannelSpec>, _: Arc<dyn Inbox>, stop: CancellationToken) -> Closed {
        stop.cancelled().await;
        Closed::Asked
    }
}

#[async_trait]
impl Sender for Nothing {
    async fn perform(&self, job: &Job, _: Option<&str>) -> Result<Done, Failed> {
        Ok(Done { provider_id: Some(job.id.to_string()), result: None })
    }
}

/// All channels are up.
struct AllUp;

#[async_trait]
impl Channels for AllUp {
    fn availability(&self, channel: ChannelId) -> Availability {
        let spec = Arc::new(ChannelSpec {
            id: channel,
            platform: PlatformKind::Telegram,
            token: None,
            handler: Handler::None,
            enabled: true,
            label: None,
        });
        let fence = Fence { channel, token: 1 };
        Availability::Ready(Ready { spec, fence, platform: Arc::new(Nothing), sender: Arc::new(Nothing) })
    }

    async fn changed(&self) {
        std::future::pending().await
    }

    async fn connect(&self, _: ChannelId) -> Result<bool, DirectoryError> {
        Ok(true)
    }

    async fn disconnect(&self, _: ChannelId, _: bool) -> Result<bool, DirectoryError> {
        Ok(true)
    }
}

/// A shard that runs.
pub(super) struct Running {
    stop: CancellationToken,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Running {
    pub(super) fn stop(self) -> Result<(), Failure> {
        self.stop.cancel();
        self.thread.join().map_err(|_| "a shard panicked")?
    }
}

/// Starts a shard.
pub(super) fn start(dir: &Path, shard: ShardId, prefetch: u16) -> Running {
    let (dir, stop) = (dir.to_owned(), CancellationToken::new());
    let stops = stop.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work(&dir, shard, prefetch, stops))
    });
    Running { stop, thread }
}

async fn work(dir: &Path, shard: ShardId, prefetch: u16, stop: CancellationToken) -> Result<(), Failure> {
    let clock = Arc::new(SystemClock);
    let holder = Holder { worker: format!("bench-{}", shard.index), incarnation: 1 };
    let slot = SlotStore::open(dir, shard, &holder, clock.clone())?;
    let shared = BoxStore::open(dir, clock.clone())?;
    let context = Context {
        shard,
        holder,
        queue: Arc::new(EmbeddedQueue::new(slot.clone())),
        registry: Arc::new(EmbeddedRegistry::new(shared, Some(slot.clone()))),
        channels: Arc::new(AllUp),
        outbox: Arc::new(EmbeddedOutbox::new(slot)),
        on_stored: Arc::new(|_| {}),
        job_events_to: Vec::new(),
        retry: RetryPolicy::default(),
        patience: Duration::from_secs(30),
        grace: Duration::from_secs(10),
        clock,
        metrics: Arc::new(Metrics::default()),
        standing: Standing::default(),
    };
    let queue = shard.queue(QueueBase::Main);
    context.queue.declare(queue).await?;
    let options = WorkerOptions { prefetch, limits: Limits::default() };
    let stamp = Progress::default().register("consume", Duration::from_secs(5));
    QueueWorker::new(Arc::new(context), queue, options).run(stamp, stop).await;
    Ok(())
}
