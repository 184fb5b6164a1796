//! Slack on loopback: the Web API, and Socket Mode.
//!
//! It keeps what the real one promises (tickets that are good once, each payload to any one of an app's sockets, retries
//! until an envelope is acknowledged, a close handshake that leaves the connection open), and it can be made to fail on
//! either side of the work. Left out: scopes and subscriptions (an app hears of everything), OAuth, views, delivery by HTTP.

mod app;
mod fault;
mod files;
mod handle;
mod methods;
mod params;
mod person;
mod record;
pub mod script;
mod server;
mod socket;
mod stats;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::Router;
use rand::Rng;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

pub use app::Greeting;
pub use fault::{ALWAYS, Fault, FaultId, On};
pub use handle::AppHandle;
pub use person::Person;
pub use record::{By, Entry, Seen, What};
pub use stats::AppStats;

use self::{app::App, server::Server};
use crate::{
    TimedOut,
    line::{Cutter, Door, Lines},
    lock,
};

/// When what was not acknowledged is told again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How long an acknowledgement may take.
    pub ack_within: Duration,
    /// The waits before the first, second and third retry. After that only a new socket brings it back.
    pub after: [Duration; 3],
}

impl Default for Retries {
    fn default() -> Self {
        let after = [Duration::ZERO, Duration::from_secs(60), Duration::from_secs(300)];
        Self { ack_within: Duration::from_secs(3), after }
    }
}

/// How many messages pass into one conversation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// In a second.
    pub per_second: f64,
    /// At once.
    pub burst: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_second: 1.0, burst: 4.0 }
    }
}

/// The server. It lives until its last clone is dropped.
#[derive(Debug, Clone)]
pub struct Slack {
    server: Arc<Server>,
    listening: Arc<Listening>,
}

#[derive(Debug)]
struct Listening {
    open: watch::Sender<bool>,
    lines: Arc<Lines>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&self.tasks).iter().for_each(JoinHandle::abort);
        self.lines.cut_all();
    }
}

impl Slack {
    /// Listens on a free port of 127.0.0.1, on the runtime that this is called in.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let (open, opened) = watch::channel(true);
        let lines = Arc::new(Lines::default());
        let door = Door::new(listener, opened, Arc::clone(&lines))?;
        let address = axum::serve::Listener::local_addr(&door)?;
        let server = Arc::new(Server::new(format!("http://{address}")));
        let routes = Router::new().fallback(server::serve).with_state(Arc::clone(&server));
        let serving = tokio::spawn(async move {
            let served = axum::serve(door, routes.into_make_service_with_connect_info::<Cutter>()).await;
            if let Err(error) = served {
                tracing::error!(%error, "the simulator stopped serving");
            }
        });
        let ticked = Arc::downgrade(&server);
        let ticking = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            loop {
                ticks.tick().await;
                let Some(server) = ticked.upgrade() else { return };
                server.tick();
            }
        });
        let listening = Arc::new(Listening { open, lines, tasks: Mutex::new(vec![serving, ticking]) });
        Ok(Self { server, listening })
    }

    /// Where clients point: `http://127.0.0.1:<port>/api/`.
    pub fn api_url(&self) -> String {
        format!("{}/api/", self.server.url)
    }

    /// A new app with tokens of its own.
    pub fn add_app(&self) -> AppHandle {
        let mut rng = rand::rng();
        let mut letters = |count: usize| -> String {
            (0..count).map(|_| char::from(rng.sample(rand::distr::Alphanumeric))).collect()
        };
        let secret = (letters(32), letters(24));
        let mut id = |kind: char| format!("{kind}{}", letters(10).to_uppercase());
        let (id, team, bot_user, bot_id) = (id('A'), id('T'), id('U'), id('B'));
        let app = App {
            app_token: format!("xapp-1-{id}-1234567890-{}", secret.0),
            bot_token: format!("xoxb-1234567890-0987654321-{}", secret.1),
            id: id.into(),
            team,
            bot_user,
            bot_id,
            state: Mutex::default(),
        };
        AppHandle { slack: self.clone(), app: self.server.add(app) }
    }

    /// Lets something go wrong `times` times ([`ALWAYS`]: until healed) where `on` matches.
    pub fn fault(&self, on: On, fault: Fault, times: u32) -> FaultId {
        self.server.faults.add(on, fault, times)
    }

    /// How often the fault struck.
    pub fn fired(&self, fault: FaultId) -> u32 {
        self.server.faults.fired(fault)
    }

    /// Ends all faults.
    pub fn heal_all(&self) {
        self.server.faults.heal_all();
    }

    /// Enforces send limits from now on, or none.
    pub fn limit(&self, limits: Option<Limits>) {
        *lock(&self.server.limits) = limits;
    }

    /// When what was not acknowledged is told again, from now on.
    pub fn retries(&self, retries: Retries) {
        self.server.set_retries(retries);
    }

    /// How often sockets that are opened from now on are pinged.
    pub fn ping_every(&self, every: Duration) {
        self.server.set_ping_every(every);
    }

    /// Keeps only so many messages and entries of each conversation (all, unless told), for runs that go on for long.
    pub fn keep(&self, entries: usize) {
        self.server.set_keep(entries);
    }

    /// Refuses connections from now on and resets those that are open. What waits stays.
    pub fn outage(&self) {
        self.listening.open.send_replace(false);
        self.listening.lines.cut_all();
    }

    /// Ends the outage, on the same port.
    pub fn recover(&self) {
        self.listening.open.send_replace(true);
    }

    /// Hears of each entry of each conversation, in order for each. It is called while the app is locked: it must be
    /// quick and must not call the simulator.
    pub fn watch(&self, watcher: impl Fn(&Seen) + Send + Sync + 'static) {
        self.server.watch(Box::new(watcher));
    }

    /// Waits until so many apps have a socket open at once.
    pub async fn wait_for_apps(&self, apps: usize, within: Duration) -> Result<(), TimedOut> {
        let connected = || self.server.apps().iter().filter(|app| lock(&app.state).stats.live > 0).count();
        let what = format!("{apps} apps with a socket");
        self.wait_for(&what, within, || (connected() >= apps).then_some(())).await
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
}
