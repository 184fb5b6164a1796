//! `shardvisor send`: puts jobs into the queues of their channels, each told of once it is durable. All input is checked
//! before the first job is queued, so that a mistake in the last line doesn't leave half of it behind.

use std::{collections::BTreeSet, io::Read};

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use shard::{
    identity::{ChannelId, QueueName, ShardId},
    job::{Job, JobId, OnUncertain, Send as SendText, Task},
    queue::Message,
};

use crate::{
    cli::{self, Send},
    commands::{
        data::{self, block_on, queue_failure},
        print, print_json,
    },
    config::{Config, plain},
    exit::Failure,
};

/// How many jobs are on their way to the disk at a time; they share its syncs.
const WINDOW: usize = 256;

/// A job on its way.
struct Ready {
    id: JobId,
    queue: QueueName,
    body: Vec<u8>,
}

/// What is told of a queued job.
#[derive(Serialize)]
struct Queued {
    id: String,
    queue: String,
}

/// Queues what was given.
pub(super) fn run(config: &Config, options: &Send) -> Result<(), Failure> {
    let layout = config.shard(config.shard_index.unwrap_or(0));
    let jobs = match (&options.channel, &options.chat, &options.text) {
        (Some(channel), Some(chat), Some(text)) => vec![one(layout, options, *channel, chat, text)?],
        _ => many(layout, &standard_input()?)?,
    };
    data::enter(config)?;
    block_on(async {
        if !options.any_layout {
            same_layout(config).await?;
        }
        queue_all(config, jobs, options.json).await
    })
}

fn one(layout: ShardId, options: &Send, channel: ChannelId, chat: &str, text: &str) -> Result<Ready, Failure> {
    let text = if text == "-" { standard_input()?.trim_end().to_owned() } else { text.to_owned() };
    let id = options.id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let id = JobId::new(id).ok_or_else(|| Failure::Usage("--id: expected 1 to 128 characters".to_owned()))?;
    let on_uncertain = match options.on_uncertain {
        cli::OnUncertain::Resend => OnUncertain::Resend,
        cli::OnUncertain::DeadLetter => OnUncertain::DeadLetter,
    };
    let send = SendText { chat_id: chat.to_owned(), text, on_uncertain, ..SendText::default() };
    let job = Job { id, channel, task: Task::Send(send), enqueued_at: None, expires_at: None };
    ready(layout, &job.to_json()).map_err(Failure::Usage)
}

fn many(layout: ShardId, input: &str) -> Result<Vec<Ready>, Failure> {
    let lines = input.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (mut jobs, mut wrong) = (Vec::new(), Vec::new());
    for (at, line) in lines {
        match ready(layout, line.as_bytes()) {
            Ok(job) => jobs.push(job),
            Err(why) => wrong.push(format!("standard input, line {}: {why}", at + 1)),
        }
    }
    if !wrong.is_empty() {
        return Err(Failure::Usage(wrong.join("\n")));
    }
    if jobs.is_empty() {
        return Err(Failure::Usage("standard input holds no job: expected one JSON object a line".to_owned()));
    }
    Ok(jobs)
}

/// Checks a job and finds its queue. What the producer wrote is kept as it is, but for the time of queueing.
fn ready(layout: ShardId, line: &[u8]) -> Result<Ready, String> {
    let job = Job::parse(line).map_err(|error| error.to_string())?;
    let mut body: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if job.enqueued_at.is_none() {
        body["enqueued_at"] = Timestamp::now().to_string().into();
    }
    let queue = layout.queue_for_channel(job.base(), job.channel);
    Ok(Ready { id: job.id, queue, body: body.to_string().into_bytes() })
}

fn standard_input() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::Usage(format!("standard input: {}", plain(&error))))?;
    Ok(text)
}

/// Refuses when the daemon was started with another shard count: the queues chosen here would then be those
/// of other shards, or of none.
async fn same_layout(config: &Config) -> Result<(), Failure> {
    match data::published_layout(config).await? {
        Some(layout) if layout.shard_count != config.shard_count => Err(Failure::Config(format!(
            "SHARD_COUNT is {} here, and {} for the daemon: set the same, or queue with --any-layout",
            config.shard_count, layout.shard_count
        ))),
        _ => Ok(()),
    }
}

async fn queue_all(config: &Config, jobs: Vec<Ready>, as_json: bool) -> Result<(), Failure> {
    let queue = &data::queues(config);
    for name in jobs.iter().map(|job| job.queue).collect::<BTreeSet<_>>() {
        queue.declare(name).await.map_err(queue_failure)?;
    }
    let all = jobs.len();
    let mut queued = 0;
    let mut confirmed = stream::iter(jobs)
        .map(|job| async move {
            queue.publish(job.queue, Message::new(job.body)).await?;
            Ok((job.id, job.queue))
        })
        .buffered(WINDOW);
    while let Some(done) = confirmed.next().await {
        let (id, name) = done.map_err(|error| match queue_failure(error) {
            Failure::Config(why) => Failure::Config(format!("{queued} of {all} jobs are queued: {why}")),
            other => Failure::GaveUp(format!("{queued} of {all} jobs are queued: {other}")),
        })?;
        queued += 1;
        if as_json {
            print_json(&Queued { id: id.to_string(), queue: name.to_string() })?;
        } else {
            print(id)?;
        }
    }
    Ok(())
}
