//! `shardvisor demo`: the real daemon against the platforms' simulators, on loopback, in a data directory that goes when
//! it ends.
//!
//! The daemon is a process of its own (this binary once more, as `run`), so that what is shown is what runs elsewhere.
//! Only the simulators and the people who chat live in this process: they judge what was answered.

mod stage;

use std::{
    collections::BTreeSet,
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use shard::{
    clock::SystemClock,
    directory::{ChannelSpec, Handler, store::StoreDirectory},
    platform::PlatformKind,
    store::BoxStore,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook_tokio::Signals;
use simulators::traffic::{Outcome, Plan, Summary, Told, Traffic};

use self::stage::Stage;
use super::print;
use crate::{cli::Demo, config::plain, exit::Failure};

/// How long all channels may take to connect.
const CONNECT: Duration = Duration::from_secs(60);
/// How long the daemon may take to end.
const END: Duration = Duration::from_secs(30);

/// Runs it. Fails when a message was lost or answered twice.
pub(super) fn run(options: &Demo) -> Result<(), Failure> {
    let wanted: BTreeSet<PlatformKind> = options.platforms.iter().copied().collect();
    if let Some(other) = wanted.iter().find(|platform| !stage::SHOWN.contains(platform)) {
        let shown = stage::SHOWN.map(|platform| platform.to_string()).join(" or ");
        let problem = format!("--platforms: {other} is not built into this version: expected {shown}");
        return Err(Failure::Usage(problem));
    }
    if (options.channels as usize) < wanted.len() {
        return Err(Failure::Usage(format!(
            "--channels: expected at least one for each of {} platforms",
            wanted.len()
        )));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| internal("no runtime", &error))?;
    runtime.block_on(async {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| internal("no signals", &error))?;
        // Dropped half way, the play takes its daemon and its files along.
        tokio::select! {
            played = play(options, &wanted) => played,
            Some(_) = signals.next() => Err(Failure::Demo("interrupted".to_owned())),
        }
    })
}

fn internal(what: &str, error: &std::io::Error) -> Failure {
    Failure::Internal(format!("{what}: {}", plain(error)))
}

async fn play(options: &Demo, wanted: &BTreeSet<PlatformKind>) -> Result<(), Failure> {
    let home = tempfile::tempdir().map_err(|error| internal("no temporary directory", &error))?;
    let stage =
        Stage::build(options.channels as usize, wanted).await.map_err(|error| internal("no simulator", &error))?;
    add_channels(&home.path().join("data"), &stage).await?;

    let mut daemon = Daemon::start(home.path(), &stage, options.shards)?;
    let began = Instant::now();
    tokio::select! {
        connected = stage.wait_for_all(CONNECT) => {
            connected.map_err(|_| Failure::Demo(format!("not all channels connected within {CONNECT:?}")))?;
        }
        ended = daemon.ended() => return Err(Failure::Demo(format!("the daemon ended: {ended}"))),
    }
    let connected_in = began.elapsed();
    if !options.json {
        let (channels, shards) = (options.channels, options.shards);
        print(format!("{channels} channels on {shards} shards, all connected in {:.1} s", connected_in.as_secs_f64()))?;
    }

    // A chat takes about a message a second: faster people would only wait for the rate limit.
    let rate = options.rate.unwrap_or_else(|| (f64::from(options.channels) * 0.5).min(50.0));
    let plan = Plan::at_rate(1, rate);
    let quiet = options.json;
    let traffic = Traffic::start(stage.networks(), plan, move |told| {
        if !quiet {
            tell(told);
        }
    });
    let ended_early = tokio::select! {
        () = tokio::time::sleep(options.time) => None,
        ended = daemon.ended() => Some(ended),
    };
    let summary = traffic.stop().await;
    daemon.stop()?;
    if let Some(ended) = ended_early {
        return Err(Failure::Demo(format!("the daemon ended: {ended}")));
    }
    report(options, &summary, connected_in)
}

async fn add_channels(data_dir: &Path, stage: &Stage) -> Result<(), Failure> {
    let shared = BoxStore::open(data_dir, Arc::new(SystemClock)).map_err(super::data::store_failure)?;
    let opened = StoreDirectory::open(shared, &data_dir.join("secret.key"));
    let directory = opened.map_err(|error| Failure::Internal(error.to_string()))?;
    for (number, channel) in stage.channels().iter().enumerate() {
        let spec = ChannelSpec {
            id: channel.id,
            platform: channel.platform,
            token: channel.token.clone(),
            handler: Handler::Echo,
            enabled: true,
            label: Some(format!("demo bot {number}")),
        };
        directory.put(&spec).await.map_err(|error| Failure::Internal(error.to_string()))?;
    }
    Ok(())
}

/// One line for each message. Whoever reads it may have gone away, which is no reason to stop.
fn tell(told: &Told) {
    let judged = match &told.outcome {
        Outcome::Answered { latency, .. } => format!("answered in {:.1} ms", latency.as_secs_f64() * 1e3),
        other => format!("{other:?}").to_lowercase(),
    };
    let _ = writeln!(std::io::stdout(), "bot {:>3}  {:?}  {judged}", told.bot, told.text);
}

fn report(options: &Demo, summary: &Summary, connected_in: Duration) -> Result<(), Failure> {
    if options.json {
        print(json!({
            "received": summary.received, "answered": summary.answered, "lost": summary.lost,
            "duplicated": summary.duplicated, "out_of_order": summary.out_of_order,
            "p50_ms": summary.p50_ms, "p99_ms": summary.p99_ms,
            "channels": options.channels, "shards": options.shards, "connected_s": connected_in.as_secs_f64(),
        }))?;
    } else {
        print(format!(
            "{} messages in, {} answered once, lost = {}, doubled = {}, out of order = {}; p50 {:.1} ms, p99 {:.1} ms",
            summary.received,
            summary.answered,
            summary.lost,
            summary.duplicated,
            summary.out_of_order,
            summary.p50_ms,
            summary.p99_ms,
        ))?;
    }
    if summary.is_clean() && summary.received > 0 {
        Ok(())
    } else {
        Err(Failure::Demo("a message was lost, doubled or answered out of order".to_owned()))
    }
}

/// The daemon of the demo.
struct Daemon {
    child: Child,
}

impl Daemon {
    /// Starts `shardvisor run` in an environment of its own: no file in /etc is read, no setting of the caller taken.
    fn start(home: &Path, stage: &Stage, shards: u32) -> Result<Self, Failure> {
        let config = home.join("demo.toml");
        std::fs::write(&config, "").map_err(|error| internal("the demo's configuration", &error))?;
        let program = std::env::current_exe().map_err(|error| internal("this program's own path", &error))?;
        let child = Command::new(program)
            .arg("run")
            .arg("--config")
            .arg(&config)
            .env_clear()
            .env("SHARDVISOR_DATA_DIR", home.join("data"))
            .envs(stage.settings())
            .env("SHARDVISOR_LOG_LEVEL", "warn")
            .env("SHARDVISOR_HEALTH_BIND", "127.0.0.1")
            .env("SHARD_COUNT", shards.to_string())
            .env("HEALTH_PORT", "0")
            .env("BOT_WORKER_STARTUP_JITTER_MAX", "1s")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| internal("the daemon", &error))?;
        Ok(Self { child })
    }

    /// Returns when it has ended by itself.
    async fn ended(&mut self) -> String {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => return plain(&error),
            }
        }
    }

    fn stop(&mut self) -> Result<(), Failure> {
        // Refused only when it has ended already.
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let deadline = Instant::now() + END;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(Failure::Demo(format!("the daemon ended with {status}"))),
                Ok(None) => std::thread::park_timeout(Duration::from_millis(20)),
                Err(error) => return Err(internal("the daemon", &error)),
            }
        }
        Err(Failure::Demo(format!("the daemon did not end within {END:?}")))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // In good order even then: nothing of it may write any more when its directory goes.
        if matches!(self.child.try_wait(), Ok(None)) && self.stop().is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
