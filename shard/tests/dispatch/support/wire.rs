//! A chat network in memory: it does what a test tells it to, and remembers each frame that its recipients got.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use shard::{
    directory::ChannelSpec,
    identity::ChannelId,
    job::Job,
    platform::{Closed, Done, Failed, Inbox, Platform, PlatformKind, Sender},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::journal::Journal;

/// Whether a client chooses the ids of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It does, and recipients show each id once (WhatsApp).
    Chosen,
    /// It doesn't (Telegram).
    Given,
}

/// What comes of one try.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// It works.
    Done,
    /// It works after a while.
    Slow(Duration),
    /// It works once the test lets it.
    Gate(Arc<Semaphore>),
    /// It comes to something else once the test lets it.
    GateThen(Arc<Semaphore>, Box<Act>),
    /// It fails, and nothing was shown.
    Fail(Failed),
    /// It can't be told whether it worked.
    Ambiguous { shown: bool },
    /// The sender panics.
    Panic { shown: bool },
    /// The sender never comes back.
    Hang { shown: bool },
    /// The process dies.
    Crash { shown: bool },
}

/// What a recipient got.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) channel: ChannelId,
    pub(crate) chat: String,
    pub(crate) provider_id: String,
    pub(crate) job: String,
}

type Behaviour = Box<dyn Fn(&Job) -> Act + Send + Sync>;

/// The network, outside of every process.
pub(crate) struct Wire {
    pub(crate) kind: Kind,
    frames: Mutex<Vec<Frame>>,
    begun: Mutex<Vec<(String, Instant)>>,
    scripts: Mutex<HashMap<String, VecDeque<Act>>>,
    otherwise: Mutex<Behaviour>,
    ids: AtomicU64,
}

impl Wire {
    pub(crate) fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            kind,
            frames: Mutex::default(),
            begun: Mutex::default(),
            scripts: Mutex::default(),
            otherwise: Mutex::new(Box::new(|_| Act::Done)),
            ids: AtomicU64::new(1),
        })
    }

    /// What the next tries of a job come to; after these it is as for any other job.
    pub(crate) fn script(&self, job: &str, acts: impl IntoIterator<Item = Act>) {
        self.scripts.lock().expect("scripts").entry(job.to_owned()).or_default().extend(acts);
    }

    /// What comes of tries that no script is for.
    pub(crate) fn otherwise(&self, behaviour: impl Fn(&Job) -> Act + Send + Sync + 'static) {
        *self.otherwise.lock().expect("behaviour") = Box::new(behaviour);
    }

    /// All frames so far.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        self.frames.lock().expect("frames").clone()
    }

    /// The frames of one job.
    pub(crate) fn frames_of(&self, job: &str) -> Vec<Frame> {
        self.frames.lock().expect("frames").iter().filter(|frame| frame.job == job).cloned().collect()
    }

    /// How many messages of a job its recipient sees: ids that differ.
    pub(crate) fn shown(&self, job: &str) -> usize {
        self.frames_of(job).iter().map(|frame| &frame.provider_id).collect::<BTreeSet<_>>().len()
    }

    /// The jobs of a chat in the order in which each was first shown.
    pub(crate) fn order(&self, channel: ChannelId, chat: &str) -> Vec<String> {
        let mut order = Vec::new();
        for frame in self.frames.lock().expect("frames").iter() {
            if frame.channel == channel && frame.chat == chat && !order.contains(&frame.job) {
                order.push(frame.job.clone());
            }
        }
        order
    }

    /// When each try of a job began.
    pub(crate) fn tries(&self, job: &str) -> Vec<Instant> {
        let begun = self.begun.lock().expect("begun");
        begun.iter().filter(|(id, _)| id == job).map(|(_, at)| *at).collect()
    }

    /// How many tries began, of whatever job.
    pub(crate) fn begun(&self) -> usize {
        self.begun.lock().expect("begun").len()
    }

    fn next(&self, job: &Job) -> Act {
        self.begun.lock().expect("begun").push((job.id.to_string(), Instant::now()));
        let scripted = self.scripts.lock().expect("scripts").get_mut(job.id.as_str()).and_then(VecDeque::pop_front);
        scripted.unwrap_or_else(|| self.otherwise.lock().expect("behaviour")(job))
    }

    fn show(&self, job: &Job, chosen: Option<&str>) -> String {
        let given = || format!("given-{}", self.ids.fetch_add(1, Ordering::Relaxed));
        let provider_id = chosen.map_or_else(given, str::to_owned);
        self.frames.lock().expect("frames").push(Frame {
            channel: job.channel,
            chat: job.task.chat().unwrap_or_default().to_owned(),
            provider_id: provider_id.clone(),
            job: job.id.to_string(),
        });
        provider_id
    }
}

/// The network as one process sees it.
pub(crate) struct TestPlatform {
    pub(crate) wire: Arc<Wire>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) crash: CancellationToken,
}

#[async_trait]
impl Platform for TestPlatform {
    fn kind(&self) -> PlatformKind {
        match self.wire.kind {
            Kind::Chosen => PlatformKind::Whatsapp,
            Kind::Given => PlatformKind::Telegram,
        }
    }

    fn provider_id(&self, job: &Job) -> Option<String> {
        (self.wire.kind == Kind::Chosen).then(|| format!("chosen-{}", job.id))
    }

    fn sender(&self, _: &Arc<ChannelSpec>) -> Option<Arc<dyn Sender>> {
        Some(Arc::new(TestSender { wire: self.wire.clone(), journal: self.journal.clone(), crash: self.crash.clone() }))
    }

    async fn receive(&self, _: Arc<ChannelSpec>, _: Arc<dyn Inbox>, stop: CancellationToken) -> Closed {
        stop.cancelled().await;
        Closed::Asked
    }
}

struct TestSender {
    wire: Arc<Wire>,
    journal: Arc<Journal>,
    crash: CancellationToken,
}

#[async_trait]
impl Sender for TestSender {
    async fn perform(&self, job: &Job, provider_id: Option<&str>) -> Result<Done, Failed> {
        let show = |shown: bool| shown.then(|| self.wire.show(job, provider_id));
        let mut act = self.wire.next(job);
        self.journal.note(format!("performs {} : {act:?}", job.id));
        while let Act::GateThen(gate, then) = act {
            gate.acquire().await.expect("a gate").forget();
            act = *then;
        }
        match act {
            Act::GateThen(..) => unreachable!("it has been waited for"),
            Act::Done => {}
            Act::Slow(after) => tokio::time::sleep(after).await,
            Act::Gate(gate) => gate.acquire().await.expect("a gate").forget(),
            Act::Fail(failed) => return Err(failed),
            Act::Ambiguous { shown } => {
                show(shown);
                return Err(Failed::Ambiguous { error: "the line went dead".to_owned() });
            }
            Act::Panic { shown } => {
                show(shown);
                // Not by panic!, whose hook would print it.
                std::panic::resume_unwind(Box::new("the sender broke"));
            }
            Act::Hang { shown } => {
                show(shown);
                std::future::pending::<()>().await;
            }
            Act::Crash { shown } => {
                show(shown);
                self.crash.cancel();
                std::future::pending::<()>().await;
            }
        }
        Ok(Done { provider_id: show(true), result: None })
    }
}
