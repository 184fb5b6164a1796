//! Against the simulator of Slack, over real sockets.

mod files;
mod receiving;
mod secrets;
mod sending;
mod sockets;

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use serde_json::json;
use simulators::slack::{ALWAYS, AppHandle, Fault, Greeting, On, Retries, Slack as Simulator, What};
use tokio::{sync::Notify, task::JoinHandle};

use super::*;
use crate::{
    clock::SystemClock,
    directory::Handler,
    event::{Event, EventKind},
    platform::{Done, Failed},
    secret::Secret,
};

const SOON: Duration = Duration::from_secs(10);

fn channel() -> ChannelId {
    "00000000000000000000000000000001".parse().unwrap()
}

fn spec_of(secret: &str) -> Arc<ChannelSpec> {
    Arc::new(ChannelSpec {
        id: channel(),
        platform: PlatformKind::Slack,
        token: Some(Secret::new(secret)),
        handler: Handler::None,
        enabled: true,
        label: None,
    })
}

fn slack_at(url: &str) -> Arc<Slack> {
    let config = SlackConfig::new(url.parse().unwrap());
    Arc::new(Slack::new(config, crate::media::for_tests(true), Arc::new(SystemClock)).unwrap())
}

/// An inbox in memory that keeps each event once, as an outbox does, and can refuse, or take its time.
#[derive(Default)]
struct TestInbox {
    events: Mutex<Vec<Event>>,
    stored: AtomicUsize,
    connected: AtomicUsize,
    heard: AtomicUsize,
    refuses: AtomicBool,
    fenced: AtomicBool,
    holds: AtomicBool,
    held_up: Notify,
    go_on: Notify,
}

impl TestInbox {
    fn texts(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let text = |event: &Event| match &event.kind {
            EventKind::MessageReceived(message) => message.text.clone(),
            _ => None,
        };
        events.iter().filter_map(text).collect()
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
    async fn store(&self, events: Vec<Event>, _: Option<i64>) -> Result<(), Closed> {
        if self.holds.load(Ordering::SeqCst) {
            self.held_up.notify_one();
            self.go_on.notified().await;
        }
        if self.refuses.load(Ordering::SeqCst) {
            return Err(Closed::Transient { reason: "disk full".into(), after: None });
        }
        self.stored.fetch_add(events.len(), Ordering::SeqCst);
        let mut kept = self.events.lock().unwrap();
        for event in events {
            if kept.iter().all(|known| known.id != event.id) {
                kept.push(event);
            }
        }
        Ok(())
    }

    async fn offset(&self) -> Result<Option<i64>, Closed> {
        Ok(None)
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

    fn heard(&self) {
        self.heard.fetch_add(1, Ordering::SeqCst);
    }
}

struct World {
    simulator: Simulator,
    app: AppHandle,
    slack: Arc<Slack>,
    inbox: Arc<TestInbox>,
}

/// Both tokens, as a channel's secret holds them.
fn secret_of(app: &AppHandle) -> String {
    format!("{} {}", app.app_token(), app.bot_token())
}

impl World {
    async fn new() -> Self {
        Self::with(SlackTimes::default()).await
    }

    async fn with(times: SlackTimes) -> Self {
        let simulator = Simulator::start().await.unwrap();
        let app = simulator.add_app();
        let config = SlackConfig { times, ..SlackConfig::new(simulator.api_url().parse().unwrap()) };
        let slack = Arc::new(Slack::new(config, crate::media::for_tests(true), Arc::new(SystemClock)).unwrap());
        Self { simulator, app, slack, inbox: Arc::default() }
    }

    fn receive(&self) -> (JoinHandle<Closed>, CancellationToken) {
        let stop = CancellationToken::new();
        let (slack, inbox, stopped) = (self.slack.clone(), self.inbox.clone(), stop.clone());
        let spec = spec_of(&secret_of(&self.app));
        (tokio::spawn(async move { slack.receive(spec, inbox, stopped).await }), stop)
    }

    /// Connected, with the connection's handle and what stops it.
    async fn connected(&self) -> (JoinHandle<Closed>, CancellationToken) {
        let receiving = self.receive();
        self.app.wait_for_sockets(1, SOON).await.expect("a socket");
        receiving
    }

    async fn closed(&self) -> Closed {
        let (receiving, _stop) = self.receive();
        tokio::time::timeout(SOON, receiving).await.expect("it ends").unwrap()
    }

    async fn wait_for<T>(&self, what: &str, seen: impl FnMut() -> Option<T>) -> T {
        self.simulator.wait_for(what, SOON, seen).await.expect("in time")
    }

    async fn perform(&self, name: &str, data: serde_json::Value) -> Result<Done, Failed> {
        self.slack.sender(&spec_of(&secret_of(&self.app))).unwrap().perform(&job(name, data), None).await
    }
}

fn job(name: &str, data: serde_json::Value) -> Job {
    let body = json!({"name": name, "id": "j", "channel_id": channel(), "data": data});
    Job::parse(body.to_string().as_bytes()).unwrap()
}
