//! Starts the real binary on a data directory of its own and free ports, waits by condition, reaps on drop.

#![allow(dead_code, unreachable_pub, missing_docs)]

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

pub const BIN: &str = env!("CARGO_BIN_EXE_shardvisor");

/// Waits until `check` gives something; panics with `what` after `limit`.
pub fn wait_for<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Whether a process is there and no zombie. (Whoever is process 1 may not reap.)
pub fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .is_ok_and(|status| !status.lines().any(|line| line.starts_with("State:") && line.contains('Z')))
}

/// The living children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return vec![] };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .filter(|pid| alive(*pid))
        .collect()
}

pub fn signal(pid: u32, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).expect("a signal");
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal);
}

/// One HTTP request on a connection of its own.
pub fn http_get(port: u16, path: &str, limit: Duration) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other(format!("no HTTP answer: {answer:?}")))?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Ok((status, body))
}

/// Where a daemon lives.
pub struct Home {
    pub dir: tempfile::TempDir,
    pub env: Vec<(String, String)>,
}

impl Home {
    /// An empty data directory. Nothing of the test's own environment that could configure the daemon is passed on.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self { dir, env: vec![] }
    }

    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.env.push((key.to_owned(), value.to_string()));
        self
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(BIN), args)
    }

    fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
        command.env("SHARDVISOR_DATA_DIR", self.data_dir()).env("HEALTH_PORT", "0").env("TMPDIR", self.dir.path());
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().expect("the binary runs")
    }

    /// Runs a command that must succeed, and gives what it printed.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    /// Runs a command with something on its standard input.
    pub fn with_input(&self, args: &[&str], input: &str) -> Output {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
        child.wait_with_output().expect("ended")
    }

    /// Adds a Telegram channel; gives its id.
    pub fn add_telegram(&self, token: &str, handler: &str) -> String {
        let output = self.with_input(&["channel", "add", "telegram", "--token-file", "-", "--handler", handler], token);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    /// Adds a Slack channel; gives its id.
    pub fn add_slack(&self, app_token: &str, bot_token: &str, handler: &str) -> String {
        let args = ["channel", "add", "slack", "--token-file", "-", "--handler", handler];
        let output = self.with_input(&args, &format!("{app_token}\n{bot_token}\n"));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    /// How many sends that may have been shown twice were recorded as uncertain before the second copy.
    pub fn uncertain_records(&self) -> u64 {
        let databases = files_below(&self.data_dir());
        let databases = databases.iter().filter(|file| file.extension().is_some_and(|extension| extension == "db"));
        let count = |file: &PathBuf| {
            let db = rusqlite::Connection::open(file).ok()?;
            let sql = "SELECT count(*) FROM guard WHERE uncertain_ms IS NOT NULL";
            db.query_row(sql, [], |row| row.get::<_, i64>(0)).ok()
        };
        databases.filter_map(count).sum::<i64>() as u64
    }

    pub fn start(&self) -> Daemon {
        Daemon::start(self, Path::new(BIN))
    }

    /// The same from a copy of the program.
    pub fn start_from(&self, program: &Path) -> Daemon {
        Daemon::start(self, program)
    }
}

/// A running `shardvisor run`.
pub struct Daemon {
    pub child: Child,
    pub data_dir: PathBuf,
    log: PathBuf,
}

impl Daemon {
    pub fn start(home: &Home, program: &Path) -> Self {
        let log = home.dir.path().join(format!("log-{}", rand::random::<u32>()));
        let file = File::create(&log).expect("a log file");
        let _ = fs::remove_file(home.data_dir().join("health.port"));
        let child = home
            .command_of(program, &["run"])
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a handle"))
            .stderr(file)
            .spawn()
            .expect("the binary runs");
        Self { child, data_dir: home.data_dir(), log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The health port, once it is known.
    pub fn port(&self) -> u16 {
        let path = self.data_dir.join("health.port");
        wait_for(&format!("{path:?}; log:\n{}", self.log()), Duration::from_secs(20), || {
            fs::read_to_string(&path).ok()?.trim().parse().ok()
        })
    }

    /// While a shard is stopped, what the kernel gives to it hangs: such a request is given up soon.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        http_get(self.port(), path, Duration::from_millis(1500)).ok()
    }

    pub fn status(&self) -> Value {
        let (_, body) = self.get("/status").expect("an answer");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    pub fn ready(&self) -> bool {
        self.get("/readyz").is_some_and(|(code, _)| code == 200)
    }

    pub fn wait_ready(&mut self) -> &Self {
        let deadline = Instant::now() + Duration::from_secs(40);
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the daemon ended with {status}:\n{}", self.log());
            }
            if self.data_dir.join("health.port").exists() && self.ready() {
                return self;
            }
            assert!(Instant::now() < deadline, "never ready:\n{}", self.log());
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The pid of a shard, as `/status` says.
    pub fn shard_pid(&self, index: usize) -> u32 {
        wait_for("the shard's pid", Duration::from_secs(20), || {
            let (_, body) = self.get("/status")?;
            let status: Value = serde_json::from_str(&body).ok()?;
            status["shards"][index]["pid"].as_u64().map(|pid| pid as u32)
        })
    }

    /// One metric's samples: (labels, value).
    pub fn metric(&self, name: &str) -> Vec<(String, f64)> {
        let body = self.get("/metrics").map(|(_, body)| body).unwrap_or_default();
        body.lines()
            .filter_map(|line| {
                let rest = line.strip_prefix(name)?;
                let (labels, value) = match rest.strip_prefix('{') {
                    Some(rest) => rest.split_once("} ")?,
                    None => ("", rest.strip_prefix(' ')?),
                };
                Some((labels.to_owned(), value.trim().parse().ok()?))
            })
            .collect()
    }

    pub fn terminate(&mut self) -> ExitStatus {
        signal(self.pid(), 15);
        self.wait_exit(Duration::from_secs(40))
    }

    pub fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("waited") {
                return status;
            }
            assert!(Instant::now() < deadline, "did not end:\n{}", self.log());
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let shards = children(self.pid());
        let _ = self.child.kill();
        let _ = self.child.wait();
        for shard in shards {
            signal(shard, 9);
        }
        if std::thread::panicking() {
            eprintln!("--- the daemon's log\n{}", self.log());
        }
    }
}

/// Every file below a directory, for tests that look for secrets.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return vec![] };
    entries
        .flatten()
        .flat_map(|entry| {
            let path = entry.path();
            if path.is_dir() { files_below(&path) } else { vec![path] }
        })
        .collect()
}
