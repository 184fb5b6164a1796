//! The connector against the simulator: real sockets, real Signal, a session on a real disk.

mod deaths;
mod ends;
mod jobs;
mod linking;
mod messages;
mod neighbours;

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use simulators::whatsapp::{Address, Phone, WhatsApp};
use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::{
    clock::SystemClock,
    directory::Handler,
    event::{Event, EventKind, Message},
    identity::ShardId,
    keyring::Keyring,
    media::MediaConfig,
    registry::{Fence, Holder},
    secret::Secret,
    session::{SessionKeeper, SnapshotPolicy},
    store::SlotStore,
};

/// How long anything may take.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// An inbox that keeps events as the outbox does, each once, and can die at any step.
#[derive(Default)]
pub(super) struct TestInbox {
    events: Mutex<Vec<Event>>,
    changed: Notify,
    connected: AtomicU32,
    waits: AtomicU32,
    token: AtomicU64,
    /// Durable steps that are left before the process is as good as dead; 0: it lives on.
    steps_left: AtomicU32,
    /// Pieces of histories that are left before it is; 0: it lives on.
    pieces_left: AtomicU32,
    dead: AtomicBool,
    /// Storing panics, as a fault in a channel's own code would.
    pub(super) panics: AtomicBool,
}

impl TestInbox {
    /// From the so-many-th durable step on nothing is stored any more.
    pub(super) fn die_at(&self, step: u32) {
        self.steps_left.store(step, Ordering::SeqCst);
    }

    /// From the so-many-th piece of a history on nothing is stored any more.
    pub(super) fn die_at_piece(&self, piece: u32) {
        self.pieces_left.store(piece, Ordering::SeqCst);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// A new life with a newer token.
    pub(super) fn revive(&self) {
        self.steps_left.store(0, Ordering::SeqCst);
        self.dead.store(false, Ordering::SeqCst);
        self.token.fetch_add(1, Ordering::SeqCst);
    }

    fn dies_at(&self, events: &[Event]) -> bool {
        let is_piece = events.iter().any(|event| matches!(event.kind, EventKind::HistoryBatch(_)));
        let dies = is_piece
            && self.pieces_left.load(Ordering::SeqCst) > 0
            && self.pieces_left.fetch_sub(1, Ordering::SeqCst) == 1;
        if dies {
            self.dead.store(true, Ordering::SeqCst);
            self.changed.notify_waiters();
        }
        dies
    }

    fn step(&self) -> bool {
        if self.is_dead() {
            return false;
        }
        let left = self.steps_left.load(Ordering::SeqCst);
        if left > 0 && self.steps_left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.dead.store(true, Ordering::SeqCst);
            self.changed.notify_waiters();
            return false;
        }
        true
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        let told = |event: Event| match event.kind {
            EventKind::MessageReceived(message) => Some(message),
            _ => None,
        };
        self.events().into_iter().filter_map(told).collect()
    }

    pub(super) fn texts(&self) -> Vec<String> {
        self.messages().into_iter().filter_map(|message| message.text).collect()
    }

    pub(super) fn others(&self, update: &str) -> usize {
        let is = |event: &Event| matches!(&event.kind, EventKind::Other(other) if other.update == update);
        self.events().iter().filter(|event| is(event)).count()
    }

    /// Waits until `seen` finds what it looks for.
    pub(super) async fn wait_for<T>(&self, what: &str, mut seen: impl FnMut(&Self) -> Option<T>) -> T {
        let looking = async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = seen(self) {
                    return found;
                }
                // What changes without telling is looked at now and then.
                let _ = tokio::time::timeout(Duration::from_millis(100), changed).await;
            }
        };
        let found = tokio::time::timeout(SOON, looking).await;
        found.unwrap_or_else(|_| panic!("never {what}: {:?}", kinds(self)))
    }

    pub(super) async fn wait_for_text(&self, text: &str) -> Message {
        self.wait_for(text, |inbox| inbox.messages().into_iter().find(|message| message.text.as_deref() == Some(text)))
            .await
    }

    /// The newest code to link by.
    pub(super) async fn code(&self, method: &str, known: usize) -> String {
        let codes = |inbox: &Self| {
            let code = |event: Event| match event.kind {
                EventKind::PairingCode(code) if code.method == method => Some(code.code),
                _ => None,
            };
            inbox.events().into_iter().filter_map(code).collect::<Vec<_>>()
        };
        self.wait_for("a code", |inbox| codes(inbox).into_iter().nth(known)).await
    }

    pub(super) async fn wait_connected(&self, times: u32) {
        self.wait_for("connected", |inbox| (inbox.connected.load(Ordering::SeqCst) >= times).then_some(())).await;
    }

    pub(super) fn times_connected(&self) -> u32 {
        self.connected.load(Ordering::SeqCst)
    }
}

fn kinds(inbox: &TestInbox) -> Vec<&'static str> {
    inbox.events().iter().map(|event| event.kind.name()).collect()
}

#[async_trait]
impl Inbox for TestInbox {
    async fn store(&self, events: Vec<Event>, _: Option<i64>) -> Result<(), Closed> {
        assert!(!self.panics.load(Ordering::SeqCst), "a fault in this channel's code");
        if self.dies_at(&events) || !self.step() {
            return Err(Closed::Fenced);
        }
        {
            let mut all = self.events.lock().unwrap();
            for event in events {
                if !all.iter().any(|known| known.id == event.id) {
                    all.push(event);
                }
            }
        }
        self.changed.notify_waiters();
        // A death after it was stored, and before anybody heard.
        if self.step() { Ok(()) } else { Err(Closed::Fenced) }
    }

    async fn offset(&self) -> Result<Option<i64>, Closed> {
        Ok(None)
    }

    fn held(&self) -> Result<(), Closed> {
        if self.step() { Ok(()) } else { Err(Closed::Fenced) }
    }

    fn fence(&self) -> Fence {
        Fence { channel: channel(), token: self.token.load(Ordering::SeqCst) + 1 }
    }

    fn waits_for_person(&self) {
        self.waits.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    fn connected(&self) {
        self.connected.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    fn heard(&self) {}
}

/// The inbox as one process sees it: once that has died, what is left of it in this one gets nothing done.
pub(super) struct OneLife {
    inbox: Arc<TestInbox>,
    fence: Fence,
}

impl OneLife {
    pub(super) fn of(inbox: &Arc<TestInbox>) -> Arc<Self> {
        Arc::new(Self { inbox: inbox.clone(), fence: inbox.fence() })
    }

    /// The inbox of another channel than the one that most tests have.
    pub(super) fn of_channel(inbox: &Arc<TestInbox>, channel: ChannelId) -> Arc<Self> {
        Arc::new(Self { inbox: inbox.clone(), fence: Fence { channel, ..inbox.fence() } })
    }

    fn lives(&self) -> Result<(), Closed> {
        if self.inbox.fence().token == self.fence.token { Ok(()) } else { Err(Closed::Fenced) }
    }
}

#[async_trait]
impl Inbox for OneLife {
    async fn store(&self, events: Vec<Event>, offset: Option<i64>) -> Result<(), Closed> {
        self.lives()?;
        self.inbox.store(events, offset).await
    }

    async fn offset(&self) -> Result<Option<i64>, Closed> {
        Ok(None)
    }

    fn held(&self) -> Result<(), Closed> {
        self.lives()?;
        self.inbox.held()
    }

    fn fence(&self) -> Fence {
        self.fence
    }

    fn waits_for_person(&self) {
        self.inbox.waits_for_person();
    }

    fn connected(&self) {
        self.inbox.connected();
    }

    fn heard(&self) {}
}

pub(super) fn channel() -> ChannelId {
    ChannelId::from_uuid(Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0007))
}

pub(super) fn spec(phone: Option<&str>) -> Arc<ChannelSpec> {
    Arc::new(ChannelSpec {
        id: channel(),
        platform: PlatformKind::Whatsapp,
        token: phone.map(Secret::new),
        handler: Handler::None,
        enabled: true,
        label: None,
    })
}

pub(super) fn config(server: &WhatsApp) -> WhatsappConfig {
    WhatsappConfig {
        version: (2, 3000, 1),
        pre_keys: 20,
        endpoint: Some(server.url().parse().expect("a URL")),
        hurry: 5,
        ..WhatsappConfig::default()
    }
}

/// A shard's WhatsApp over a directory, as one process has it.
pub(super) fn whatsapp(server: &WhatsApp, dir: &Path, incarnation: u64) -> Arc<Whatsapp> {
    whatsapp_as(config(server), dir, incarnation)
}

pub(super) fn whatsapp_as(config: WhatsappConfig, dir: &Path, incarnation: u64) -> Arc<Whatsapp> {
    let holder = Holder { worker: "test".into(), incarnation };
    let clock: Arc<dyn crate::clock::Clock> = Arc::new(SystemClock);
    let slot = SlotStore::open(dir, ShardId { index: 0, count: 1 }, &holder, clock.clone()).expect("opened");
    let keyring = Arc::new(Keyring::open(&dir.join("secret.key")).expect("keys"));
    let sessions = SessionKeeper::new(slot, keyring, None, SnapshotPolicy::default(), clock);
    let media = MediaConfig { private_addresses: true, ..MediaConfig::new(dir.join("media")) };
    let media = Arc::new(Media::open(media).expect("a directory"));
    Arc::new(Whatsapp::new(config, media, sessions).expect("set up"))
}

/// One channel that is linked to a phone, and a peer to chat with.
pub(super) struct World {
    pub(super) server: WhatsApp,
    pub(super) dir: tempfile::TempDir,
    pub(super) whatsapp: Arc<Whatsapp>,
    pub(super) inbox: Arc<TestInbox>,
    pub(super) owner: Phone,
    pub(super) peer: Phone,
    pub(super) device: Address,
    pub(super) stop: CancellationToken,
    pub(super) living: JoinHandle<Closed>,
}

pub(super) fn live(
    whatsapp: &Arc<Whatsapp>,
    inbox: &Arc<impl Inbox>,
    stop: &CancellationToken,
    spec: Arc<ChannelSpec>,
) -> JoinHandle<Closed> {
    let (whatsapp, inbox, stop) = (whatsapp.clone(), inbox.clone(), stop.clone());
    tokio::spawn(async move { whatsapp.receive(spec, inbox, stop).await })
}

impl World {
    /// Linked, logged in, ready.
    pub(super) async fn linked() -> Self {
        Self::linked_as(|config| config).await
    }

    pub(super) async fn linked_as(change: impl FnOnce(WhatsappConfig) -> WhatsappConfig) -> Self {
        let server = WhatsApp::start().await.expect("listening");
        let (owner, peer) = (server.phone("4915100000001"), server.phone("4915100000002"));
        let dir = tempfile::tempdir().expect("directory");
        let whatsapp = whatsapp_as(change(config(&server)), dir.path(), 1);
        let (inbox, stop) = (Arc::new(TestInbox::default()), CancellationToken::new());
        let living = live(&whatsapp, &inbox, &stop, spec(None));
        let code = inbox.code("qr", 0).await;
        let device = owner.scan(&code).expect("scanned");
        inbox.wait_connected(1).await;
        Self { server, dir, whatsapp, inbox, owner, peer, device, stop, living }
    }

    /// Ends the life in good order.
    pub(super) async fn close(&mut self) -> Closed {
        self.stop.cancel();
        self.ended().await
    }

    /// Waits for the life's end.
    pub(super) async fn ended(&mut self) -> Closed {
        tokio::time::timeout(SOON, &mut self.living).await.expect("in time").expect("no panic")
    }

    /// Another life, in the same process.
    pub(super) fn again(&mut self) {
        self.stop = CancellationToken::new();
        self.living = live(&self.whatsapp, &self.inbox, &self.stop, spec(None));
    }

    /// Does a job under its own id.
    pub(super) async fn perform(&self, job: &Job) -> Result<super::super::Done, Failed> {
        let id = self.whatsapp.provider_id(job);
        let sender = self.whatsapp.sender(&spec(None)).expect("a sender");
        tokio::time::timeout(SOON, sender.perform(job, id.as_deref())).await.expect("in time")
    }
}

pub(super) fn job(id: &str, name: &str, data: Value) -> Job {
    let body = json!({ "name": name, "id": id, "channel_id": channel().to_string(), "data": data });
    Job::parse(body.to_string().as_bytes()).expect("a job")
}
