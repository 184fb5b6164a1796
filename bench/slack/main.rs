//! Echo bots on Slack, held by Bolt and by shardvisor, measured one after the other in one run.

use std::{io, path::PathBuf, process::ExitCode, time::Duration};

use bench::{
    measure::{Extent, Stage, measure_all},
    subject::{Platform, Subject},
    table,
};
use clap::Parser;
use simulators::{
    TimedOut,
    slack::{AppHandle, Slack},
    traffic::{Network, SlackApps},
};

/// Slack's simulator, and apps on it.
struct Apps(Slack, Vec<AppHandle>);

impl Apps {
    async fn start(apps: usize) -> io::Result<Self> {
        let slack = Slack::start().await?;
        slack.keep(50);
        let apps = (0..apps).map(|_| slack.add_app()).collect();
        Ok(Self(slack, apps))
    }
}

impl Stage for Apps {
    fn scene(&self) -> (String, Vec<String>) {
        let both = |app: &AppHandle| format!("{} {}", app.app_token(), app.bot_token());
        (self.0.api_url(), self.1.iter().map(both).collect())
    }

    async fn connected(&self, within: Duration) -> Result<(), TimedOut> {
        self.0.wait_for_apps(self.1.len(), within).await
    }

    fn people(&self) -> Vec<Box<dyn Network>> {
        vec![Box::new(SlackApps::new(&self.0, &self.1))]
    }
}

/// Holds many Slack apps in one process, in several ways, and prints what each costs.
#[derive(Debug, Parser)]
struct Arguments {
    /// A release build of shardvisor; without it only the peers are measured
    #[arg(long, value_name = "FILE")]
    daemon: Option<PathBuf>,
    /// A Python that has slack-bolt
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// A folder in which @slack/bolt is installed for Node.js
    #[arg(long, value_name = "DIR")]
    node: Option<PathBuf>,
    /// How many apps
    #[arg(long, default_value_t = 300)]
    apps: usize,
    /// Messages in a second, over all apps
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// Seconds of silence that are measured
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Seconds of load that are measured
    #[arg(long, default_value_t = 20)]
    load: u64,
    /// How many people of each app speak at the same moment at the end
    #[arg(long, default_value_t = 10)]
    burst: usize,
    /// Seconds in which all apps must be connected
    #[arg(long, default_value_t = 120)]
    connect: u64,
}

async fn run(arguments: Arguments) -> ExitCode {
    // They run in directories of their own. Links stay: a Python finds its packages by the path it was called by.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let mut subjects = Vec::new();
    if let Some(python) = arguments.python.map(absolute) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/slack/bolt.py").into();
        subjects.push(Subject::script("slack-bolt, Python", Platform::Slack, python, vec![script]));
    }
    if let Some(node) = arguments.node.map(absolute) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/slack/bolt.mjs").into();
        subjects.push(Subject::script("Bolt, Node.js", Platform::Slack, "node".into(), vec![script, node.into()]));
    }
    const DAEMON: &str = "shardvisor, one shard";
    subjects.extend(arguments.daemon.map(|daemon| Subject::daemon(DAEMON, Platform::Slack, absolute(daemon))));
    if subjects.is_empty() {
        eprintln!("bench-slack: nothing to measure: give --daemon, --python or --node");
        return ExitCode::from(64);
    }
    let extent = Extent {
        rate: arguments.rate,
        connect: Duration::from_secs(arguments.connect),
        settle: Duration::from_secs(5),
        idle: Duration::from_secs(arguments.idle),
        load: Duration::from_secs(arguments.load),
        burst: arguments.burst,
    };
    let measured = match measure_all(&subjects, &extent, async || Apps::start(arguments.apps).await).await {
        Ok(measured) => measured,
        Err((name, failed)) => {
            eprintln!("bench-slack: {name}: {failed}");
            return ExitCode::FAILURE;
        }
    };
    let (apps, burst) = (arguments.apps, arguments.apps * arguments.burst);
    println!("{apps} apps, {} messages/s for {} s, then {burst} at once\n", extent.rate, arguments.load);
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
            eprintln!("bench-slack: {error}");
            ExitCode::FAILURE
        }
    }
}
