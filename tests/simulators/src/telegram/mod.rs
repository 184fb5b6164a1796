//! A Telegram Bot API server on loopback.
//!
//! It keeps what the real one promises (one poll for a bot, updates until an offset confirms them, one id for each
//! message of a chat, the words of each refusal), and it can be made to fail on either side of the work. Left out:
//! delivery to webhooks, fetching files from URLs, interpreting a `parse_mode`.

mod answer;
mod bot;
mod chat;
mod control;
mod fault;
mod files;
mod handle;
mod limits;
mod methods;
mod params;
mod poll;
mod record;
mod server;
mod stats;
mod user;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use rand::Rng;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

pub use answer::Refused;
pub use fault::{ALWAYS, Fault, FaultId, On};
pub use handle::BotHandle;
pub use limits::Limits;
pub use record::{By, Entry, Seen, What};
pub use stats::{BotStats, Stats};
pub use user::{Sent, User};

use self::{bot::Bot, control::Control, server::Server};
use crate::{
    TimedOut,
    line::{Cutter, Door, Lines},
    lock,
};

/// The server. It lives until its last clone is dropped.
#[derive(Debug, Clone)]
pub struct Telegram {
    server: Arc<Server>,
    listening: Arc<Listening>,
}

#[derive(Debug)]
struct Listening {
    address: SocketAddr,
    open: watch::Sender<bool>,
    lines: Arc<Lines>,
    task: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
        self.lines.cut_all();
    }
}

impl Telegram {
    /// Listens on a free port of 127.0.0.1, on the runtime that this is called in.
    pub async fn start() -> io::Result<Self> {
        Self::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// Listens on a given address of loopback.
    pub async fn listen(address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a simulator listens on loopback only"));
        }
        let listener = TcpListener::bind(address).await?;
        let server = Arc::new(Server::new());
        let (open, opened) = watch::channel(true);
        let lines = Arc::new(Lines::default());
        let door = Door::new(listener, opened, Arc::clone(&lines))?;
        let address = axum::serve::Listener::local_addr(&door)?;
        let listening = Arc::new_cyclic(|listening| {
            let bots = Router::new().fallback(server::serve).with_state(Arc::clone(&server));
            let routes = control::routes(Control::new(&server, listening)).fallback_service(bots);
            let task = tokio::spawn(async move {
                let served = axum::serve(door, routes.into_make_service_with_connect_info::<Cutter>()).await;
                if let Err(error) = served {
                    tracing::error!(%error, "the simulator stopped serving");
                }
            });
            Listening { address, open, lines, task }
        });
        Ok(Self { server, listening })
    }

    /// Where clients point: `http://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.listening.address)
    }

    /// A new bot with a token of its own.
    pub fn add_bot(&self) -> BotHandle {
        let mut rng = rand::rng();
        loop {
            let id = rng.random_range(1_000_000_000_i64..9_999_999_999);
            let secret: String = (0..35).map(|_| char::from(rng.sample(rand::distr::Alphanumeric))).collect();
            let token = format!("{id}:{secret}");
            if self.server.bots().iter().all(|bot| bot.id != id) {
                return self.handle(self.server.add(Bot::new(id, token)));
            }
        }
    }

    /// The bot with this token, new or known. The token is `<id>:<secret>`.
    ///
    /// # Panics
    /// When the token has another form.
    pub fn add_bot_with_token(&self, token: &str) -> BotHandle {
        let id = token.split_once(':').and_then(|(id, _)| id.parse().ok());
        let id = id.unwrap_or_else(|| panic!("a token is <id>:<secret>"));
        self.handle(self.server.add(Bot::new(id, token.to_owned())))
    }

    fn handle(&self, bot: Arc<Bot>) -> BotHandle {
        BotHandle { telegram: self.clone(), bot }
    }

    /// The person with this id in a private chat with the bot.
    pub fn user(&self, bot: &BotHandle, chat: i64) -> User {
        bot.user(chat)
    }

    /// Lets something go wrong `times` times ([`ALWAYS`]: until healed) where `on` matches.
    pub fn fault(&self, on: On, fault: Fault, times: u32) -> FaultId {
        self.server.faults.add(on, fault, times)
    }

    /// How often the fault struck.
    pub fn fired(&self, fault: FaultId) -> u32 {
        self.server.faults.fired(fault)
    }

    /// Ends one fault.
    pub fn heal(&self, fault: FaultId) {
        self.server.faults.heal(Some(fault));
    }

    /// Ends all faults.
    pub fn heal_all(&self) {
        self.server.faults.heal(None);
    }

    /// Enforces send limits from now on, or none.
    pub fn limit(&self, limits: Option<Limits>) {
        *lock(&self.server.limits) = limits;
    }

    /// Keeps only so many messages and entries of each chat (all, unless told), for runs that go on for long.
    pub fn keep(&self, entries: usize) {
        self.server.set_keep(entries);
    }

    /// Refuses connections from now on and resets those that are open. What is queued stays.
    pub fn outage(&self) {
        self.listening.open.send_replace(false);
        self.listening.lines.cut_all();
    }

    /// Ends the outage, on the same port.
    pub fn recover(&self) {
        self.listening.open.send_replace(true);
    }

    /// Resets every connection that is open now.
    pub fn reset_connections(&self) {
        self.listening.lines.cut_all();
    }

    /// Hears of each entry of each chat, in order for each chat. It is called while the bot is locked: it must be quick
    /// and must not call the simulator.
    pub fn watch(&self, watcher: impl Fn(&Seen) + Send + Sync + 'static) {
        self.server.watch(Box::new(watcher));
    }

    /// How many bots have a poll open at this moment.
    pub fn polls_open(&self) -> usize {
        self.server.polls_open()
    }

    /// Waits until so many bots have a poll open at once.
    pub async fn wait_for_polls(&self, bots: usize, within: Duration) -> Result<(), TimedOut> {
        let what = format!("{bots} bots that poll");
        self.wait_for(&what, within, || (self.polls_open() >= bots).then_some(())).await
    }

    /// Waits until `seen` finds what it looks for; it is asked again at each change.
    pub async fn wait_for<T>(
        &self,
        what: &str,
        within: Duration,
        mut seen: impl FnMut() -> Option<T>,
    ) -> Result<T, TimedOut> {
        let wait = async {
            loop {
                let changed = self.server.changes().notified();
                tokio::pin!(changed);
                // Listening starts before looking, or a change between the two would be missed.
                changed.as_mut().enable();
                if let Some(found) = seen() {
                    return found;
                }
                changed.await;
            }
        };
        let timed_out = |_| TimedOut { what: what.to_owned(), waited: within };
        tokio::time::timeout(within, wait).await.map_err(timed_out)
    }

    /// The conversation as the people in the chat see it.
    pub fn conversation(&self, bot: &BotHandle, chat: i64) -> Vec<Arc<Entry>> {
        self.entries(&bot.bot, chat)
    }

    fn entries(&self, bot: &Bot, chat: i64) -> Vec<Arc<Entry>> {
        lock(&bot.state).chats.get(&chat).map(|chat| chat.entries.iter().cloned().collect()).unwrap_or_default()
    }

    /// Counts over all bots.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.server)
    }
}
