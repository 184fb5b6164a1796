//! Against the simulator of the Bot API, over real sockets.

mod files;
mod receiving;
mod secrets;
mod sending;

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Instant,
};

use serde_json::json;
use simulators::telegram::{ALWAYS, BotHandle, Fault, On, Telegram as Simulator, What};
use tokio::{sync::Notify, task::JoinHandle};

use super::*;
use crate::{
    clock::SystemClock,
    directory::Handler,
    event::{Event, EventKind},
    platform::Failed,
    secret::Secret,
};

pub(super) const SOON: Duration = Duration::from_secs(10);

pub(super) fn channel() -> ChannelId {
    "00000000000000000000000000000001".parse().unwrap()
}

pub(super) fn spec_of(token: &str) -> Arc<ChannelSpec> {
    Arc::new(ChannelSpec {
        id: channel(),
        platform: PlatformKind::Telegram,
        token: Some(Secret::new(token)),
        handler: Handler::None,
        enabled: true,
        label: None,
    })
}

pub(super) fn telegram_at(url: &str) -> Arc<Telegram> {
    let config = TelegramConfig::new(url.parse().unwrap());
    Arc::new(Telegram::new(config, crate::media::for_tests(true), Arc::new(SystemClock)).unwrap())
}

/// An inbox in memory that can refuse, or take its time.
#[derive(Default)]
pub(super) struct TestInbox {
    events: Mutex<Vec<Event>>,
    offset: Mutex<Option<i64>>,
    connected: AtomicUsize,
    refuses: AtomicBool,
    fenced: AtomicBool,
    holds: AtomicBool,
    held_up: Notify,
    go_on: Notify,
}

impl TestInbox {
    fn texts(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::MessageReceived(message) => message.text.clone(),
                _ => None,
            })
            .collect()
    }

    /// The `media` object of the last message.
    fn media(&self) -> Option<serde_json::Value> {
        self.events.lock().unwrap().iter().rev().find_map(|event| match &event.kind {
            EventKind::MessageReceived(message) => serde_json::to_value(message.media.as_ref()?).ok(),
            _ => None,
        })
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.events.lock().unwrap().iter().map(|event| event.kind.name()).collect()
    }
}

#[async_trait]
impl Inbox for TestInbox {
    async fn store(&self, events: Vec<Event>, offset: Option<i64>) -> Result<(), Closed> {
        if self.holds.load(Ordering::SeqCst) {
            self.held_up.notify_one();
            self.go_on.notified().await;
        }
        if self.refuses.load(Ordering::SeqCst) {
            return Err(Closed::Transient { reason: "disk full".into(), after: None });
        }
        self.events.lock().unwrap().extend(events);
        *self.offset.lock().unwrap() = offset;
        Ok(())
    }

    async fn offset(&self) -> Result<Option<i64>, Closed> {
        Ok(*self.offset.lock().unwrap())
    }

    fn held(&self) -> Result<(), Closed> {
        if self.fenced.load(Ordering::SeqCst) { Err(Closed::Fenced) } else { Ok(()) }
    }

    fn fence(&self) -> crate::registry::Fence {
        crate::registry::Fence { channel: channel(), token: 1 }
    }

    fn waits_for_person(&self) {}

    fn connected(&self) {
        self.connected.fetch_add(1, Ordering::SeqCst);
    }

    fn heard(&self) {}
}

pub(super) struct World {
    simulator: Simulator,
    bot: BotHandle,
    telegram: Arc<Telegram>,
    inbox: Arc<TestInbox>,
}

impl World {
    async fn new() -> Self {
        let simulator = Simulator::start().await.unwrap();
        let bot = simulator.add_bot();
        let telegram = telegram_at(&simulator.url());
        Self { simulator, bot, telegram, inbox: Arc::default() }
    }

    fn receive(&self) -> (JoinHandle<Closed>, CancellationToken) {
        let stop = CancellationToken::new();
        let (telegram, inbox, stopped) = (self.telegram.clone(), self.inbox.clone(), stop.clone());
        let spec = spec_of(self.bot.token());
        (tokio::spawn(async move { telegram.receive(spec, inbox, stopped).await }), stop)
    }

    async fn closed(&self) -> Closed {
        let (receiving, _stop) = self.receive();
        tokio::time::timeout(SOON, receiving).await.expect("it ends").unwrap()
    }

    async fn perform(&self, name: &str, data: serde_json::Value) -> Result<Done, Failed> {
        let job = job(name, data);
        self.telegram.sender(&spec_of(self.bot.token())).unwrap().perform(&job, None).await
    }
}

use super::super::Done;

pub(super) fn job(name: &str, data: serde_json::Value) -> Job {
    let body = json!({"name": name, "id": "j", "channel_id": channel(), "data": data});
    Job::parse(body.to_string().as_bytes()).unwrap()
}
