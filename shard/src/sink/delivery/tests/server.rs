//! A receiver: a real HTTP server on a free port, which notes every request and answers as it is told.

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};

use super::*;

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// What to answer to a request.
pub(super) enum Answer {
    Say(Response),
    /// Nothing, ever.
    Hang,
}

type Answers = Arc<dyn Fn(&Received) -> Answer + Send + Sync>;

#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: String,
    received: Arc<Mutex<Vec<Received>>>,
}

pub(super) fn say(status: u16, body: &str) -> Answer {
    Answer::Say((StatusCode::from_u16(status).expect("a status"), body.to_owned()).into_response())
}

impl Server {
    pub(super) async fn start(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let received = Arc::default();
        let state: (Answers, Arc<Mutex<Vec<Received>>>) = (Arc::new(answer), Arc::clone(&received));
        let router = Router::new().fallback(take).with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await.expect("served") });
        Self { address, received }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("received").clone()
    }

    pub(super) fn count(&self) -> usize {
        self.received.lock().expect("received").len()
    }

    /// The texts of the messages that came, in order.
    pub(super) fn texts(&self) -> Vec<String> {
        self.received().iter().map(Received::text).collect()
    }
}

impl Received {
    pub(super) fn event(&self) -> Event {
        serde_json::from_slice(&self.body).expect("an event")
    }

    pub(super) fn text(&self) -> String {
        match self.event().kind {
            EventKind::MessageReceived(message) => message.text.unwrap_or_default(),
            other => other.name().to_owned(),
        }
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

type Taking = State<(Answers, Arc<Mutex<Vec<Received>>>)>;

async fn take(
    State((answer, received)): Taking,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    assert_eq!(method, Method::POST);
    let request = Received { path: uri.path().to_owned(), headers, body: body.to_vec() };
    received.lock().expect("received").push(request.clone());
    match answer(&request) {
        Answer::Say(response) => response,
        Answer::Hang => std::future::pending().await,
    }
}
