//! Echo bots on Telegram, held by python-telegram-bot and by shardvisor, measured one after the other in one run.

mod measure;
mod process;
mod subject;
mod table;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;

use self::{
    measure::{Extent, Measured, measure},
    subject::Subject,
};

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
        if !arguments.quick {
            subjects.push(Subject::python("python-telegram-bot, as documented", python.clone(), "documented"));
        }
        subjects.push(Subject::python("python-telegram-bot, tuned", python, "tuned"));
    }
    const DAEMON: &str = "shardvisor, one shard";
    subjects.extend(arguments.daemon.map(|daemon| Subject::daemon(DAEMON, absolute(daemon))));
    if subjects.is_empty() {
        eprintln!("bench-telegram: nothing to measure: give --daemon, --python or both");
        return ExitCode::from(64);
    }
    let extent = Extent {
        bots: arguments.bots,
        rate: arguments.rate,
        connect: Duration::from_secs(arguments.connect),
        settle: Duration::from_secs(5),
        idle: Duration::from_secs(arguments.idle),
        load: Duration::from_secs(arguments.load),
    };
    let mut measured: Vec<Measured> = Vec::new();
    for subject in &subjects {
        eprintln!("measuring {} …", subject.name);
        match measure(subject, &extent).await {
            Ok(one) => measured.push(one),
            Err(failed) => {
                eprintln!("bench-telegram: {}: {failed}", subject.name);
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{} bots, {} messages/s for {} s\n", extent.bots, extent.rate, arguments.load);
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
