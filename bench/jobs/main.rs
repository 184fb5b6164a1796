//! Jobs a second through the whole path of the embedded adapters, over a network that does nothing.

mod shard;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use ::shard::{
    identity::{ChannelId, QueueBase, QueueName, ShardId},
    job::{Job, JobId, Send, Task},
    queue::{EmbeddedQueue, Message, Queue},
};
use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Has shards do jobs, and prints how many a second they do.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many jobs, for each shard
    #[arg(long, default_value_t = 20_000)]
    jobs: u32,
    /// How many channels, for each shard
    #[arg(long, default_value_t = 50)]
    channels: u32,
    /// How many chats of each channel
    #[arg(long, default_value_t = 20)]
    chats: u32,
    /// Jobs in hand at a time
    #[arg(long, default_value_t = 200)]
    prefetch: u16,
    /// Where the store lies; a temporary directory in here is made and removed
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    within: PathBuf,
    /// Only this many shards, in place of one and then two
    #[arg(long)]
    shards: Option<u32>,
}

type Failure = Box<dyn std::error::Error + std::marker::Send + Sync>;

/// A job of one of a shard's channels.
fn job(arguments: &Arguments, shard: ShardId, number: u32) -> Option<Job> {
    let (of, chat) = (number % arguments.channels, number / arguments.channels % arguments.chats);
    let prefix = u128::from(shard.index + of * shard.count.max(1));
    Some(Job {
        id: JobId::new(format!("bench-{}-{number}", shard.index))?,
        channel: ChannelId::from_uuid(Uuid::from_u128((prefix << 96) | 1)),
        task: Task::Send(Send { chat_id: format!("chat {chat}"), text: "Hello there".to_owned(), ..Send::default() }),
        enqueued_at: None,
        expires_at: None,
    })
}

async fn publish(arguments: &Arguments, dir: &Path, count: u32) -> Result<(), Failure> {
    let queue = Arc::new(EmbeddedQueue::producer(dir));
    for index in 0..count {
        let shard = ShardId::new(index, count);
        queue.declare(shard.queue(QueueBase::Main)).await?;
        let mut publishing: JoinSet<Result<(), Failure>> = JoinSet::new();
        for number in 0..arguments.jobs {
            let Some(job) = job(arguments, shard, number) else { continue };
            let (queue, to): (_, QueueName) = (queue.clone(), shard.queue(QueueBase::Main));
            publishing.spawn(async move { Ok(queue.publish(to, Message::new(job.to_json())).await?) });
            if publishing.len() >= 512 {
                publishing.join_next().await.transpose()?.transpose()?;
            }
        }
        while let Some(published) = publishing.join_next().await {
            published??;
        }
    }
    Ok(())
}

/// CPU time of this process so far.
fn cpu() -> Result<Duration, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let of = |time: nix::sys::time::TimeVal| {
        Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
    };
    Ok(of(usage.user_time()) + of(usage.system_time()))
}

async fn measure(arguments: &Arguments, count: u32) -> Result<(), Failure> {
    let dir = tempfile::tempdir_in(&arguments.within)?;
    publish(arguments, dir.path(), count).await?;
    let (began, cpu_before) = (Instant::now(), cpu()?);
    let shards: Vec<_> =
        (0..count).map(|index| shard::start(dir.path(), ShardId::new(index, count), arguments.prefetch)).collect();
    let producer = EmbeddedQueue::producer(dir.path());
    loop {
        let mut left = 0;
        for index in 0..count {
            let depth = producer.depth(ShardId::new(index, count).queue(QueueBase::Main)).await?;
            left += depth.ready + depth.parked;
        }
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (took, used) = (began.elapsed(), cpu()? - cpu_before);
    let jobs = f64::from(arguments.jobs * count);
    let resident = std::fs::read_to_string("/proc/self/status")?
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:").map(|peak| peak.trim().to_owned()))
        .unwrap_or_default();
    println!(
        "{count} shards: {:.0} jobs/s ({jobs} in {:.2} s), {:.0} µs of CPU a job, peak memory {resident}",
        jobs / took.as_secs_f64(),
        took.as_secs_f64(),
        used.as_secs_f64() * 1e6 / jobs,
    );
    for shard in shards {
        shard.stop()?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let counts = arguments.shards.map_or(vec![1, 2], |count| vec![count]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let measured = runtime.map_err(Failure::from).and_then(|runtime| {
        runtime.block_on(async {
            for count in counts {
                measure(&arguments, count).await?;
            }
            Ok(())
        })
    });
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-jobs: {error}");
            ExitCode::FAILURE
        }
    }
}
