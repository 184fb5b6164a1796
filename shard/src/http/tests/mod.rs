//! With real sockets on loopback.

mod sharing;

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::*;

/// Says who it is, when it is let.
struct Named {
    name: &'static str,
    mute: AtomicBool,
    asked: AtomicU64,
}

impl Named {
    fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, mute: AtomicBool::new(false), asked: AtomicU64::new(0) })
    }
}

#[async_trait]
impl ViewSource for Named {
    async fn view(&self, part: Part) -> Option<View> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.mute.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let view = View {
            ready: false,
            reasons: vec![format!("{}: down", self.name)],
            metrics: "# HELP x y\n# TYPE x gauge\nx 1\n".to_owned(),
            status: json!({"shard_count": 2, "name": self.name}),
        };
        Some(view.only(part))
    }
}

fn quick() -> Limits {
    Limits { linger: Duration::from_millis(30), farewell: Duration::from_millis(300), ..Limits::default() }
}

fn thread_at(address: SocketAddr, sharing: Sharing, limits: Limits, name: &'static str) -> HttpThread {
    HttpThread::spawn(HttpConfig { address, sharing, limits }, Named::new(name)).expect("thread")
}

fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

async fn alone(limits: Limits) -> (HttpThread, SocketAddr, Arc<Named>) {
    let source = Named::new("shard 0");
    let config = HttpConfig { address: loopback(), sharing: Sharing::Alone, limits };
    let thread = HttpThread::spawn(config, source.clone()).expect("thread");
    let address = thread.listen().await.expect("listens");
    (thread, address, source)
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// One request on a connection of its own: status code, head, body.
fn request(address: SocketAddr, method: &str, path: &str) -> io::Result<(u16, String, String)> {
    let mut stream = connect(address)?;
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    parsed(&text).ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, format!("no answer: {text:?}")))
}

fn parsed(text: &str) -> Option<(u16, String, String)> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, head.to_ascii_lowercase(), body.to_owned()))
}

async fn get(address: SocketAddr, path: &'static str) -> (u16, String, String) {
    tokio::task::spawn_blocking(move || request(address, "GET", path)).await.expect("task").expect("answer")
}

/// Contract: H1, H2.
#[tokio::test]
async fn each_endpoint_answers_in_its_own_format() {
    let (_thread, address, _) = alone(quick()).await;
    let (code, _, body) = get(address, "/healthz").await;
    assert_eq!((code, body.as_str()), (200, "ok\n"));
    let (code, _, body) = get(address, "/readyz").await;
    let body: Value = serde_json::from_str(&body).expect("json");
    assert_eq!((code, body), (503, json!({"ready": false, "reasons": ["shard 0: down"]})));
    let (code, head, body) = get(address, "/metrics").await;
    assert_eq!((code, body.lines().last()), (200, Some("x 1")));
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let (code, _, body) = get(address, "/status").await;
    let body: Value = serde_json::from_str(&body).expect("json");
    assert_eq!((code, &body["shard_count"]), (200, &json!(2)));
    assert_eq!(get(address, "/nothing").await.0, 404);
    let post = tokio::task::spawn_blocking(move || request(address, "POST", "/readyz")).await.expect("task");
    assert_eq!(post.expect("answer").0, 405);
}

/// Contract: P4, H1.
#[tokio::test]
async fn without_a_view_it_lives_is_not_ready_and_says_so_within_its_limit() {
    let (_thread, address, source) = alone(quick()).await;
    source.mute.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let (code, _, body) = get(address, "/readyz").await;
    assert_eq!(code, 503);
    assert!(body.contains("no answer from the primary"), "{body}");
    assert!(start.elapsed() >= Duration::from_millis(900), "it was given its second");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(get(address, "/metrics").await.0, 503);
    assert_eq!(get(address, "/status").await.0, 503);
    assert_eq!(get(address, "/healthz").await.0, 200);
}

/// Contract: P4, H1.
#[test]
fn healthz_answers_while_the_runtime_that_does_the_work_is_blocked() {
    let main = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    main.block_on(async {
        let (_thread, address, _) = alone(quick()).await;
        // The one thread of this runtime stands in a blocking call.
        assert_eq!(request(address, "GET", "/healthz").expect("answer").0, 200);
        assert_eq!(request(address, "GET", "/readyz").expect("answer").0, 503);
    });
}

#[tokio::test]
async fn what_is_spawned_on_the_thread_runs_beside_the_port() {
    let (thread, _, _) = alone(quick()).await;
    let name = thread.spawn_on(async { std::thread::current().name().map(str::to_owned) }).await.expect("task");
    assert_eq!(name.as_deref(), Some("health"));
}

#[tokio::test]
async fn it_listens_once_and_steers_only_what_it_is_in() {
    let (thread, _, _) = alone(quick()).await;
    assert!(matches!(thread.listen().await, Err(HttpError::Listening)));
    assert!(matches!(thread.steer(&[1], 1).await, Err(HttpError::Targets(_))));
    thread.leave().await.expect("left");
    assert!(matches!(thread.steer(&[0], 1).await, Err(HttpError::NotListening)));
    assert!(matches!(thread.leave().await, Err(HttpError::NotListening)));
    thread.listen().await.expect("again");
}

/// Contract: P4. Field report R50.
#[tokio::test]
async fn a_port_in_use_is_one_clear_error() {
    let (_thread, address, _) = alone(quick()).await;
    let second = thread_at(address, Sharing::Group, quick(), "second");
    let error = second.listen().await.expect_err("in use");
    assert_eq!(error.to_string(), format!("can't listen on the health port {address}"));
}

/// Clients that connect and never finish a request's head.
#[tokio::test]
async fn silent_clients_do_not_keep_a_probe_out() {
    let (_thread, address, _) = alone(Limits { connections: 8, ..quick() }).await;
    let mut idle = Vec::new();
    for _ in 0..40 {
        let mut stream = tokio::task::spawn_blocking(move || connect(address)).await.expect("task").expect("connected");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost:").expect("written");
        idle.push(stream);
    }
    let start = Instant::now();
    assert_eq!(get(address, "/healthz").await.0, 200);
    assert!(start.elapsed() < Duration::from_secs(3), "their header time-out was waited for: {:?}", start.elapsed());
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut_off_in_time() {
    let (_thread, address, _) = alone(Limits { header: Duration::from_millis(200), ..quick() }).await;
    let ended = tokio::task::spawn_blocking(move || {
        let mut stream = connect(address).expect("connected");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nx: ").expect("written");
        let mut rest = Vec::new();
        // Closed or reset, either ends it; the read's own time-out of 10 s would not.
        !matches!(stream.read_to_end(&mut rest), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    });
    assert!(ended.await.expect("task"));
}

#[tokio::test]
async fn a_kept_connection_is_told_when_it_is_old() {
    let age = Duration::from_millis(500);
    let (_thread, address, _) = alone(Limits { age, ..quick() }).await;
    let kept = move || {
        let mut stream = connect(address)?;
        let start = Instant::now();
        let mut answers = 0;
        loop {
            let answer = probe_once(&mut stream)?;
            answers += 1;
            if answer.contains("connection: close") {
                return io::Result::Ok((answers, start.elapsed()));
            }
        }
    };
    let (answers, took) = tokio::task::spawn_blocking(kept).await.expect("task").expect("told before it was closed");
    assert!(answers > 1 && took >= age - Duration::from_millis(50), "{answers} answers in {took:?}");
}

/// One probe of /healthz on a connection that is kept; the answer in lower case.
fn probe_once(stream: &mut TcpStream) -> io::Result<String> {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"ok\n") {
        let mut buffer = [0; 1024];
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&buffer[..n]);
    }
    Ok(String::from_utf8_lossy(&answer).to_ascii_lowercase())
}

/// Probes that come together are one question to the source.
#[tokio::test]
async fn many_probes_at_once_are_few_questions() {
    let (_thread, address, source) = alone(quick()).await;
    source.mute.store(true, Ordering::SeqCst);
    let probes: Vec<_> =
        (0..50).map(|_| tokio::task::spawn_blocking(move || request(address, "GET", "/readyz"))).collect();
    for probe in probes {
        assert_eq!(probe.await.expect("task").expect("answer").0, 503);
    }
    let asked = source.asked.load(Ordering::SeqCst);
    assert!(asked <= 6, "{asked} questions for 50 probes");
}
