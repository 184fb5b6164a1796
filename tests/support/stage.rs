//! Private servers for whole daemons: a broker with a virtual host of its own, and a Redis, both behind passwords.

#![allow(dead_code, reason = "each test takes from here what it needs")]

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    servers::{Server, Use},
    support::Home,
};

/// Virtual hosts of the broker of a run; each test takes one.
const HOSTS: u32 = 120;
pub(crate) const REDIS_PASSWORD: &str = "r3d1s-hunter2";
pub(crate) const AMQP_USER: &str = "shardvisor";
pub(crate) const AMQP_PASSWORD: &str = "4mqp-hunter2";

/// The servers of one test.
pub(crate) struct Stage {
    broker: Server,
    host: String,
    redis: Redis,
}

/// A Redis of one test.
pub(crate) struct Redis {
    dir: tempfile::TempDir,
    port: u16,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let mut this = Self { dir: tempfile::tempdir().expect("a directory"), port: 0 };
        let told = this.up();
        let port = told.lines().find_map(|line| line.strip_prefix("PORT=")).expect("a port");
        this.port = port.parse().expect("a port");
        // A server that is new has nobody's leases to wait for, and can be told so.
        let info = this.ask("INFO server");
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:")).expect("a run id");
        this.ask(&format!("HSET shardvisor:clock wall 0 now 0 settled 0 server {}", run.trim()));
        this
    }

    fn script(&self, action: &str, more: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/start-redis");
        let output = Command::new(script).arg(action).arg(self.dir.path().join("redis")).args(more).output();
        let output = output.expect("start-redis");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Starts it, or starts it again with what it kept.
    pub(crate) fn up(&self) -> String {
        let owner = std::process::id().to_string();
        self.script("up", &["--while", &owner, "--", "--requirepass", REDIS_PASSWORD, "--appendonly", "yes"])
    }

    pub(crate) fn down(&self) {
        self.script("down", &[]);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://:{REDIS_PASSWORD}@127.0.0.1:{}/0", self.port)
    }

    /// One command, and the bulk that it answers with.
    pub(crate) fn ask(&self, command: &str) -> String {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
        let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
        let mut line = String::new();
        let say = |text: &str| write!(&stream, "{text}\r\n").expect("sent");
        say(&format!("AUTH {REDIS_PASSWORD}"));
        reader.read_line(&mut line).expect("an answer");
        assert!(line.starts_with("+OK"), "{line}");
        say(command);
        line.clear();
        reader.read_line(&mut line).expect("an answer");
        assert!(!line.starts_with('-'), "{command}: {line}");
        let Some(length) = line.strip_prefix('$').and_then(|length| length.trim().parse::<usize>().ok()) else {
            return line;
        };
        let mut bulk = vec![0; length];
        std::io::Read::read_exact(&mut reader, &mut bulk).expect("the bulk");
        String::from_utf8(bulk).expect("UTF-8")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.down();
    }
}

impl Stage {
    pub(crate) fn set() -> Self {
        Self::build(Use::Beside)
    }

    /// For a test that stops the broker.
    pub(crate) fn alone() -> Self {
        Self::build(Use::Alone)
    }

    fn build(how: Use) -> Self {
        let broker = Server::of_run("start-rabbit", how, &["--tls", "--vhosts", &HOSTS.to_string()]);
        let host = format!("t{}", broker.claim(HOSTS));
        let stage = Self { broker, host, redis: Redis::start() };
        // The user may be there from another test.
        let _ = stage.try_ctl(&["add_user", AMQP_USER, AMQP_PASSWORD]);
        stage.ctl(&["set_permissions", "-p", &stage.host, AMQP_USER, ".*", ".*", ".*"]);
        stage
    }

    pub(crate) fn redis(&self) -> &Redis {
        &self.redis
    }

    fn try_ctl(&self, arguments: &[&str]) -> bool {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/start-rabbit");
        let output = Command::new(script).arg("ctl").arg(self.broker.told("DIR")).args(arguments).output();
        output.expect("start-rabbit").status.success()
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) {
        assert!(self.try_ctl(arguments), "rabbitmqctl {arguments:?}");
    }

    /// A question to the broker, about this test's host.
    pub(crate) fn asked(&self, question: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/start-rabbit");
        let mut command = Command::new(script);
        command.arg("ctl").arg(self.broker.told("DIR")).args(["--quiet"]).args(question).args(["-p", &self.host]);
        let output = command.output().expect("start-rabbit");
        assert!(output.status.success(), "{question:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    pub(crate) fn amqp_url(&self) -> String {
        format!("amqp://{AMQP_USER}:{AMQP_PASSWORD}@127.0.0.1:{}/{}", self.broker.port(), self.host)
    }

    pub(crate) fn redis_url(&self) -> String {
        self.redis.url()
    }

    /// A home whose daemon stands on these servers; the addresses lie in files.
    pub(crate) fn home(&self) -> Home {
        let home = Home::new();
        let write = |name: &str, url: String| -> PathBuf {
            let path = home.dir.path().join(name);
            std::fs::write(&path, url).expect("written");
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
            path
        };
        let (queue, registry) = (write("queue-url", self.amqp_url()), write("registry-url", self.redis_url()));
        home.with("SHARDVISOR_QUEUE_URL_FILE", queue.display()).with("SHARDVISOR_REGISTRY_URL_FILE", registry.display())
    }
}
