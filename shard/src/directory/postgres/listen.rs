//! Hears `NOTIFY shardvisor_channels`. What is missed while nobody listens is made up for by saying once that something may have
//! changed; a database that can't be listened to is looked at every interval anyway.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::{sync::Mutex, time::sleep};

use super::CONNECT_TIMEOUT;

const CHANNEL: &str = "shardvisor_channels";
/// The first wait before listening is tried again, and the longest.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// The listening connection, made when it is first waited on.
pub(super) struct Ear {
    options: PgConnectOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listener: Option<PgListener>,
    failures: u32,
}

impl Ear {
    pub(super) fn new(options: PgConnectOptions) -> Self {
        Self { options, state: Mutex::default() }
    }

    /// Returns when somebody has notified, or may have. Cancel-safe.
    pub(super) async fn heard(&self) {
        let mut state = self.state.lock().await;
        loop {
            let Some(listener) = &mut state.listener else {
                sleep(wait(state.failures)).await;
                match self.listen().await {
                    Ok(listener) => {
                        if std::mem::take(&mut state.failures) > 0 {
                            tracing::info!("changes of the directory are heard again");
                        }
                        state.listener = Some(listener);
                        return;
                    }
                    Err(_) => state.fail(),
                }
                continue;
            };
            match listener.try_recv().await {
                Ok(Some(_)) => {
                    // Whoever notified meanwhile is answered by the same look.
                    while listener.next_buffered().is_some() {}
                    return;
                }
                Ok(None) | Err(_) => {
                    state.listener = None;
                    state.fail();
                }
            }
        }
    }

    async fn listen(&self) -> Result<PgListener, sqlx::Error> {
        let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = pool.acquire_timeout(CONNECT_TIMEOUT).connect_with(self.options.clone()).await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.ignore_pool_close_event(true);
        listener.listen(CHANNEL).await?;
        Ok(listener)
    }
}

impl State {
    fn fail(&mut self) {
        if self.failures == 0 {
            tracing::warn!("changes of the directory are not heard: they are seen at the next interval");
        }
        self.failures = self.failures.saturating_add(1);
    }
}

/// Longer with each failure, and spread, so that not all shards come at once.
fn wait(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        failures => LONGEST.min(FIRST * 2u32.pow((failures - 1).min(10))).mul_f64(0.5 + rand::random::<f64>() / 2.0),
    }
}
