//! A connection to the broker that is made when it is needed, and again when it was lost.
//!
//! There are two, one for what is consumed and one for what is published: a broker in need of memory or disk stops reading from who
//! publishes, and acknowledgements must not wait behind that.

use std::{
    sync::{
        Arc, Mutex as StdMutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use lapin::{Channel, Connection, ConnectionProperties, ErrorKind, Event, protocol::AMQPErrorKind};
use tokio::{sync::Mutex, time::Instant};
use tracing::{info, warn};

use super::{
    config::AmqpConfig,
    error::{Cause, answered},
};

/// How long one address has to accept us.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long to leave a broker alone that could not be reached, at most.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A connection, as it is or as it will be.
pub(crate) struct Link {
    config: Arc<AmqpConfig>,
    role: &'static str,
    state: Mutex<State>,
    live: StdMutex<Option<Arc<Live>>>,
    blocked: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    address: usize,
    failures: u32,
    not_before: Option<Instant>,
    /// Grows with each attempt, so that who waited for one shares its outcome.
    attempts: u64,
    error: Option<Cause>,
}

/// A connection that stands.
pub(crate) struct Live {
    connection: Connection,
    config: Arc<AmqpConfig>,
}

impl Live {
    pub(crate) fn connected(&self) -> bool {
        self.connection.status().connected()
    }

    /// A channel of its own.
    pub(crate) async fn channel(&self) -> Result<Channel, Cause> {
        answered(self.config.answer_timeout, self.connection.create_channel()).await
    }
}

impl Link {
    pub(crate) fn new(config: Arc<AmqpConfig>, role: &'static str) -> Self {
        Self { config, role, state: Mutex::default(), live: StdMutex::new(None), blocked: Arc::default() }
    }

    /// The connection that stands, if one does.
    pub(crate) fn standing(&self) -> Option<Arc<Live>> {
        self.live.lock().expect("link").clone().filter(|live| live.connected())
    }

    /// Whether the broker has stopped reading from us, for want of memory or disk.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// The connection, made if need be. One attempt goes through all addresses, from the last good one on.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, Cause> {
        if let Some(live) = self.standing() {
            return Ok(live);
        }
        let seen = self.state.try_lock().map(|state| state.attempts).ok();
        let mut state = self.state.lock().await;
        if let Some(live) = self.standing() {
            return Ok(live);
        }
        // Somebody else tried while we waited for the lock: that was our attempt too.
        if seen.is_none()
            && let Some(error) = &state.error
        {
            return Err(error.clone());
        }
        if let Some(at) = state.not_before {
            tokio::time::sleep_until(at).await;
        }
        state.attempts += 1;
        match self.connect(&mut state).await {
            Ok(live) => {
                (state.failures, state.not_before, state.error) = (0, None, None);
                *self.live.lock().expect("link") = Some(live.clone());
                Ok(live)
            }
            Err(error) => {
                if state.failures == 0 {
                    warn!(role = self.role, ?error, "the broker can't be reached; trying on");
                }
                let pause = Duration::from_millis(100) * 2_u32.pow(state.failures.min(6));
                state.failures = state.failures.saturating_add(1);
                state.not_before = Some(Instant::now() + pause.min(PAUSE_MAX));
                state.error = Some(error.clone());
                Err(error)
            }
        }
    }

    async fn connect(&self, state: &mut State) -> Result<Arc<Live>, Cause> {
        self.blocked.store(false, Ordering::Relaxed);
        let mut last = Cause::Unavailable("no address".to_owned());
        for _ in 0..self.config.addresses.len() {
            let at = state.address % self.config.addresses.len();
            match self.connect_to(at).await {
                Ok(live) => {
                    info!(role = self.role, broker = %self.config.shown()[at], "connected to the broker");
                    return Ok(live);
                }
                Err(error) => {
                    last = error;
                    state.address = at + 1;
                }
            }
        }
        Err(last)
    }

    async fn connect_to(&self, at: usize) -> Result<Arc<Live>, Cause> {
        let name = format!("{} {}", self.config.name, self.role);
        let properties = ConnectionProperties::default().with_connection_name(name.as_str().into());
        let uri = self.config.addresses[at].clone();
        let runtime = lapin::runtime::default_runtime()?;
        let connecting = Connection::connect_uri_with_config(uri, properties, self.config.tls(), runtime);
        let connection = answered(CONNECT_WITHIN, connecting).await.map_err(refused_login)?;
        self.watch(&connection);
        Ok(Arc::new(Live { connection, config: self.config.clone() }))
    }

    /// Tells what happens to the connection.
    fn watch(&self, connection: &Connection) {
        let mut events = Box::pin(connection.events_listener());
        let (role, blocked) = (self.role, self.blocked.clone());
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => {
                        blocked.store(true, Ordering::Relaxed);
                        warn!(role, reason, "the broker takes nothing more for now; publishing waits");
                    }
                    Event::ConnectionUnblocked => {
                        blocked.store(false, Ordering::Relaxed);
                        info!(role, "the broker takes messages again");
                    }
                    // A channel's own end: whoever uses it is told, and the connection stands.
                    Event::Error(error) if ends_a_channel_alone(&error) => {}
                    Event::Error(error) => {
                        warn!(role, %error, "the connection to the broker was lost");
                        break;
                    }
                    _ => {}
                }
            }
        });
    }
}

fn ends_a_channel_alone(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error) if matches!(error.kind(), AMQPErrorKind::Soft(_)))
}

/// A broker answers a wrong password by closing; that does not pass by itself.
fn refused_login(cause: Cause) -> Cause {
    match cause {
        Cause::Unavailable(text) if text.contains("ACCESS_REFUSED") || text.contains("ACCESS-REFUSED") => {
            Cause::Refused("the broker refused the login".to_owned())
        }
        other => other,
    }
}
