//! A process: a runtime on a thread of its own, over the same data directory as those before it. Killing it drops the
//! runtime in the middle of whatever it does.

use std::{
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use shard::{
    clock::SystemClock,
    dispatch::{Context, QueueWorker, Stragglers, WorkerOptions},
    identity::{QueueBase, ShardId},
    metrics::Metrics,
    progress::Progress,
    queue::{EmbeddedQueue, Limits, RetryPolicy},
    registry::{EmbeddedRegistry, Holder, Registry, Resource},
    sink::{Destination, outbox::EmbeddedOutbox},
    store::{BoxStore, SlotStore},
};
use tokio_util::sync::CancellationToken;

use super::{SOON, channels::TestChannels, faulty::Faulty, wire::TestPlatform, world::World};

/// How a process works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) prefetch: u16,
    pub(crate) limits: Limits,
    /// Jobs of the media and avatar queues at work at a time.
    pub(crate) running_beside: usize,
    pub(crate) retry: RetryPolicy,
    pub(crate) patience: Duration,
    pub(crate) grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let millis = Duration::from_millis;
        Self {
            prefetch: 20,
            limits: Limits::default(),
            running_beside: 16,
            retry: RetryPolicy { attempts: 4, first: millis(20), factor: 2.0, cap: millis(200), jitter: 0.2 },
            patience: Duration::from_secs(20),
            grace: Duration::from_secs(5),
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Crashed,
    Stopped,
}

/// One life of a slot.
pub(crate) struct Process {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) progress: Progress,
    crash: CancellationToken,
    stop: CancellationToken,
    thread: Option<JoinHandle<Ended>>,
}

impl Process {
    /// Starts the slot's next life.
    pub(crate) fn start(world: &Arc<World>, shard: ShardId, options: Options) -> Self {
        let (metrics, progress) = (Arc::new(Metrics::default()), Progress::default());
        let (crash, stop) = (CancellationToken::new(), CancellationToken::new());
        let life = Life {
            world: world.clone(),
            shard,
            options,
            metrics: metrics.clone(),
            progress: progress.clone(),
            crash: crash.clone(),
            stop: stop.clone(),
        };
        let name = format!("shard-{}-of-{}", shard.index, shard.count);
        let thread = std::thread::Builder::new().name(name).spawn(move || life.live()).expect("a thread");
        Self { metrics, progress, crash, stop, thread: Some(thread) }
    }

    /// Kills it, and waits until nothing of it is left.
    pub(crate) fn kill(mut self) -> Ended {
        self.crash.cancel();
        self.join()
    }

    /// Asks it to stop.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(mut self) -> Ended {
        self.stop.cancel();
        self.join()
    }

    /// Ends it, in the one way or the other, should it not have ended by itself.
    pub(crate) fn end(&mut self, gracefully: bool) {
        if gracefully {
            self.stop.cancel()
        } else {
            self.crash.cancel()
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the process itself did not panic");
        }
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ends(mut self) -> Ended {
        let deadline = Instant::now() + SOON;
        while !self.has_ended() {
            assert!(Instant::now() < deadline, "the process does not end");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.join()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) -> Ended {
        self.thread.take().expect("ended once").join().expect("the process itself did not panic")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.crash.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Life {
    world: Arc<World>,
    shard: ShardId,
    options: Options,
    metrics: Arc<Metrics>,
    progress: Progress,
    crash: CancellationToken,
    stop: CancellationToken,
}

impl Life {
    fn live(self) -> Ended {
        self.world.journal.note("begins a life");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let ended = runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.crash.cancelled() => Ended::Crashed,
                () = self.work() => Ended::Stopped,
            }
        });
        drop(runtime);
        self.world.journal.note(format!("its life ends: {ended:?}"));
        ended
    }

    async fn work(&self) {
        let Self { world, shard, options, crash, .. } = self;
        let incarnation = world.next_incarnation();
        let worker = if shard.count > 1 { format!("box-{}", shard.index) } else { "box".to_owned() };
        let holder = Holder { worker, incarnation };
        let slot = SlotStore::open(world.dir(), *shard, &holder, Arc::new(SystemClock)).expect("the slot's file");
        slot.import_foreign().await.expect("imported");
        let shared = BoxStore::open(world.dir(), world.lease_clock()).expect("the box's file");
        let registry = Arc::new(EmbeddedRegistry::new(shared, Some(slot.clone())));
        registry.publish_layout(shard.count).await.expect("published");
        registry.claim(&holder, &[Resource::Slot(shard.index)], true).await.expect("claimed");
        let faults = &world.faults;
        let platform =
            Arc::new(TestPlatform { wire: world.wire.clone(), journal: world.journal.clone(), crash: crash.clone() });
        let context = Arc::new(Context {
            standing: shard::standing::Standing::default(),
            shard: *shard,
            holder,
            queue: Arc::new(Faulty {
                port: world.queue(&slot),
                faults: faults.clone(),
                journal: world.journal.clone(),
                crash: crash.clone(),
            }),
            registry: Arc::new(Faulty {
                port: registry,
                faults: faults.clone(),
                journal: world.journal.clone(),
                crash: crash.clone(),
            }),
            channels: Arc::new(TestChannels {
                book: world.book.clone(),
                shard: *shard,
                platform,
                token: incarnation * 1000,
            }),
            outbox: Arc::new(Faulty {
                port: Arc::new(EmbeddedOutbox::new(slot)),
                faults: faults.clone(),
                journal: world.journal.clone(),
                crash: crash.clone(),
            }),
            on_stored: Arc::new(|_| {}),
            job_events_to: vec![Destination::Endpoint],
            retry: options.retry,
            patience: options.patience,
            grace: options.grace,
            clock: Arc::new(SystemClock),
            metrics: self.metrics.clone(),
        });
        let mut work = tokio::task::JoinSet::new();
        for base in QueueBase::ALL {
            let queue = shard.queue(base);
            context.queue.declare(queue).await.expect("declared");
            let running = if base == QueueBase::Main { options.limits.running } else { options.running_beside };
            let limits = Limits { running, ..options.limits };
            let worker = QueueWorker::new(context.clone(), queue, WorkerOptions { prefetch: options.prefetch, limits });
            let stamp = self.progress.register("consume", Duration::from_secs(5));
            work.spawn(worker.run(stamp, self.stop.clone()));
        }
        if shard.index == 0 {
            let stamp = self.progress.register("stragglers", Duration::from_secs(30));
            work.spawn(
                Stragglers::new(context.clone(), 1, [0; 3], CancellationToken::new()).run(stamp, self.stop.clone()),
            );
        }
        while let Some(ended) = work.join_next().await {
            ended.expect("no loop panics");
        }
    }
}
