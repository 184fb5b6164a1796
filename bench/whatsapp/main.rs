//! Linked devices on WhatsApp, all in one shard: how soon they are logged in, what they cost in silence and under load, and
//! what a storm of history does to those who only chat.
//!
//! The daemon is a loopback build. Each device is linked first, which is not measured; then the daemon is started again.

use std::{
    io,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use bench::{linked::Home, process::cost};
use clap::Parser;
use simulators::{
    traffic::{Plan, Summary, Traffic, WhatsAppAccounts},
    whatsapp::{History, Phone, WhatsApp},
};

/// How long all devices may take to be linked.
const LINKING: Duration = Duration::from_secs(1200);

/// Holds many linked devices in one shard, and prints what they cost.
#[derive(Debug, Parser)]
struct Arguments {
    /// A release build of shardvisor with the feature `loopback`
    #[arg(long, value_name = "FILE")]
    daemon: PathBuf,
    /// How many channels
    #[arg(long, default_value_t = 1000)]
    channels: usize,
    /// One-time keys of each device at the server
    #[arg(long, default_value_t = 812)]
    pre_keys: u32,
    /// Messages in a second, over all channels
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// Seconds of silence that are measured
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Seconds of load that are measured
    #[arg(long, default_value_t = 20)]
    load: u64,
    /// Channels whose phones hand over their history at the same moment, on two shards; 0 for none
    #[arg(long, default_value_t = 50)]
    storm: usize,
    /// Chats of each of those histories, of a hundred messages each
    #[arg(long, default_value_t = 50)]
    chats: usize,
    /// Exit with 1 when a bar is missed
    #[arg(long)]
    bars: bool,
}

/// What a run came to, and its bar.
struct Figure {
    what: &'static str,
    seen: String,
    bar: Option<(String, bool)>,
}

fn row(what: &'static str, seen: String, bar: Option<(&str, bool)>) -> Figure {
    Figure { what, seen, bar: bar.map(|(bar, met)| (bar.to_owned(), met)) }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

fn late(error: &simulators::TimedOut) -> io::Error {
    io::Error::other(error.to_string())
}

async fn chat(server: &WhatsApp, accounts: &[Phone], plan: Plan, time: Duration) -> Summary {
    let traffic = Traffic::start(vec![Box::new(WhatsAppAccounts::new(server, accounts))], plan, |_| {});
    tokio::time::sleep(time).await;
    traffic.stop().await
}

/// One shard, from its start to the end of the load.
async fn one_shard(arguments: &Arguments) -> io::Result<Vec<Figure>> {
    let (idle, load) = (Duration::from_secs(arguments.idle), Duration::from_secs(arguments.load));
    let empty = {
        let server = WhatsApp::start().await?;
        let home = Home::new(&arguments.daemon, &server, arguments.pre_keys)?;
        let daemon = home.start(1, None)?;
        daemon.ready(Duration::from_secs(30)).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let bare = cost(daemon.pid())?.rss_bytes;
        daemon.stop().await?;
        bare
    };
    let server = WhatsApp::start().await?;
    server.keep(1000);
    let home = Home::new(&arguments.daemon, &server, arguments.pre_keys)?;
    let accounts = home.add(&server, arguments.channels)?;
    let began = Instant::now();
    home.link(&server, &accounts, 1, LINKING).await?;
    let linking = began.elapsed();

    let began = Instant::now();
    let daemon = home.start(1, None)?;
    let all = server.wait_for_devices(arguments.channels, Duration::from_secs(300)).await;
    let login = began.elapsed();
    let login_cpu = cost(daemon.pid())?.cpu;
    all.map_err(|error| late(&error))?;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let before = cost(daemon.pid())?;
    let clock = Instant::now();
    tokio::time::sleep(idle).await;
    let after = cost(daemon.pid())?;
    let cores = (after.cpu - before.cpu).as_secs_f64() / clock.elapsed().as_secs_f64();

    let plan = Plan::at_rate(1, arguments.rate);
    // The first message of a chat makes a session.
    chat(&server, &accounts, plan.clone(), load).await;
    let before = cost(daemon.pid())?;
    let clock = Instant::now();
    let summary = chat(&server, &accounts, plan, load).await;
    let loaded = cost(daemon.pid())?;
    let net = ((loaded.cpu - before.cpu).as_secs_f64() - cores * clock.elapsed().as_secs_f64()).max(0.0);
    daemon.stop().await?;

    let each = after.rss_bytes.saturating_sub(empty) / 1024 / arguments.channels as u64;
    let login_s = login.as_secs_f64();
    Ok(vec![
        row("linked by a scanned code, all", format!("{:.1} s", linking.as_secs_f64()), None),
        row("from start to all logged in", format!("{login_s:.1} s"), Some(("20 s", login_s <= 20.0))),
        row("CPU for that", format!("{:.1} s", login_cpu.as_secs_f64()), None),
        row("memory without channels", format!("{:.1} MB", megabytes(empty)), None),
        row("memory with all of them, idle", format!("{:.1} MB", megabytes(after.rss_bytes)), None),
        row("memory for each idle channel", format!("{each} KB"), Some(("350 KB", each <= 350))),
        row("idle CPU, of one core", format!("{:.1} %", cores * 100.0), Some(("3 %", cores <= 0.03))),
        row("memory after the load", format!("{:.1} MB", megabytes(loaded.rss_bytes)), None),
        row("CPU an echo", format!("{:.2} ms", net * 1e3 / summary.answered.max(1) as f64), None),
        row("echo, p50 / p99", format!("{:.1} / {:.1} ms", summary.p50_ms, summary.p99_ms), None),
        row(
            "answered once / lost / doubled",
            format!("{} / {} / {}", summary.answered, summary.lost, summary.duplicated),
            Some(("none lost or doubled", summary.is_clean())),
        ),
    ])
}

/// Two shards: histories come on one of them while the quiet ones of both chat.
async fn storm(arguments: &Arguments) -> io::Result<Vec<Figure>> {
    let server = WhatsApp::start().await?;
    server.keep(1000);
    let home = Home::new(&arguments.daemon, &server, arguments.pre_keys)?;
    let quiet = home.add_to(&server, 0, 20)?;
    let beside = home.add_to(&server, 1, 20)?;
    let stormy = home.add_to(&server, 1, arguments.storm)?;
    let all: Vec<Phone> = [&quiet[..], &beside, &stormy].concat();
    home.link(&server, &all, 2, LINKING).await?;
    let daemon = home.start(2, None)?;
    server.wait_for_devices(all.len(), Duration::from_secs(60)).await.map_err(|error| late(&error))?;
    tokio::time::sleep(Duration::from_secs(5)).await;

    let plan = Plan::at_rate(1, 20.0);
    let time = Duration::from_secs(arguments.load.max(10));
    chat(&server, &[&quiet[..], &beside].concat(), plan.clone(), time).await;
    let calm = chat(&server, &beside, plan.clone(), time).await;
    let handed_over = async {
        let each = stormy.iter().map(|phone| async move {
            let chats: Vec<History> = (0..arguments.chats)
                .map(|n| History::of(&format!("4479{n:08}@s.whatsapp.net"), "an old friend", 100))
                .collect();
            let device = phone.devices().into_iter().next();
            match device {
                Some(device) => phone.hand_over(&device, chats).await.is_ok(),
                None => false,
            }
        });
        futures_util::future::join_all(each).await.into_iter().filter(|handed| *handed).count()
    };
    let (given, same, other) =
        tokio::join!(handed_over, chat(&server, &beside, plan.clone(), time), chat(&server, &quiet, plan, time));
    daemon.stop().await?;
    let messages = given * arguments.chats * 100;
    Ok(vec![
        row("histories at once", format!("{given}, {messages} messages"), None),
        row("echo without a storm, p50 / p99", format!("{:.1} / {:.1} ms", calm.p50_ms, calm.p99_ms), None),
        row(
            "echo beside the storm, same shard, p50 / p99",
            format!("{:.1} / {:.1} ms", same.p50_ms, same.p99_ms),
            Some(("250 ms", same.p99_ms <= 250.0 && same.is_clean())),
        ),
        row(
            "echo beside the storm, other shard, p50 / p99",
            format!("{:.1} / {:.1} ms", other.p50_ms, other.p99_ms),
            Some(("250 ms", other.p99_ms <= 250.0 && other.is_clean())),
        ),
    ])
}

fn print(title: &str, figures: &[Figure]) {
    println!("{title}\n\n| | seen | bar |\n|---|---:|---:|");
    for figure in figures {
        let bar = match &figure.bar {
            Some((bar, true)) => bar.clone(),
            Some((bar, false)) => format!("{bar} (missed)"),
            None => String::new(),
        };
        println!("| {} | {} | {bar} |", figure.what, figure.seen);
    }
    println!();
}

async fn run(arguments: &Arguments) -> io::Result<bool> {
    let mut met = true;
    let mut show = |title: String, figures: Vec<Figure>| {
        met &= figures.iter().all(|figure| figure.bar.as_ref().is_none_or(|(_, met)| *met));
        print(&title, &figures);
    };
    if arguments.channels > 0 {
        let title = format!("{} linked channels in one shard, {} messages/s", arguments.channels, arguments.rate);
        show(title, one_shard(arguments).await?);
    }
    if arguments.storm > 0 {
        show(format!("{} histories on one of two shards", arguments.storm), storm(arguments).await?);
    }
    Ok(met)
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    arguments.daemon = std::path::absolute(&arguments.daemon).unwrap_or(arguments.daemon);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(run(&arguments))) {
        Ok(met) if met || !arguments.bars => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-whatsapp: {error}");
            ExitCode::FAILURE
        }
    }
}
