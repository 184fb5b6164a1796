//! `bench-chaos`: jobs through shards that are killed, as a command.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use bench::{
    chaos::{Network, Plan, ShardArguments, run, run_shard},
    stand::Failure,
};
use clap::{Parser, Subcommand, ValueEnum};

/// Has two shards do jobs while they are killed, the broker is restarted twice and Redis once. Fails when a job was lost, shown
/// twice or out of its order.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Hidden>,
    /// How many jobs
    #[arg(long, default_value_t = 100_000)]
    jobs: u32,
    /// How many of them are published in a second, at most
    #[arg(long, default_value_t = 2000)]
    rate: u32,
    /// What chooses who is killed; another one each time, unless given
    #[arg(long)]
    seed: Option<u64>,
    /// What is behind the shards
    #[arg(long, value_enum, default_value = "client-ids")]
    platform: Platform,
    /// How many channels, each with 25 chats
    #[arg(long, default_value_t = 40)]
    channels: u32,
    /// Milliseconds between two kills
    #[arg(long, default_value_t = 2000)]
    kill_every: u64,
    /// The shardvisor that is killed, with `--platform telegram`; the one beside this program, unless given
    #[arg(long, value_name = "FILE")]
    daemon: Option<PathBuf>,
    /// Where stores and logs lie; kept when something went wrong
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    within: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Platform {
    /// One on which clients choose ids
    ClientIds,
    /// The Telegram simulator, with on_uncertain=dead_letter
    Telegram,
}

#[derive(Debug, Subcommand)]
enum Hidden {
    /// One of the shards
    #[command(hide = true)]
    Shard(ShardArguments),
}

async fn play(arguments: Arguments) -> Result<bool, Failure> {
    let itself = std::env::current_exe()?;
    let network = match arguments.platform {
        Platform::ClientIds => Network::ClientIds { program: itself },
        Platform::Telegram => {
            Network::Telegram { daemon: arguments.daemon.unwrap_or_else(|| itself.with_file_name("shardvisor")) }
        }
    };
    let seed = arguments.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let plan = Plan {
        jobs: arguments.jobs,
        seed,
        rate: arguments.rate,
        channels: arguments.channels,
        kill_every: Duration::from_millis(arguments.kill_every),
        network,
        within: arguments.within,
    };
    let report = run(plan).await?;
    println!("{report}");
    Ok(report.holds())
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(Failure::from).and_then(|runtime| {
        runtime.block_on(async {
            match arguments.role.take() {
                Some(Hidden::Shard(shard)) => {
                    let filter = tracing_subscriber::EnvFilter::new("info,lapin=off");
                    tracing_subscriber::fmt()
                        .with_env_filter(filter)
                        .with_ansi(false)
                        .with_writer(std::io::stderr)
                        .init();
                    run_shard(shard).await.map(|()| true)
                }
                None => play(arguments).await,
            }
        })
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-chaos: {error}");
            ExitCode::FAILURE
        }
    }
}
