//! One subject measured: start, silence, load.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use simulators::{
    TimedOut,
    traffic::{Network, Plan, Summary, Traffic},
};

use crate::{
    process::cost,
    subject::{Scene, Subject},
};

/// Why a subject could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// Something around it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It was too slow.
    #[error("not all bots connected ({0}); the end of its log:\n{1}")]
    NotConnected(TimedOut, String),
    /// It ended by itself.
    #[error("it ended with {0}; the end of its log:\n{1}")]
    Ended(std::process::ExitStatus, String),
}

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Messages in a second, over all bots.
    pub rate: f64,
    /// In which time all must be connected.
    pub connect: Duration,
    /// How long it is left alone before memory is looked at.
    pub settle: Duration,
    /// The silence that is measured.
    pub idle: Duration,
    /// The load that is measured.
    pub load: Duration,
    /// How many people of each bot speak at the same moment at the end; 0 for none.
    pub burst: usize,
}

/// What a subject came to.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Whose figures these are.
    pub name: &'static str,
    /// Processes, descendants included.
    pub processes: usize,
    /// From its start until all were connected.
    pub start: Duration,
    /// What that took.
    pub start_cpu: Duration,
    /// Memory in silence.
    pub rss_idle: u64,
    /// Memory after the load.
    pub rss_loaded: u64,
    /// Memory after a burst, where there was one.
    pub rss_burst: Option<u64>,
    /// Of one core, 0.03 = 3 %.
    pub idle_cores: f64,
    /// All CPU while it was loaded, divided by the echoes.
    pub cpu_per_echo: Duration,
    /// The same without what it takes when idle.
    pub net_cpu_per_echo: Duration,
    /// What became of the messages.
    pub summary: Summary,
}

/// A simulator with bots on it.
pub trait Stage {
    /// Where it is, and the tokens of its bots.
    fn scene(&self) -> (String, Vec<String>);

    /// Waits until all bots are connected at once.
    fn connected(&self, within: Duration) -> impl Future<Output = Result<(), TimedOut>>;

    /// The bots, for people who chat with them.
    fn people(&self) -> Vec<Box<dyn Network>>;
}

/// Measures it from its start to its end.
pub async fn measure(subject: &Subject, stage: &impl Stage, extent: &Extent) -> Result<Measured, Failed> {
    let (url, tokens) = stage.scene();
    let scene = Scene { url, tokens, directory: tempfile::tempdir()? };
    let ready = subject.prepare(&scene)?;
    let log = scene.directory.path().join("log");

    let started = Instant::now();
    let mut running = ready.run(&log)?;
    let pid = running.pid();
    if let Err(late) = stage.connected(extent.connect).await {
        return Err(match running.ended()? {
            Some(status) => Failed::Ended(status, tail(&log)),
            None => Failed::NotConnected(late, tail(&log)),
        });
    }
    let start = started.elapsed();
    let start_cpu = cost(pid)?.cpu;

    tokio::time::sleep(extent.settle).await;
    let before = cost(pid)?;
    let clock = Instant::now();
    tokio::time::sleep(extent.idle).await;
    let after = cost(pid)?;
    let idle_cores = (after.cpu - before.cpu).as_secs_f64() / clock.elapsed().as_secs_f64();

    // First use of each path is not what a running system pays.
    let warm = Traffic::start(stage.people(), Plan::at_rate(1, extent.rate), |_| {});
    tokio::time::sleep(extent.load / 5).await;
    warm.stop().await;

    let before = cost(pid)?;
    let clock = Instant::now();
    let traffic = Traffic::start(stage.people(), Plan::at_rate(1, extent.rate), |_| {});
    tokio::time::sleep(extent.load).await;
    let mut summary = traffic.stop().await;
    let loaded = cost(pid)?;
    let cpu = (loaded.cpu - before.cpu).as_secs_f64();
    let net = (cpu - idle_cores * clock.elapsed().as_secs_f64()).max(0.0);
    let echoes = (summary.answered + summary.duplicated).max(1) as f64;

    let mut rss_burst = None;
    if extent.burst > 0 {
        // Everybody speaks at once.
        let plan = Plan {
            users_per_bot: extent.burst,
            think: Duration::ZERO..=Duration::ZERO,
            grace: Duration::from_secs(120),
            ..Plan::default()
        };
        let burst = Traffic::start(stage.people(), plan, |_| {});
        // All have spoken by then; who is answered sooner speaks once more.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let burst = burst.stop().await;
        summary.received += burst.received;
        summary.answered += burst.answered;
        summary.lost += burst.lost;
        summary.duplicated += burst.duplicated;
        summary.out_of_order += burst.out_of_order;
        tokio::time::sleep(extent.settle).await;
        rss_burst = Some(cost(pid)?.rss_bytes);
    }
    if let Some(status) = running.ended()? {
        return Err(Failed::Ended(status, tail(&log)));
    }
    Ok(Measured {
        name: subject.name,
        processes: loaded.processes,
        start,
        start_cpu,
        rss_idle: after.rss_bytes,
        rss_loaded: loaded.rss_bytes,
        rss_burst,
        idle_cores,
        cpu_per_echo: Duration::from_secs_f64(cpu / echoes),
        net_cpu_per_echo: Duration::from_secs_f64(net / echoes),
        summary,
    })
}

/// Measures one after the other, each on a stage of its own.
pub async fn measure_all<S: Stage>(
    subjects: &[Subject],
    extent: &Extent,
    stage: impl AsyncFn() -> io::Result<S>,
) -> Result<Vec<Measured>, (&'static str, Failed)> {
    let mut measured = Vec::new();
    for subject in subjects {
        eprintln!("measuring {} …", subject.name);
        let failed = |failed| (subject.name, failed);
        let stage = stage().await.map_err(|error| failed(error.into()))?;
        measured.push(measure(subject, &stage, extent).await.map_err(failed)?);
    }
    Ok(measured)
}

fn tail(log: &std::path::Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
