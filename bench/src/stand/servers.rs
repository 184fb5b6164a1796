//! A RabbitMQ and a Redis of a run's own, started by the scripts of `tests/support` and stopped when the run is over.

use std::{collections::HashMap, path::PathBuf, process::Command};

use redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection, cmd};
use tempfile::TempDir;

use super::Failure;

/// A server that runs. Dropping it stops it.
pub struct Server {
    script: PathBuf,
    dir: TempDir,
    arguments: Vec<String>,
    port: u16,
}

impl Server {
    /// A broker with so many virtual hosts beside the default one: a run in each is apart from the others.
    pub fn rabbit(vhosts: u32) -> Result<Self, Failure> {
        Self::start("start-rabbit", vec!["--vhosts".to_owned(), vhosts.to_string()])
    }

    /// A Redis that appends each change to its file, and syncs that by this policy (`everysec`, `always`).
    pub fn redis(fsync: &str) -> Result<Self, Failure> {
        let arguments = ["--", "--appendonly", "yes", "--appendfsync", fsync];
        Self::start("start-redis", arguments.map(str::to_owned).to_vec())
    }

    fn start(script: &str, arguments: Vec<String>) -> Result<Self, Failure> {
        let script = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/support")).join(script);
        let mut this = Self { script, dir: tempfile::tempdir()?, arguments, port: 0 };
        this.up()?;
        Ok(this)
    }

    fn up(&mut self) -> Result<(), Failure> {
        // Should this process not come to drop it, the script does.
        let owner = std::process::id().to_string();
        let mut all = vec!["--while", &owner];
        all.extend(self.arguments.iter().map(String::as_str));
        let told = self.run("up", &all)?;
        let told: HashMap<_, _> = told.lines().filter_map(|line| line.split_once('=')).collect();
        self.port = told.get("PORT").ok_or("the script told no port")?.parse()?;
        Ok(())
    }

    fn run(&self, action: &str, more: &[&str]) -> Result<String, Failure> {
        let output = Command::new(&self.script).arg(action).arg(self.dir.path()).args(more).output()?;
        if !output.status.success() {
            return Err(format!("{action}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Ends it, by SIGKILL or in good order, and starts it again on the same port. Blocks until it answers.
    pub fn restart(&mut self, kill: bool) -> Result<(), Failure> {
        if kill {
            self.run("kill", &[])?;
        }
        // After a kill it waits until the process is gone.
        self.run("down", &[])?;
        self.up()
    }

    /// Where it answers.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A broker's address with one of its virtual hosts.
    pub fn amqp(&self, vhost: u32) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/t{vhost}", self.port)
    }

    /// A Redis's address with one of its databases.
    pub fn redis_url(&self, db: u32) -> String {
        format!("redis://127.0.0.1:{}/{db}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.run("down", &[]);
    }
}

/// A plain connection to a Redis.
pub async fn redis_connection(url: &str) -> Result<MultiplexedConnection, Failure> {
    let config = AsyncConnectionConfig::new();
    Ok(Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Tells a Redis that it is new: what it does not know was never there, so that nothing need be waited for.
pub async fn declare_new(url: &str, prefix: &str) -> Result<(), Failure> {
    let mut connection = redis_connection(url).await?;
    let info: String = cmd("INFO").arg("server").query_async(&mut connection).await?;
    let life = info.lines().find_map(|line| line.strip_prefix("run_id:")).ok_or("a Redis without a run_id")?;
    let mut set = cmd("HSET");
    set.arg(format!("{prefix}clock")).arg("wall").arg(0).arg("now").arg(0).arg("settled").arg(0);
    let _: u64 = set.arg("server").arg(life.trim()).query_async(&mut connection).await?;
    Ok(())
}
