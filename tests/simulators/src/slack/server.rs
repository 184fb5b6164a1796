//! What all apps share, and the way of one request through it.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    body::Bytes,
    extract::{ConnectInfo, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    Limits, Retries,
    app::App,
    fault::{Fault, Faults},
    files, methods,
    params::Params,
    record::Seen,
    socket,
};
use crate::{line::Cutter, lock};

/// Hears of each entry, in order for each conversation, while the app's lock is held: it must not call back.
pub(super) type Watcher = Box<dyn Fn(&Seen) + Send + Sync>;

/// The greatest body that is read.
const BODY_LIMIT: usize = 64 << 20;

/// What all apps share.
pub(super) struct Server {
    /// `http://127.0.0.1:<port>`
    pub(super) url: String,
    pub(super) faults: Faults,
    pub(super) limits: Mutex<Option<Limits>>,
    retries: Mutex<Retries>,
    ping_every: Mutex<Duration>,
    tokens: RwLock<HashMap<String, Arc<App>>>,
    apps: RwLock<Vec<Arc<App>>>,
    watchers: RwLock<Vec<Watcher>>,
    changed: Notify,
    keep: AtomicUsize,
    started: Instant,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            faults: Faults::default(),
            limits: Mutex::new(None),
            retries: Mutex::default(),
            ping_every: Mutex::new(Duration::from_secs(10)),
            tokens: RwLock::default(),
            apps: RwLock::default(),
            watchers: RwLock::default(),
            changed: Notify::new(),
            keep: AtomicUsize::new(usize::MAX),
            started: Instant::now(),
        }
    }

    pub(super) fn add(&self, app: App) -> Arc<App> {
        let app = Arc::new(app);
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        tokens.insert(app.app_token.clone(), Arc::clone(&app));
        tokens.insert(app.bot_token.clone(), Arc::clone(&app));
        self.apps.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&app));
        app
    }

    pub(super) fn apps(&self) -> Vec<Arc<App>> {
        self.apps.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn by_token(&self, token: &str) -> Option<Arc<App>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    pub(super) fn watch(&self, watcher: Watcher) {
        self.watchers.write().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    pub(super) fn tell(&self, seen: &Seen) {
        for watcher in self.watchers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            watcher(seen);
        }
    }

    /// Something that a wait may be about has changed. Not under an app's lock: waits look at apps.
    pub(super) fn changed(&self) {
        self.changed.notify_waiters();
    }

    pub(super) fn changes(&self) -> &Notify {
        &self.changed
    }

    pub(super) fn keep(&self) -> usize {
        self.keep.load(Ordering::Relaxed)
    }

    pub(super) fn set_keep(&self, entries: usize) {
        self.keep.store(entries.max(1), Ordering::Relaxed);
    }

    pub(super) fn retries(&self) -> Retries {
        *lock(&self.retries)
    }

    pub(super) fn set_retries(&self, retries: Retries) {
        *lock(&self.retries) = retries;
    }

    pub(super) fn ping_every(&self) -> Duration {
        *lock(&self.ping_every)
    }

    pub(super) fn set_ping_every(&self, every: Duration) {
        *lock(&self.ping_every) = every;
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Tries again what is due.
    pub(super) fn tick(&self) {
        let now = tokio::time::Instant::now();
        let mut any = false;
        for app in self.apps() {
            any |= lock(&app.state).tick(self, now);
        }
        if any {
            self.changed();
        }
    }
}

/// `{"ok": false, "error": …}`
pub(super) fn refused(error: &str) -> Response {
    answer(&json!({"ok": false, "error": error}))
}

pub(super) fn answer(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json; charset=utf-8")], body.to_string()).into_response()
}

fn too_many(seconds: u64) -> Response {
    let body = json!({"ok": false, "error": "ratelimited"}).to_string();
    let headers = [(header::RETRY_AFTER, seconds.to_string()), (header::CONTENT_TYPE, "application/json".to_owned())];
    (StatusCode::TOO_MANY_REQUESTS, headers, body).into_response()
}

/// Serves `/api/<method>`, `/link`, `/upload/…` and `/files-pri/…`.
pub(super) async fn serve(
    State(server): State<Arc<Server>>,
    ConnectInfo(line): ConnectInfo<Cutter>,
    request: Request,
) -> Response {
    let path = request.uri().path().to_owned();
    if path == "/link" {
        return socket::upgrade(server, line, request);
    }
    let (head, body) = request.into_parts();
    // Read to its last byte before anything is judged: an answer that overtakes its request closes the connection under
    // a client that is still writing.
    let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let bearer = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
    if let Some(file) = path.strip_prefix("/files-pri/") {
        return files::download(&server, bearer.as_deref(), file);
    }
    if let Some(ticket) = path.strip_prefix("/upload/") {
        let work = async {
            let response = files::upload(&server, ticket, &head.headers, body).await;
            server.changed();
            response
        };
        let fault = files::owner(&server, ticket).and_then(|app| server.faults.strike(&app.id, "upload", None));
        return struck(fault, &line, work).await;
    }
    let Some(method) = path.strip_prefix("/api/") else { return StatusCode::NOT_FOUND.into_response() };
    let Some(params) = Params::read(&head.uri, &head.headers, &body) else { return refused("invalid_json") };
    let Some(token) = bearer.or_else(|| params.text("token")) else { return refused("not_authed") };
    let Some(app) = server.by_token(&token) else { return refused("invalid_auth") };
    let channel = params.text("channel").or_else(|| params.text("channel_id"));
    *lock(&app.state).stats.requests.entry(method.to_owned()).or_default() += 1;
    let fault = server.faults.strike(&app.id, method, channel.as_deref());
    server.changed();
    let refused_with = lock(&app.state).refused_with.clone();
    if let Some(error) = refused_with {
        return refused(&error);
    }
    let work = async {
        let done = methods::call(&server, &app, &token, method, &params);
        // Before a fault holds the answer back: people see what was done though the client doesn't.
        server.changed();
        match done {
            Ok(mut body) => {
                body["ok"] = true.into();
                answer(&body)
            }
            Err(methods::Refused::Word(error)) => refused(&error),
            Err(methods::Refused::TooMany(seconds)) => too_many(seconds),
        }
    };
    struck(fault, &line, work).await
}

/// What a request comes to when `fault` strikes it.
async fn struck(fault: Option<Fault>, line: &Cutter, work: impl Future<Output = Response>) -> Response {
    let Some(fault) = fault else { return work.await };
    match fault {
        Fault::Refuse(error) => refused(&error),
        Fault::RefuseAfter(error) => {
            work.await;
            refused(&error)
        }
        Fault::TooMany(seconds) => too_many(seconds),
        Fault::Page(code) => {
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY);
            let page = format!("<html><head><title>{status}</title></head><body>nginx</body></html>");
            (status, [(header::CONTENT_TYPE, "text/html")], page).into_response()
        }
        Fault::ResetBefore => {
            line.cut();
            Bytes::new().into_response()
        }
        Fault::ResetAfter => {
            work.await;
            line.cut();
            Bytes::new().into_response()
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
            ([(header::CONTENT_TYPE, "application/json")], "{\"ok\":true,\"channel\":\"D0").into_response()
        }
    }
}
