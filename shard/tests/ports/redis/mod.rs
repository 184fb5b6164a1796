//! The Redis adapter: the suites on a private server, and what only it promises. Without a `redis-server` they are skipped.

mod leases;
mod outages;
mod pool;
mod reaching;
mod registry;
mod sends;

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use ::redis::{FromRedisValue, aio::MultiplexedConnection, cmd};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shard::{
    identity::ChannelId,
    job::JobId,
    registry::{Claim, Fence, Holder, Lease, RedisOptions, RedisRegistry, Registry, RegistryError, Reserve, Resource},
};
use tempfile::TempDir;

/// A private Redis: loopback only, a free port, own data.
pub(crate) struct Server {
    dir: TempDir,
    arguments: Vec<String>,
    port: u16,
    pid: i32,
}

impl Server {
    /// Starts one; none, said aloud, where there is no `redis-server`.
    pub(crate) fn start(arguments: &[&str]) -> Option<Self> {
        if Command::new("redis-server").arg("--version").output().is_err() {
            assert!(std::env::var_os("SERVERS").is_none(), "no redis-server here");
            println!("SKIPPED: no redis-server here");
            return None;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut server = Self { dir, arguments, port: 0, pid: 0 };
        server.up();
        Some(server)
    }

    fn script(&self, action: &str, more: &[String]) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/support/start-redis");
        let output = Command::new(script).arg(action).arg(self.dir.path().join("redis")).args(more).output();
        let output = output.expect("start-redis");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Starts it again where it was, with what it kept.
    pub(crate) fn up(&mut self) {
        let mut more = vec!["--while".to_owned(), std::process::id().to_string(), "--".to_owned()];
        more.extend(self.arguments.iter().cloned());
        let said = self.script("up", &more);
        let value = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(name)).expect("said");
            line.parse::<i32>().expect("a number")
        };
        (self.port, self.pid) = (value("PORT=") as u16, value("PID="));
    }

    /// SIGKILL.
    pub(crate) async fn die(&self) {
        self.signal(Signal::SIGKILL);
        // Its port, not its pid: somebody may take a while to reap it.
        until("it is dead", async || std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err()).await;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).expect("it runs");
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().join("redis")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A registry of it for one life of a worker, that takes an empty server for a new one.
    pub(crate) fn registry(&self, worker: &str, incarnation: u64) -> Arc<RedisRegistry> {
        self.settling(worker, incarnation, Duration::ZERO)
    }

    /// The same with a time for which a server that may have forgotten grants nothing new.
    pub(crate) fn settling(&self, worker: &str, incarnation: u64, settle: Duration) -> Arc<RedisRegistry> {
        at(&self.url(), worker, incarnation, settle)
    }

    /// Asks it something.
    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        asked(&mut connection(&self.url()).await, words).await
    }

    /// Time passes for the registry.
    pub(crate) async fn advance(&self, by: Duration) {
        if self.ask::<bool>(&["EXISTS", "shardvisor:clock"]).await {
            let by = by.as_millis().to_string();
            let _: i64 = self.ask(&["HINCRBY", "shardvisor:clock", "now", &by]).await;
        }
    }

    /// Somebody sets the clock of the server's machine.
    pub(crate) async fn step_wall(&self, by_ms: i64) {
        if self.ask::<bool>(&["EXISTS", "shardvisor:clock"]).await {
            let back = (-by_ms).to_string();
            let _: i64 = self.ask(&["HINCRBY", "shardvisor:clock", "wall", &back]).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
    }
}

/// A private Sentinel.
pub(crate) struct Sentinel {
    child: Child,
    url: String,
    _dir: TempDir,
}

impl Sentinel {
    /// Starts one that watches a primary under the name `main`.
    pub(crate) async fn start(primary: u16) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = dir.path().join("sentinel.conf");
        let watch = format!("sentinel monitor main 127.0.0.1 {primary} 1\nsentinel down-after-milliseconds main 500\n");
        std::fs::write(&config, watch).expect("written");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        let mut command = Command::new("redis-server");
        command.arg(&config).args(["--sentinel", "--bind", "127.0.0.1", "--port", &port.to_string()]);
        let child = command.stdout(Stdio::null()).spawn().expect("started");
        let sentinel = Self { child, url: format!("redis://127.0.0.1:{port}"), _dir: dir };
        let answers = async || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        until("the Sentinel answers", answers).await;
        sentinel
    }

    /// Asks it something.
    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        asked(&mut connection(&self.url).await, words).await
    }

    /// Its host and port.
    pub(crate) fn host(&self) -> &str {
        self.url.trim_start_matches("redis://")
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A registry at an address.
pub(crate) fn at(url: &str, worker: &str, incarnation: u64, settle: Duration) -> Arc<RedisRegistry> {
    let options = RedisOptions { settle, ..RedisOptions::default() };
    Arc::new(RedisRegistry::connect(url.parse().expect("an address"), holder(worker, incarnation), options))
}

pub(crate) async fn connection(url: &str) -> MultiplexedConnection {
    let client = ::redis::Client::open(url).expect("an address");
    client.get_multiplexed_async_connection().await.expect("connected")
}

pub(crate) async fn asked<T: FromRedisValue>(connection: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.query_async(connection).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}: did not come");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn holder(worker: &str, incarnation: u64) -> Holder {
    Holder { worker: worker.to_owned(), incarnation }
}

pub(crate) fn channel(number: u128) -> ChannelId {
    ChannelId::from_uuid(uuid::Uuid::from_u128(number << 96 | 0x4000_8000_0000_0000_0000))
}

pub(crate) fn job(id: &str) -> JobId {
    JobId::new(id).expect("an id")
}

pub(crate) fn request(id: &str, by: &Holder, token: u64, provider_id: Option<&str>) -> Reserve {
    Reserve {
        job: job(id),
        fence: Fence { channel: channel(1), token },
        holder: by.clone(),
        provider_id: provider_id.map(str::to_owned),
        resend: false,
    }
}

pub(crate) async fn claim(registry: &RedisRegistry, by: &Holder, resource: Resource) -> Claim {
    registry.claim(by, &[resource], false).await.expect("answered").remove(0)
}

pub(crate) async fn held(registry: &RedisRegistry, by: &Holder, resource: Resource) -> Lease {
    match claim(registry, by, resource).await {
        Claim::Held(lease) => lease,
        Claim::Taken { by, .. } => panic!("{resource} is taken by {by}"),
    }
}

pub(crate) async fn taken(registry: &RedisRegistry, by: &Holder, resource: Resource) -> (Holder, Duration) {
    match claim(registry, by, resource).await {
        Claim::Taken { by, remaining } => (by, remaining),
        Claim::Held(lease) => panic!("{resource} was free: {lease:?}"),
    }
}

pub(crate) async fn lost(registry: &RedisRegistry, by: &Holder, leases: &[Lease]) -> Vec<Lease> {
    registry.renew(by, leases).await.expect("renewed").lost
}

pub(crate) fn fenced<T: std::fmt::Debug>(outcome: Result<T, RegistryError>) {
    assert!(matches!(outcome, Err(RegistryError::Fenced { .. })), "{outcome:?}");
}

pub(crate) fn unavailable<T: std::fmt::Debug>(outcome: Result<T, RegistryError>) -> String {
    match outcome {
        Err(RegistryError::Unavailable(cause)) => cause,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn refused<T: std::fmt::Debug>(outcome: Result<T, RegistryError>) -> String {
    match outcome {
        Err(RegistryError::Refused(cause)) => {
            assert!(!cause.contains('\n'), "one line: {cause}");
            cause
        }
        other => panic!("{other:?}"),
    }
}

/// Whether a path is there.
pub(crate) fn exists(path: &Path) -> bool {
    path.exists()
}
