//! What is measured, one after the other on the same servers: a queue is filled, and a process of its own empties it.

use std::{
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use bench::{
    process::{Cost, cost},
    stand::{Failure, child::Running, servers::Server},
};
use clap::ValueEnum;
use shard::queue::{AmqpConfig, AmqpQueue, EmbeddedQueue, Queue};

use super::worker::{Role, spread};

/// No subject takes longer for anything.
const LONGEST: Duration = Duration::from_secs(300);

/// The servers, and how much is done.
pub(crate) struct Stand {
    pub(crate) rabbit: Server,
    pub(crate) redis: Server,
    pub(crate) within: PathBuf,
    pub(crate) jobs: u32,
    pub(crate) prefetch: u16,
}

/// What a subject came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    pub(crate) jobs: f64,
    pub(crate) seconds: f64,
    pub(crate) cpu: f64,
    pub(crate) rss: f64,
}

/// One way to do jobs.
pub(crate) enum Subject {
    /// This program in a role.
    Shard { name: &'static str, role: Role, shards: u32 },
    /// The foreign one.
    Bullmq { dir: PathBuf },
}

impl Subject {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Shard { name, .. } => name,
            Self::Bullmq { .. } => "BullMQ, Node 20 + Redis",
        }
    }

    /// One run; `place` is a virtual host that no other run uses.
    pub(crate) async fn measure(&self, stand: &Stand, place: u32) -> Result<Measured, Failure> {
        match self {
            Self::Shard { role, shards, .. } => stand.shards(*role, *shards, place).await,
            Self::Bullmq { dir } => stand.bullmq(dir),
        }
    }
}

impl Stand {
    /// A producer to the queues of a virtual host.
    pub(crate) fn producer(&self, place: u32) -> Result<Arc<dyn Queue>, Failure> {
        Ok(Arc::new(AmqpQueue::new(AmqpConfig::new([self.rabbit.amqp(place).as_str()])?)))
    }

    /// This program as one of the measured processes.
    pub(crate) fn worker(&self, role: Role, place: u32) -> Result<Command, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        let role = role.to_possible_value().ok_or("a role without a name")?;
        command.args(["work", "--role", role.get_name(), "--prefetch", &self.prefetch.to_string()]);
        command.args(["--queue-url", &self.rabbit.amqp(place), "--registry-url", &self.redis.redis_url(0)]);
        command.args(["--prefix", &format!("run-{place}:")]);
        Ok(command)
    }

    async fn shards(&self, role: Role, shards: u32, place: u32) -> Result<Measured, Failure> {
        let dir = tempfile::tempdir_in(&self.within)?;
        let queue: Arc<dyn Queue> = match role {
            Role::Embedded => Arc::new(EmbeddedQueue::producer(dir.path())),
            Role::Raw | Role::Broker => self.producer(place)?,
        };
        let spread = spread(shards);
        spread.fill(queue.clone(), self.jobs * shards).await?;
        let mut commands = Vec::new();
        for index in 0..shards {
            let mut command = self.worker(role, place)?;
            command.arg("--dir").arg(dir.path()).args(["--jobs", &self.jobs.to_string()]);
            command.args(["--index", &index.to_string(), "--shards", &shards.to_string()]);
            commands.push(command);
        }
        // Waiting blocks, and the producer's connections must go on meanwhile.
        let jobs = self.jobs;
        let measured = tokio::task::spawn_blocking(move || measure(commands, jobs)).await??;
        match spread.left(&*queue).await? {
            0 => Ok(measured),
            left => Err(format!("{left} jobs are left, though all were done").into()),
        }
    }

    fn bullmq(&self, dir: &std::path::Path) -> Result<Measured, Failure> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/queue/bullmq/worker.mjs");
        let command = |role: &str| {
            let mut command = Command::new("node");
            command.args([script, role, &self.jobs.to_string()]);
            command.env("REDIS_PORT", self.redis.port().to_string()).env("BULLMQ_DIR", dir);
            command.env("NODE_ENV", "production");
            command
        };
        if !command("fill").status()?.success() {
            return Err("BullMQ's queue could not be filled".into());
        }
        measure(vec![command("work")], self.jobs)
    }
}

/// From the first job of the first process to the last job of the last one.
fn measure(commands: Vec<Command>, jobs_each: u32) -> Result<Measured, Failure> {
    let mut running = Vec::new();
    for mut command in commands {
        running.push(Running::start(&mut command)?);
    }
    let sum = |running: &[Running]| -> Result<Cost, Failure> {
        let mut sum = Cost::default();
        for process in running {
            let one = cost(process.pid())?;
            sum.cpu += one.cpu;
            sum.rss_bytes += one.rss_bytes;
        }
        Ok(sum)
    };
    running[0].says("first", LONGEST)?;
    let (began, before) = (Instant::now(), sum(&running)?);
    for process in &running {
        process.says("done", LONGEST)?;
    }
    let (took, after) = (began.elapsed(), sum(&running)?);
    let measured = Measured {
        jobs: f64::from(jobs_each) * running.len() as f64,
        seconds: took.as_secs_f64(),
        cpu: (after.cpu - before.cpu).as_secs_f64(),
        rss: after.rss_bytes as f64,
    };
    for process in running {
        process.end()?;
    }
    Ok(measured)
}
