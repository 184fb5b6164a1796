//! One app as Slack has it: its tokens, its sockets, its conversations, and what it has not yet acknowledged.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use super::{
    files::StoredFile,
    record::{By, Entry, Seen, What},
    server::Server,
    stats::AppStats,
};
use crate::line::Cutter;

/// How a socket is greeted from now on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Greeting {
    /// `hello`, and then what there is to tell.
    #[default]
    Hello,
    /// `hello`, and at once `disconnect` for this reason, and the end.
    HelloAndGone(String),
    /// Nothing at all.
    Silence,
    /// The connection ends before a word.
    Slam,
}

/// What a socket is told to do.
#[derive(Debug)]
pub(super) enum Order {
    Send(String),
    /// A close frame; the connection stays, as the platform leaves it.
    Close,
    /// Neither read nor write any more, but stay connected.
    Freeze,
}

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) id: u64,
    pub(super) orders: UnboundedSender<Order>,
    pub(super) cutter: Cutter,
    /// It was told to go: others are preferred.
    pub(super) leaving: bool,
}

/// What is to be acknowledged.
#[derive(Debug)]
pub(super) struct Delivery {
    kind: &'static str,
    payload: Arc<Value>,
    attempt: usize,
    /// Where it is at this moment.
    out: Option<(u64, String)>,
    /// When it is tried again; never, unless an app connects, when it was tried often enough.
    due: Option<Instant>,
}

/// One app.
#[derive(Debug)]
pub(super) struct App {
    pub(super) id: Arc<str>,
    pub(super) team: String,
    pub(super) app_token: String,
    pub(super) bot_token: String,
    pub(super) bot_user: String,
    pub(super) bot_id: String,
    pub(super) state: Mutex<AppState>,
}

#[derive(Debug, Default)]
pub(super) struct AppState {
    /// What every call with a token of the app is refused with.
    pub(super) refused_with: Option<String>,
    pub(super) greeting: Greeting,
    pub(super) tickets: HashSet<String>,
    pub(super) sockets: Vec<Socket>,
    pub(super) deliveries: VecDeque<Delivery>,
    pub(super) channels: HashMap<String, Channel>,
    pub(super) files: HashMap<String, StoredFile>,
    pub(super) stats: AppStats,
    pub(super) places: HashMap<String, (f64, Instant)>,
    next_socket: usize,
    last_ts: i64,
}

/// A conversation as the app has it.
#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) messages: BTreeMap<String, Value>,
    pub(super) entries: VecDeque<Arc<Entry>>,
    /// What the bot is refused with here.
    pub(super) refused_with: Option<String>,
    numbers: u64,
}

/// `im`, `mpim` or `channel`, by the first letter of its id.
pub(super) fn channel_type(channel: &str) -> &'static str {
    match channel.as_bytes().first() {
        Some(b'D') => "im",
        Some(b'G') => "mpim",
        _ => "channel",
    }
}

impl App {
    /// The envelope's payload around an event.
    pub(super) fn around(&self, event: Value) -> Value {
        json!({
            "token": "verification-token-of-old",
            "team_id": self.team, "context_team_id": self.team, "context_enterprise_id": null,
            "api_app_id": self.id.as_ref(), "event": event, "type": "event_callback",
            "event_id": format!("Ev{:010X}", rand::random::<u64>() & 0xff_ffff_ffff),
            "event_time": jiff::Timestamp::now().as_second(),
            "authorizations": [{"enterprise_id": null, "team_id": self.team, "user_id": self.bot_user, "is_bot": true,
                "is_enterprise_install": false}],
            "is_ext_shared_channel": false, "event_context": "4-context",
        })
    }
}

impl AppState {
    pub(super) fn channel(&mut self, id: &str) -> &mut Channel {
        self.channels.entry(id.to_owned()).or_default()
    }

    /// A moment that no other message of the app has.
    pub(super) fn next_ts(&mut self) -> String {
        self.last_ts = jiff::Timestamp::now().as_microsecond().max(self.last_ts + 1);
        format!("{}.{:06}", self.last_ts / 1_000_000, self.last_ts % 1_000_000)
    }

    /// Writes down what people see, and tells those who watch.
    pub(super) fn note(
        &mut self,
        server: &Server,
        app: &App,
        (channel, by, what): (&str, By, What),
        ts: Option<&str>,
        text: &str,
        content: Value,
    ) {
        match (&by, what) {
            (By::User(_), What::Message) => self.stats.messages_in += 1,
            (By::Bot, What::Message) => self.stats.messages_out += 1,
            _ => {}
        }
        let keep = server.keep();
        let place = self.channel(channel);
        place.numbers += 1;
        let entry = Arc::new(Entry {
            number: place.numbers,
            at_ms: server.elapsed_ms(),
            channel: channel.to_owned(),
            by,
            what,
            ts: ts.map(str::to_owned),
            text: text.to_owned(),
            content: Arc::new(content),
        });
        place.entries.push_back(Arc::clone(&entry));
        while place.entries.len() > keep {
            place.entries.pop_front();
        }
        while place.messages.len() > keep {
            place.messages.pop_first();
        }
        server.tell(&Seen { app: Arc::clone(&app.id), entry });
    }

    /// Something that the app must acknowledge. Its event id, if it has one.
    pub(super) fn push(&mut self, server: &Server, kind: &'static str, payload: Value) -> Option<String> {
        let event_id = payload.get("event_id").and_then(Value::as_str).map(str::to_owned);
        let delivery = Delivery { kind, payload: Arc::new(payload), attempt: 0, out: None, due: None };
        self.deliveries.push_back(delivery);
        self.deliver(server, self.deliveries.len() - 1);
        event_id
    }

    /// Gives one out to any socket, or counts the attempt as failed when there is none.
    fn deliver(&mut self, server: &Server, index: usize) {
        let retries = server.retries();
        let socket = self.pick();
        let Some(delivery) = self.deliveries.get_mut(index) else { return };
        let Some((socket, orders)) = socket else {
            delivery.due = retries.after.get(delivery.attempt).map(|wait| Instant::now() + *wait);
            delivery.attempt += 1;
            return;
        };
        let envelope_id = format!("{:032x}", rand::random::<u128>());
        let mut envelope = json!({
            "envelope_id": envelope_id, "payload": &*delivery.payload, "type": delivery.kind,
            "accepts_response_payload": delivery.kind != "events_api",
        });
        if delivery.kind == "events_api" {
            envelope["retry_attempt"] = delivery.attempt.into();
            envelope["retry_reason"] = if delivery.attempt > 0 { "timeout" } else { "" }.into();
        }
        self.stats.delivered += 1;
        self.stats.retried += u64::from(delivery.attempt > 0);
        delivery.out = Some((socket, envelope_id));
        delivery.due = Some(Instant::now() + retries.ack_within);
        // A socket that just went is noticed by its own task.
        let _ = orders.send(Order::Send(envelope.to_string()));
    }

    /// Any socket, in turn; one that was told to go only when there is no other.
    fn pick(&mut self) -> Option<(u64, UnboundedSender<Order>)> {
        self.next_socket = self.next_socket.wrapping_add(1);
        let staying = self.sockets.iter().filter(|socket| !socket.leaving).count();
        let of = if staying > 0 { staying } else { self.sockets.len() };
        let mut fit = self.sockets.iter().filter(|socket| staying == 0 || !socket.leaving);
        fit.nth(self.next_socket.checked_rem(of)?).map(|socket| (socket.id, socket.orders.clone()))
    }

    /// The app said that it has it.
    pub(super) fn acknowledge(&mut self, envelope_id: &str) {
        let known = |delivery: &Delivery| delivery.out.as_ref().is_some_and(|(_, id)| id == envelope_id);
        match self.deliveries.iter().position(known) {
            Some(index) => {
                self.deliveries.remove(index);
                self.stats.acked += 1;
            }
            None => self.stats.strays += 1,
        }
    }

    /// A socket was greeted: what waits is told again, at once.
    pub(super) fn socket_is_there(&mut self, server: &Server) {
        for index in 0..self.deliveries.len() {
            if self.deliveries[index].out.is_none() {
                self.deliver(server, index);
            }
        }
    }

    /// A socket went: what it carried failed.
    pub(super) fn socket_is_gone(&mut self, server: &Server, socket: u64) {
        for index in 0..self.deliveries.len() {
            if self.deliveries[index].out.as_ref().is_some_and(|(at, _)| *at == socket) {
                self.failed(server, index);
            }
        }
    }

    /// Time has passed: what was not acknowledged in time failed, and what is due is tried again. Whether anything was.
    pub(super) fn tick(&mut self, server: &Server, now: Instant) -> bool {
        let mut any = false;
        for index in 0..self.deliveries.len() {
            let delivery = &mut self.deliveries[index];
            if delivery.due.is_none_or(|due| due > now) {
                continue;
            }
            any = true;
            if delivery.out.is_some() {
                self.failed(server, index);
            } else {
                self.deliver(server, index);
            }
        }
        any
    }

    /// An attempt failed; the next one comes after its time, the first of them at once.
    fn failed(&mut self, server: &Server, index: usize) {
        let delivery = &mut self.deliveries[index];
        delivery.out = None;
        let wait: Option<Duration> = server.retries().after.get(delivery.attempt).copied();
        delivery.attempt += 1;
        delivery.due = wait.map(|wait| Instant::now() + wait);
        if wait.is_some_and(|wait| wait.is_zero()) {
            self.deliver(server, index);
        }
    }

    pub(super) fn stats(&self) -> AppStats {
        let given_up = self.deliveries.iter().filter(|delivery| delivery.due.is_none()).count();
        AppStats { pending: self.deliveries.len(), given_up, ..self.stats.clone() }
    }
}
