//! One subject measured: start, silence, load.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use simulators::{
    TimedOut,
    telegram::Telegram,
    traffic::{Plan, Summary, TelegramBots, Traffic},
};

use super::{
    process::cost,
    subject::{Scene, Subject},
};

/// Why a subject could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("not all bots polled ({0}); the end of its log:\n{1}")]
    NotPolling(TimedOut, String),
    #[error("it ended with {0}; the end of its log:\n{1}")]
    Ended(std::process::ExitStatus, String),
}

/// How much is measured.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    pub(crate) bots: usize,
    pub(crate) rate: f64,
    pub(crate) connect: Duration,
    pub(crate) settle: Duration,
    pub(crate) idle: Duration,
    pub(crate) load: Duration,
}

/// What a subject came to.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) processes: usize,
    pub(crate) start: Duration,
    pub(crate) start_cpu: Duration,
    pub(crate) rss_idle: u64,
    pub(crate) rss_loaded: u64,
    /// Of one core, 0.03 = 3 %.
    pub(crate) idle_cores: f64,
    /// All CPU while it was loaded, divided by the echoes.
    pub(crate) cpu_per_echo: Duration,
    /// The same without what it takes when idle.
    pub(crate) net_cpu_per_echo: Duration,
    pub(crate) summary: Summary,
}

/// Measures it from its start to its end.
pub(crate) async fn measure(subject: &Subject, extent: &Extent) -> Result<Measured, Failed> {
    let telegram = Telegram::start().await?;
    telegram.keep(50);
    let bots: Vec<_> = (0..extent.bots).map(|_| telegram.add_bot()).collect();
    let tokens = bots.iter().map(|bot| bot.token().to_owned()).collect();
    let scene = Scene { url: telegram.url(), tokens, directory: tempfile::tempdir()? };
    let ready = subject.prepare(&scene)?;
    let log = scene.directory.path().join("log");

    let started = Instant::now();
    let mut running = ready.run(&log)?;
    let pid = running.pid();
    if let Err(late) = telegram.wait_for_polls(extent.bots, extent.connect).await {
        return Err(match running.ended()? {
            Some(status) => Failed::Ended(status, tail(&log)),
            None => Failed::NotPolling(late, tail(&log)),
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

    let people =
        || -> Vec<Box<dyn simulators::traffic::Network>> { vec![Box::new(TelegramBots::new(&telegram, &bots))] };
    // First use of each path is not what a running system pays.
    let warm = Traffic::start(people(), Plan::at_rate(1, extent.rate), |_| {});
    tokio::time::sleep(extent.load / 5).await;
    warm.stop().await;

    let before = cost(pid)?;
    let clock = Instant::now();
    let traffic = Traffic::start(people(), Plan::at_rate(1, extent.rate), |_| {});
    tokio::time::sleep(extent.load).await;
    let summary = traffic.stop().await;
    let loaded = cost(pid)?;
    let cpu = (loaded.cpu - before.cpu).as_secs_f64();
    let net = (cpu - idle_cores * clock.elapsed().as_secs_f64()).max(0.0);
    let echoes = (summary.answered + summary.duplicated).max(1) as f64;
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
        idle_cores,
        cpu_per_echo: Duration::from_secs_f64(cpu / echoes),
        net_cpu_per_echo: Duration::from_secs_f64(net / echoes),
        summary,
    })
}

fn tail(log: &std::path::Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
