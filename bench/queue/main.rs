//! Jobs through a broker, side by side: the client library alone, shardvisor's whole path, BullMQ; then the embedded store,
//! the time from publish to the start of the work, and what renewing a thousand leases costs.

mod latency;
mod leases;
mod subject;
mod table;
mod worker;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use bench::stand::{Failure, servers::Server};
use clap::{Parser, Subcommand};

use self::{
    subject::{Measured, Stand, Subject},
    worker::{Role, Work},
};

/// Measures queues beside their peers, all in one run.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    role: Option<Hidden>,
    /// How many jobs each subject does, in each round
    #[arg(long, default_value_t = 40_000)]
    jobs: u32,
    /// How many rounds; medians are shown
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Jobs in hand at a time, on the broker
    #[arg(long, default_value_t = 200)]
    prefetch: u16,
    /// Jobs in a second while latency is measured
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// For how many seconds latency is measured
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Where BullMQ is installed; without it that is left out
    #[arg(long, value_name = "DIRECTORY")]
    bullmq: Option<PathBuf>,
    /// Where stores lie; temporary directories in here are made and removed
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    within: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The client library alone
    Raw,
    /// The whole path, over the broker
    Ours,
    /// The whole path, over the embedded store
    Embedded,
    /// BullMQ
    Bullmq,
    /// From publish to the start of the work
    Latency,
    /// Renewal of leases
    Leases,
}

#[derive(Debug, Subcommand)]
enum Hidden {
    /// A process that is measured
    #[command(hide = true)]
    Work(Work),
}

impl Arguments {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

fn subjects(arguments: &Arguments) -> Vec<Subject> {
    let mut subjects = Vec::new();
    let mut add = |part, subject| {
        if arguments.wants(part) {
            subjects.push(subject);
        }
    };
    add(Part::Raw, Subject::Shard { name: "raw lapin", role: Role::Raw, shards: 1 });
    add(Part::Ours, Subject::Shard { name: "shardvisor, RabbitMQ + Redis", role: Role::Broker, shards: 1 });
    if let Some(dir) = &arguments.bullmq {
        add(Part::Bullmq, Subject::Bullmq { dir: dir.clone() });
    }
    add(Part::Embedded, Subject::Shard { name: "shardvisor, embedded, 2 shards", role: Role::Embedded, shards: 2 });
    subjects
}

async fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let subjects = subjects(arguments);
    let stand = Stand {
        rabbit: Server::rabbit(arguments.rounds * 4 + 1)?,
        redis: Server::redis("everysec")?,
        within: arguments.within.clone(),
        jobs: arguments.jobs,
        prefetch: arguments.prefetch,
    };
    let mut all: Vec<Vec<Measured>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 0..arguments.rounds {
        // One after the other in each round: what else the machine does falls on all of them alike.
        for (number, (subject, measured)) in subjects.iter().zip(&mut all).enumerate() {
            let one = subject.measure(&stand, round * 4 + number as u32).await?;
            table::one(round, subject.name(), &one);
            measured.push(one);
        }
    }
    table::all(subjects.iter().map(Subject::name).zip(all).collect());
    if arguments.wants(Part::Latency) {
        let run = latency::Run { rate: arguments.rate, time: Duration::from_secs(arguments.seconds.into()) };
        latency::measure(&stand, &run, arguments.rounds * 4).await?;
    }
    if arguments.wants(Part::Leases) {
        leases::measure(&stand).await?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(Failure::from).and_then(|runtime| {
        runtime.block_on(async {
            match &arguments.role {
                Some(Hidden::Work(work)) => worker::run(work).await,
                None => measure(&arguments).await,
            }
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-queue: {error}");
            ExitCode::FAILURE
        }
    }
}
