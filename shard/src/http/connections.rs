//! The connections under way, and which of them goes when there are too many.
//!
//! The port is open to whoever reaches it. A client that connects and says nothing, or reads nothing, must not keep a
//! probe out: when the table is full, the connection that has been of no use for longest makes room. One whose request
//! is being answered is never cut.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request, Response, header::CONNECTION},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpStream,
    sync::{Notify, watch},
    task::{AbortHandle, Id, JoinSet},
};
use tower_service::Service;

/// A connection that is younger has not had its chance yet, and is not the one to go.
const GRACE: Duration = Duration::from_millis(100);

/// What a client may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: usize,
    /// To send a request's head, and how long a kept connection may be silent between requests.
    pub header: Duration,
    /// To compose an answer.
    pub answer: Duration,
    /// After this age a connection is closed with its next answer; after twice this age in any case.
    pub age: Duration,
    /// How long to go on accepting after new connections are steered away: what was under way then arrives yet.
    pub linger: Duration,
    /// How long a kept connection may take to come with one more request, which is told to be its last.
    pub farewell: Duration,
    /// How long answers under way may take after that.
    pub finish: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            header: Duration::from_secs(5),
            answer: Duration::from_secs(1),
            age: Duration::from_secs(60),
            linger: Duration::from_millis(250),
            farewell: Duration::from_secs(1),
            finish: Duration::from_secs(2),
        }
    }
}

/// How a listener's connections are to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    LastAnswers,
    Closing,
}

/// What one connection is at.
struct Connection {
    accepted: Instant,
    answering: AtomicBool,
    /// Milliseconds from `accepted` to its last answer.
    useful_ms: AtomicU64,
}

impl Connection {
    /// Since when it has been of no use; `None` while it is.
    fn useless_since(&self) -> Option<Instant> {
        let last = Duration::from_millis(self.useful_ms.load(Ordering::Relaxed));
        (!self.answering.load(Ordering::Relaxed)).then_some(self.accepted + last)
    }
}

/// All connections of a listener.
pub(super) struct Connections {
    router: Router,
    limits: Limits,
    tasks: JoinSet<()>,
    open: HashMap<Id, (Arc<Connection>, AbortHandle)>,
    answered: Arc<Notify>,
    phase: watch::Sender<Phase>,
}

impl Connections {
    pub(super) fn new(router: Router, limits: Limits) -> Self {
        let (phase, _) = watch::channel(Phase::Open);
        Self { router, limits, tasks: JoinSet::new(), open: HashMap::new(), answered: Arc::default(), phase }
    }

    fn victim(&self) -> Option<Id> {
        let useless = self.open.iter().filter_map(|(id, (one, _))| Some((one.useless_since()?, *id)));
        let (since, id) = useless.min_by_key(|(since, _)| *since)?;
        (since.elapsed() >= GRACE).then_some(id)
    }

    fn is_full(&self) -> bool {
        self.open.len() >= self.limits.connections
    }

    /// Whether one more can be taken; who must wait does so in the kernel's queue.
    pub(super) fn has_room(&self) -> bool {
        !self.is_full() || self.victim().is_some()
    }

    /// Takes one; the least useful one goes if there are too many.
    pub(super) fn add(&mut self, stream: TcpStream) {
        if self.is_full()
            && let Some((_, abort)) = self.victim().and_then(|id| self.open.remove(&id))
        {
            abort.abort();
        }
        let connection = Arc::new(Connection {
            accepted: Instant::now(),
            answering: AtomicBool::new(false),
            useful_ms: AtomicU64::new(0),
        });
        let serving = serve(
            stream,
            self.router.clone(),
            connection.clone(),
            self.answered.clone(),
            self.phase.subscribe(),
            self.limits.clone(),
        );
        let task = self.tasks.spawn(serving);
        self.open.insert(task.id(), (connection, task));
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns when there may be room that was not there before.
    pub(super) async fn changed(&mut self) {
        let full = self.is_full();
        tokio::select! {
            () = tokio::time::sleep(GRACE), if full => {}
            Some(ended) = self.tasks.join_next_with_id() => {
                let id = match ended {
                    Ok((id, ())) => id,
                    Err(error) => error.id(),
                };
                self.open.remove(&id);
            }
            () = self.answered.notified() => {}
        }
    }

    /// The next answer of each connection is its last.
    pub(super) fn last_answers(&self) {
        self.phase.send_replace(Phase::LastAnswers);
    }

    /// Lets all end within the limits; tells how many had to be cut off.
    pub(super) async fn end(&mut self) -> usize {
        self.last_answers();
        self.ended_within(self.limits.farewell).await;
        self.phase.send_replace(Phase::Closing);
        self.ended_within(self.limits.finish).await;
        let cut_off = self.open.len();
        self.tasks.shutdown().await;
        self.open.clear();
        self.phase.send_replace(Phase::Open);
        cut_off
    }

    async fn ended_within(&mut self, limit: Duration) {
        let ended = async {
            while !self.open.is_empty() {
                self.changed().await;
            }
        };
        // Time over is an outcome like any other: the next phase deals with who is left.
        let _ = tokio::time::timeout(limit, ended).await;
    }
}

async fn serve(
    stream: TcpStream,
    router: Router,
    connection: Arc<Connection>,
    answered: Arc<Notify>,
    mut phase: watch::Receiver<Phase>,
    limits: Limits,
) {
    let seen = phase.clone();
    let service = service_fn(|request: Request<Incoming>| {
        connection.answering.store(true, Ordering::Relaxed);
        let answer = router.clone().call(request.map(Body::new));
        let (connection, answered, seen) = (connection.clone(), answered.clone(), seen.clone());
        async move {
            let mut response: Response<Body> = answer.await?;
            let age = connection.accepted.elapsed();
            if *seen.borrow() > Phase::Open || age >= limits.age {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            connection.useful_ms.store(age.as_millis() as u64, Ordering::Relaxed);
            connection.answering.store(false, Ordering::Relaxed);
            answered.notify_one();
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.header).max_buf_size(16 * 1024);
    let mut http = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let too_old = tokio::time::sleep(2 * limits.age);
    let closing = async {
        if phase.wait_for(|phase| *phase == Phase::Closing).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        // Whatever ends a connection early is the client's affair.
        _ = http.as_mut() => return,
        () = too_old => return,
        () = closing => {}
    }
    http.as_mut().graceful_shutdown();
    let _ = http.await;
}
