//! The platform's API as a test wants it: what each request is answered with, and what was asked.

use std::{
    future::pending,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, Request, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use url::Url;

use super::{TOKEN, id};

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) target: String,
    pub(super) etag: Option<String>,
    pub(super) bearer: Option<String>,
}

/// What it is answered with.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Json(Value),
    Tagged(&'static str, Value),
    Status(u16),
    Text(String),
    Redirect(String),
    Never,
}

type Script = Box<dyn Fn(&Asked) -> Reply + Send + Sync>;

struct Inner {
    script: Mutex<Script>,
    asked: Mutex<Vec<Asked>>,
}

pub(super) struct Web {
    inner: Arc<Inner>,
    port: u16,
    serving: JoinHandle<()>,
}

impl Web {
    pub(super) async fn start(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let inner = Arc::new(Inner { script: Mutex::new(Box::new(script)), asked: Mutex::default() });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let app = Router::new().fallback(answer).with_state(inner.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.expect("served") });
        Self { inner, port, serving }
    }

    /// One that lists these.
    pub(super) async fn listing(range: impl IntoIterator<Item = u128>) -> Self {
        let entries = bots(range);
        Self::start(move |_| Reply::Json(entries.clone())).await
    }

    pub(super) fn url(&self) -> Url {
        format!("http://127.0.0.1:{}/base", self.port).parse().expect("a URL")
    }

    pub(super) fn answer(&self, script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) {
        *self.inner.script.lock().expect("script") = Box::new(script);
    }

    pub(super) fn list(&self, entries: Value) {
        self.answer(move |_| Reply::Json(entries.clone()));
    }

    /// What was asked since the last call.
    pub(super) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.inner.asked.lock().expect("asked"))
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A Telegram bot as an entry.
pub(super) fn bot(number: u128) -> Value {
    json!({"id": id(number), "platform": "telegram", "token": TOKEN})
}

pub(super) fn bots(range: impl IntoIterator<Item = u128>) -> Value {
    range.into_iter().map(bot).collect()
}

async fn answer(State(inner): State<Arc<Inner>>, request: Request<Body>) -> Response {
    let text = |headers: &HeaderMap, name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bearer = text(request.headers(), header::AUTHORIZATION);
    let asked = Asked {
        target: request.uri().to_string(),
        etag: text(request.headers(), header::IF_NONE_MATCH),
        bearer: bearer.and_then(|value| value.strip_prefix("Bearer ").map(str::to_owned)),
    };
    let reply = (inner.script.lock().expect("script"))(&asked);
    inner.asked.lock().expect("asked").push(asked);
    let status = |code: u16| StatusCode::from_u16(code).expect("a status");
    match reply {
        Reply::Json(value) => axum::Json(value).into_response(),
        Reply::Tagged(tag, value) => ([(header::ETAG, tag)], axum::Json(value)).into_response(),
        Reply::Status(code) => status(code).into_response(),
        Reply::Text(text) => text.into_response(),
        Reply::Redirect(to) => (status(302), [(header::LOCATION, to)]).into_response(),
        Reply::Never => pending().await,
    }
}
