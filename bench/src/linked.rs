//! A daemon with linked channels, in a directory of its own.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shard::identity::{ChannelId, shard_for_channel};
use simulators::whatsapp::{Phone, Scanner, WhatsApp};
use tempfile::TempDir;
use uuid::Uuid;

/// The directory, and which phone belongs to which channel.
pub struct Home {
    dir: TempDir,
    program: PathBuf,
    endpoint: String,
    pre_keys: u32,
    phones: Mutex<HashMap<String, Phone>>,
}

/// A daemon that runs; it ends when dropped.
pub struct Daemon {
    child: Child,
    data: PathBuf,
    log: PathBuf,
}

impl Home {
    /// A new directory for this program, before this server.
    pub fn new(program: &Path, server: &WhatsApp, pre_keys: u32) -> io::Result<Self> {
        let (dir, endpoint) = (tempfile::tempdir()?, server.url());
        Ok(Self { dir, program: program.to_owned(), endpoint, pre_keys, phones: Mutex::default() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("SHARDVISOR_DATA_DIR", self.dir.path().join("data")).env("HEALTH_PORT", "0");
        command.env("SHARDVISOR_HEALTH_BIND", "127.0.0.1").env("SHARDVISOR_LOG_LEVEL", "warn");
        command.env("SHARDVISOR_WHATSAPP_ENDPOINT", &self.endpoint);
        command.env("SHARDVISOR_WHATSAPP_PRE_KEYS", self.pre_keys.to_string());
        command
    }

    /// Adds so many channels that echo, each with an account.
    pub fn add(&self, server: &WhatsApp, channels: usize) -> io::Result<Vec<Phone>> {
        (0..channels).map(|_| self.add_one(server, Uuid::new_v4())).collect()
    }

    /// Adds so many channels of this one of two shards.
    pub fn add_to(&self, server: &WhatsApp, shard: u32, channels: usize) -> io::Result<Vec<Phone>> {
        let of_shard = |id: &Uuid| shard_for_channel(ChannelId::from_uuid(*id), 2) == shard;
        let ids = std::iter::repeat_with(Uuid::new_v4).filter(of_shard).take(channels);
        ids.map(|id| self.add_one(server, id)).collect()
    }

    fn add_one(&self, server: &WhatsApp, id: Uuid) -> io::Result<Phone> {
        let phone = server.phone(&(4_915_100_000_000 + self.phones()?.len() as u64).to_string());
        self.add_for(&phone, id)?;
        Ok(phone)
    }

    /// Adds a channel that echoes, for this account.
    pub fn add_for(&self, phone: &Phone, id: Uuid) -> io::Result<()> {
        self.put(&id.to_string(), "echo", &[])?;
        self.phones()?.insert(id.to_string(), phone.clone());
        Ok(())
    }

    /// Gives all channels this handler. The daemon must not run.
    pub fn handle_by(&self, handler: &str) -> io::Result<()> {
        let ids: Vec<String> = self.phones()?.keys().cloned().collect();
        ids.iter().try_for_each(|id| self.put(id, handler, &["--replace"]))
    }

    fn phones(&self) -> io::Result<MutexGuard<'_, HashMap<String, Phone>>> {
        self.phones.lock().map_err(|_| io::Error::other("a panic"))
    }

    fn put(&self, id: &str, handler: &str, more: &[&str]) -> io::Result<()> {
        let arguments = ["channel", "add", "whatsapp", "--handler", handler, "--id", id];
        let added = self.command(&[&arguments[..], more].concat()).output()?;
        let failed = || io::Error::other(String::from_utf8_lossy(&added.stderr).into_owned());
        if added.status.success() { Ok(()) } else { Err(failed()) }
    }

    /// Has all phones scan the codes that a daemon shows, and ends that daemon.
    pub async fn link(&self, server: &WhatsApp, phones: &[Phone], shards: u32, within: Duration) -> io::Result<()> {
        let known = self.phones()?.clone();
        let scanner = Scanner::start(known).await?;
        let daemon = self.start(shards, Some(scanner.url()))?;
        let linked = server.wait_for_devices(phones.len(), within).await;
        linked.map_err(|error| io::Error::other(format!("{error}\n{}", daemon.tail())))?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        daemon.stop().await
    }

    /// Starts the daemon, with an endpoint for its events or without.
    pub fn start(&self, shards: u32, events: Option<&str>) -> io::Result<Daemon> {
        let log = self.dir.path().join("log");
        let file = fs::File::create(&log)?;
        let mut command = self.command(&["run"]);
        command.env("SHARD_COUNT", shards.to_string()).stdout(file.try_clone()?).stderr(file);
        if let Some(url) = events {
            command.env("SHARDVISOR_EVENTS_URL", url);
        }
        let data = self.dir.path().join("data");
        let _ = fs::remove_file(data.join("health.port"));
        Ok(Daemon { child: command.spawn()?, data, log })
    }
}

impl Daemon {
    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of its log.
    pub fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Waits until its health port is there.
    pub async fn ready(&self, within: Duration) -> io::Result<()> {
        let began = Instant::now();
        while !self.data.join("health.port").exists() {
            if began.elapsed() > within {
                return Err(io::Error::other(format!("not ready within {within:?}\n{}", self.tail())));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Ends it in good order.
    pub async fn stop(mut self) -> io::Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM)?;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(120) {
            if let Some(status) = self.child.try_wait()? {
                let ended = || io::Error::other(format!("the daemon ended with {status}\n{}", self.tail()));
                return if status.success() { Ok(()) } else { Err(ended()) };
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(io::Error::other("the daemon did not end"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
