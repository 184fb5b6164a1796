//! Echo bots on Telegram, held by python-telegram-bot and by shardvisor, measured one after the other in one run.

use std::{io, path::PathBuf, process::ExitCode, time::Duration};

use bench::{
    measure::{Extent, Stage, measure_all},
    subject::{Platform, Subject},
    table,
};
use clap::Parser;
use simulators::{
    TimedOut,
    telegram::{BotHandle, Telegram},
    traffic::{Network, TelegramBots},
};

/// The Bot API's simulator, and bots on it.
struct Bots(Telegram, Vec<BotHandle>);

impl Bots {
    async fn start(bots: usize) -> io::Result<Self> {
        let telegram = Telegram::start().await?;
        telegram.keep(50);
        let bots = (0..bots).map(|_| telegram.add_bot()).collect();
        Ok(Self(telegram, bots))
    }
}

impl Stage for Bots {
    fn scene(&self) -> (String, Vec<String>) {
        (self.0.url(), self.1.iter().map(|bot| bot.token().to_owned()).collect())
    }

    async fn connected(&self, within: Duration) -> Result<(), TimedOut> {
        self.0.wait_for_polls(self.1.len(), within).await
    }

    fn people(&self) -> Vec<Box<dyn Network>> {
        vec![Box::new(TelegramBots::new(&self.0, &self.1))]
    }
}

/// Holds many Telegram bots in one process, in several ways, and prints what each costs.
#[derive(Debug, Parser)]
struct Arguments {
    /// A release build of shardvisor; without it only the peers are measured
    #[arg(long, value_name = "FILE")]
    daemon: Option<PathBuf>,
    /// A Python that has python-telegram-bot; without it only shardvisor is measured
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// How many bots
    #[arg(long, default_value_t = 1000)]
    bots: usize,
    /// Messages in a second, over all bots
    #[arg(long, default_value_t = 100.0)]
    rate: f64,
    /// Seconds of silence that are measured; more than the longest poll takes, or polls are not in it
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Seconds of load that are measured
    #[arg(long, default_value_t = 20)]
    load: u64,
    /// Seconds in which all bots must poll
    #[arg(long, default_value_t = 900)]
    connect: u64,
    /// Leave out python-telegram-bot as documented, which takes minutes to start 1,000 bots
    #[arg(long)]
    quick: bool,
}

async fn run(arguments: Arguments) -> ExitCode {
    // They run in directories of their own. Links stay: a Python finds its packages by the path it was called by.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let mut subjects = Vec::new();
    if let Some(python) = arguments.python.map(absolute) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/telegram/ptb.py");
        let built = |name, how: &str| {
            Subject::script(name, Platform::Telegram, python.clone(), vec![script.into(), how.into()])
        };
        if !arguments.quick {
            subjects.push(built("python-telegram-bot, as documented", "documented"));
        }
        subjects.push(built("python-telegram-bot, tuned", "tuned"));
    }
    const DAEMON: &str = "shardvisor, one shard";
    subjects.extend(arguments.daemon.map(|daemon| Subject::daemon(DAEMON, Platform::Telegram, absolute(daemon))));
    if subjects.is_empty() {
        eprintln!("bench-telegram: nothing to measure: give --daemon, --python or both");
        return ExitCode::from(64);
    }
    let extent = Extent {
        rate: arguments.rate,
        connect: Duration::from_secs(arguments.connect),
        settle: Duration::from_secs(5),
        idle: Duration::from_secs(arguments.idle),
        load: Duration::from_secs(arguments.load),
        burst: 0,
    };
    let measured = match measure_all(&subjects, &extent, async || Bots::start(arguments.bots).await).await {
        Ok(measured) => measured,
        Err((name, failed)) => {
            eprintln!("bench-telegram: {name}: {failed}");
            return ExitCode::FAILURE;
        }
    };
    println!("{} bots, {} messages/s for {} s\n", arguments.bots, extent.rate, arguments.load);
    let base = measured.iter().find(|one| one.name == DAEMON);
    println!("{}", table::table(&measured, base));
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => {
            eprintln!("bench-telegram: {error}");
            ExitCode::FAILURE
        }
    }
}
