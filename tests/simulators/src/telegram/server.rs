//! What all bots share, and the way of one request through it.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use axum::{
    extract::{ConnectInfo, Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use tokio::sync::Notify;

use super::{
    answer::{Refused, accepted, raw},
    bot::{Bot, Standing},
    fault::{Fault, Faults},
    files,
    limits::Limits,
    methods,
    params::Params,
    poll,
    record::Seen,
};
use crate::{line::Cutter, lock};

/// Hears of each entry, in order for each chat, while the bot's lock is held: it must be quick and must not call back.
pub(super) type Watcher = Box<dyn Fn(&Seen) + Send + Sync>;

/// What all bots share.
pub(super) struct Server {
    pub(super) faults: Faults,
    pub(super) limits: Mutex<Option<Limits>>,
    bots: RwLock<HashMap<String, Arc<Bot>>>,
    watchers: RwLock<Vec<Watcher>>,
    changed: Notify,
    polls_open: AtomicUsize,
    keep: AtomicUsize,
    started: Instant,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("polls_open", &self.polls_open).finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn new() -> Self {
        Self {
            faults: Faults::default(),
            limits: Mutex::new(None),
            bots: RwLock::default(),
            watchers: RwLock::default(),
            changed: Notify::new(),
            polls_open: AtomicUsize::new(0),
            keep: AtomicUsize::new(usize::MAX),
            started: Instant::now(),
        }
    }

    pub(super) fn bot(&self, token: &str) -> Option<Arc<Bot>> {
        read(&self.bots).get(token).cloned()
    }

    pub(super) fn bots(&self) -> Vec<Arc<Bot>> {
        read(&self.bots).values().cloned().collect()
    }

    /// Adds the bot unless the token is known.
    pub(super) fn add(&self, bot: Bot) -> Arc<Bot> {
        let mut bots = self.bots.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(bots.entry(bot.token.clone()).or_insert_with(|| Arc::new(bot)))
    }

    pub(super) fn watch(&self, watcher: Watcher) {
        self.watchers.write().unwrap_or_else(std::sync::PoisonError::into_inner).push(watcher);
    }

    pub(super) fn tell(&self, seen: &Seen) {
        for watcher in read(&self.watchers).iter() {
            watcher(seen);
        }
    }

    /// Something that a wait may be about has changed. Not under a bot's lock: waits look at bots.
    pub(super) fn changed(&self) {
        self.changed.notify_waiters();
    }

    pub(super) fn changes(&self) -> &Notify {
        &self.changed
    }

    pub(super) fn poll_opened(&self) {
        self.polls_open.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn poll_closed(&self) {
        self.polls_open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn polls_open(&self) -> usize {
        self.polls_open.load(Ordering::Relaxed)
    }

    pub(super) fn keep(&self) -> usize {
        self.keep.load(Ordering::Relaxed)
    }

    pub(super) fn set_keep(&self, entries: usize) {
        self.keep.store(entries.max(1), Ordering::Relaxed);
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// `<digits>:<letters, digits, _ and ->`
pub(super) fn is_token(text: &str) -> bool {
    text.split_once(':').is_some_and(|(id, secret)| {
        !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_digit())
            && !secret.is_empty()
            && secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    })
}

/// Serves `/bot<token>/<method>` and `/file/bot<token>/<path>`.
pub(super) async fn serve(
    State(server): State<Arc<Server>>,
    ConnectInfo(line): ConnectInfo<Cutter>,
    request: Request,
) -> Response {
    // Some clients write the colon of the token as %3A.
    let path = request.uri().path().replace("%3A", ":").replace("%3a", ":");
    if let Some(rest) = path.strip_prefix("/file/bot") {
        let found = rest.split_once('/').and_then(|(token, file)| Some((server.bot(token)?, file.to_owned())));
        return found.map_or_else(|| Refused::not_found().into_response(), |(bot, file)| files::download(&bot, &file));
    }
    let verb = request.method().clone();
    let params = match Params::read(request).await {
        Ok(params) => params,
        Err(refused) => return refused.into_response(),
    };
    let named = path.strip_prefix("/bot").and_then(|rest| rest.split_once('/'));
    let Some((token, method)) = named.filter(|(token, method)| is_token(token) && !method.is_empty()) else {
        return Refused::not_found().into_response();
    };
    if !matches!(verb, Method::GET | Method::POST) {
        return Refused::new(405, "Method Not Allowed").into_response();
    }
    let method = method.to_ascii_lowercase();
    let fault = server.faults.strike(token, &method, params.integer("chat_id"));
    let bot = server.bot(token);
    if let Some(bot) = &bot {
        let counts = &mut lock(&bot.state).counts;
        counts.faults += u64::from(fault.is_some());
        match counts.requests.get_mut(&method) {
            Some(count) => *count += 1,
            None => _ = counts.requests.insert(method.clone(), 1),
        }
    }
    if fault.is_some() {
        server.changed();
    }
    let work = async {
        let response = answer(&server, bot.as_deref(), &method, &params).await;
        // Before a fault holds the answer back: people see what was done though the client doesn't.
        server.changed();
        response
    };
    let response = match fault {
        None => work.await,
        Some(fault) => struck(fault, &line, work).await,
    };
    let status = response.status();
    if let (Some(bot), false) = (&bot, status.is_success()) {
        *lock(&bot.state).counts.refused.entry(status.as_u16()).or_default() += 1;
        server.changed();
    }
    response
}

/// What a request comes to when `fault` strikes it.
async fn struck(fault: Fault, line: &Cutter, work: impl Future<Output = Response>) -> Response {
    let nothing = || raw(StatusCode::OK, "application/json", "");
    match fault {
        Fault::Refuse(refused) => refused.into_response(),
        Fault::Page(code) => {
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY);
            raw(status, "text/html", format!("<html><head><title>{status}</title></head><body>nginx</body></html>"))
        }
        Fault::ResetBefore => {
            line.cut();
            nothing()
        }
        Fault::ResetAfter => {
            work.await;
            line.cut();
            nothing()
        }
        Fault::Late(delay) => {
            tokio::time::sleep(delay).await;
            work.await
        }
        Fault::SlowAnswer(delay) => {
            let response = work.await;
            tokio::time::sleep(delay).await;
            response
        }
        Fault::BlackHole => std::future::pending().await,
        Fault::Unanswered => {
            work.await;
            std::future::pending().await
        }
        Fault::Malformed => {
            work.await;
            raw(StatusCode::OK, "application/json", "{\"ok\":true,\"result\":[{\"update_id\":")
        }
    }
}

async fn answer(server: &Server, bot: Option<&Bot>, method: &str, params: &Params) -> Response {
    let Some(bot) = bot else {
        return Refused::unauthorized().into_response();
    };
    let standing = lock(&bot.state).standing;
    match standing {
        Standing::Good => {}
        Standing::Revoked => return Refused::unauthorized().into_response(),
        Standing::LoggedOut => return Refused::new(400, "Logged out").into_response(),
    }
    if method == "getupdates" {
        return match poll::get_updates(server, bot, params).await {
            Ok(response) => response,
            Err(refused) => refused.into_response(),
        };
    }
    match methods::call(server, bot, method, params) {
        Ok(result) => accepted(&result),
        Err(refused) => refused.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_token;

    #[test]
    fn a_token_is_digits_a_colon_and_url_safe_letters() {
        for good in ["1:a", "123456:AAH-x_9"] {
            assert!(is_token(good), "{good}");
        }
        for bad in ["", "1", ":a", "1:", "a:b", "1:a b", "1:a.b"] {
            assert!(!is_token(bad), "{bad}");
        }
    }
}
