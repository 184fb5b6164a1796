//! The connection to a Redis: made when it is first needed, made again when it broke, one for everybody.
//!
//! Whoever calls waits for it at most as long as a call may take. A failed attempt makes the next one wait longer, up to a
//! second. Each connection has a greater number than the one before and says so to the server, so that what was sent over
//! one that was given up is refused should it still be carried out (`LATE` in `scripts/common.lua`).

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ::redis::{FromRedisValue, RedisError, Script, aio::MultiplexedConnection};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use rand::Rng;
use tokio::time::{sleep, timeout};

use super::{
    super::RegistryError,
    connect::{Opened, Report, open},
    trouble::Trouble,
    url::RedisUrl,
};

/// How long making a connection may take, over all that is asked on it first.
const CONNECT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

type Attempt = Shared<BoxFuture<'static, Result<Opened, Trouble>>>;

/// A connection to one Redis.
pub(super) struct Link {
    url: RedisUrl,
    patience: Duration,
    /// The key, without its prefix, under which this link's newest connection is known.
    pub(super) session: String,
    session_key: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the newest attempt, which is that of its connection.
    number: u64,
    attempt: Option<Attempt>,
    /// Attempts since the last call that was answered.
    failures: u32,
    /// It was lost, and that was said.
    away: bool,
    /// What was said of the server when it was last connected to.
    told: Option<Report>,
}

impl Link {
    /// Nothing is connected yet.
    pub(super) fn new(url: RedisUrl, prefix: &str, patience: Duration) -> Self {
        let session = format!("session:{:016x}", rand::rng().random::<u64>());
        let session_key = format!("{prefix}{session}");
        Self { url, patience, session, session_key, state: Mutex::default() }
    }

    /// Runs a script, loaded first where the server doesn't know it. `arguments` are made once the number of the
    /// connection is known.
    pub(super) async fn run<T: FromRedisValue + Send>(
        &self,
        script: &Script,
        arguments: impl FnOnce(u64) -> Vec<String> + Send,
    ) -> Result<T, RegistryError> {
        self.call(|number, mut connection| {
            let mut invocation = script.prepare_invoke();
            invocation.arg(arguments(number));
            async move { invocation.invoke_async(&mut connection).await }
        })
        .await
    }

    /// Calls the server over the connection, which is made first where there is none.
    pub(super) async fn call<T, F: Future<Output = Result<T, RedisError>> + Send>(
        &self,
        call: impl FnOnce(u64, MultiplexedConnection) -> F + Send,
    ) -> Result<T, RegistryError> {
        let used = AtomicU64::new(0);
        let called = async {
            let (number, connection) = self.connection(&used).await?;
            call(number, connection).await.map_err(|error| {
                let (trouble, broken) = Trouble::of(&error);
                if broken {
                    self.give_up(number, &trouble);
                }
                trouble
            })
        };
        let outcome = timeout(self.patience, called).await.unwrap_or_else(|_| {
            let trouble = Trouble::Unavailable(format!("no answer in {} ms", self.patience.as_millis()));
            // Zero while it is being connected: that goes on.
            self.give_up(used.load(Ordering::Relaxed), &trouble);
            Err(trouble)
        });
        match outcome {
            Ok(answer) => {
                self.state.lock().expect("link").failures = 0;
                Ok(answer)
            }
            Err(trouble) => Err(trouble.at(&self.url.to_string())),
        }
    }

    async fn connection(&self, used: &AtomicU64) -> Result<(u64, MultiplexedConnection), Trouble> {
        let (number, attempt) = {
            let mut state = self.state.lock().expect("link");
            if state.attempt.is_none() {
                state.number += 1;
                state.attempt = Some(self.attempt(state.number, pause(state.failures)));
            }
            (state.number, state.attempt.clone().expect("just made"))
        };
        match attempt.await {
            Ok(opened) => {
                used.store(number, Ordering::Relaxed);
                self.connected(number, &opened);
                Ok((number, opened.connection))
            }
            Err(trouble) => {
                self.give_up(number, &trouble);
                Err(trouble)
            }
        }
    }

    fn attempt(&self, number: u64, pause: Duration) -> Attempt {
        let (url, session) = (self.url.clone(), self.session_key.clone());
        let connecting = async move {
            sleep(pause).await;
            let opened = timeout(CONNECT, open(&url, &session, number)).await;
            opened.unwrap_or_else(|_| Err(Trouble::Unavailable("it can't be connected to in time".to_owned())))
        };
        let attempt = connecting.boxed().shared();
        // Goes on when whoever asked has lost patience: a slow connection would otherwise never be made.
        tokio::spawn(attempt.clone());
        attempt
    }

    fn connected(&self, number: u64, opened: &Opened) {
        let mut state = self.state.lock().expect("link");
        if state.number != number || (state.told.is_some() && !state.away) {
            return;
        }
        state.away = false;
        let report = &opened.report;
        tracing::info!(address = %self.url, version = %report.version, kept = %report.kept, "connected to redis");
        if state.told.as_ref() != Some(report) {
            for warning in &report.warnings {
                tracing::warn!(address = %self.url, "{warning}");
            }
            state.told = Some(report.clone());
        }
    }

    /// A connection, or the attempt at one, is of no more use.
    fn give_up(&self, number: u64, trouble: &Trouble) {
        let mut state = self.state.lock().expect("link");
        if state.number != number || state.attempt.take().is_none() {
            return;
        }
        state.failures = state.failures.saturating_add(1);
        if !std::mem::replace(&mut state.away, true) {
            tracing::warn!(address = %self.url, cause = %trouble, "redis is away; connecting again");
        }
    }
}

/// How long the next attempt waits, after so many that failed: spread, since all of a fleet lose their server at once.
fn pause(failures: u32) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let longest = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    longest.mul_f64(rand::rng().random_range(0.5..1.0))
}
