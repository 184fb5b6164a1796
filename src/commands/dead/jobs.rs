//! Dead jobs: read from `<queue>.dead` of every queue.

use serde_json::json;
use shard::{
    identity::QueueName,
    job::Job,
    queue::{DeadLetter, Queue},
};

use super::Fate;
use crate::{
    cli::{DeadChoice, DeadFrom},
    commands::{
        data::{queue_failure, queues},
        print, print_json,
    },
    config::Config,
    exit::Failure,
};

/// How many are read at a time.
const PAGE: usize = 200;

/// Lists them: for people without the message's content, as JSON with all of it.
pub(super) async fn list(config: &Config, from: &DeadFrom, as_json: bool) -> Result<(), Failure> {
    let queue = queues(config);
    for name in names(&*queue, from.queue).await? {
        let mut after = 0;
        loop {
            let page = queue.dead(name, after, PAGE).await.map_err(queue_failure)?;
            let Some(last) = page.last() else { break };
            after = last.number;
            for letter in &page {
                show(name, letter, as_json)?;
            }
        }
    }
    Ok(())
}

/// Replays or drops those that were chosen; says how many.
pub(super) async fn settle(config: &Config, choice: &DeadChoice, fate: Fate) -> Result<(), Failure> {
    let queue = queues(config);
    let mut done = 0;
    if choice.all {
        for name in names(&*queue, choice.from.queue).await? {
            let mut after = 0;
            while let Some(letter) = queue.dead(name, after, 1).await.map_err(queue_failure)?.into_iter().next() {
                after = letter.number;
                done += usize::from(one(config, &*queue, name, &letter, fate).await?);
            }
        }
    } else {
        let Some(name) = choice.from.queue else {
            return Err(Failure::Usage("numbers are those of a queue: name it with --queue, or use --all".to_owned()));
        };
        let numbers = choice.which.iter().map(|word| {
            let number: Option<u64> = word.parse().ok();
            number.filter(|number| *number > 0).ok_or_else(|| Failure::Usage(format!("{word:?} is no number")))
        });
        for number in numbers.collect::<Result<Vec<_>, _>>()? {
            let found = queue.dead(name, number - 1, 1).await.map_err(queue_failure)?;
            match found.into_iter().next().filter(|letter| letter.number == number) {
                Some(letter) => done += usize::from(one(config, &*queue, name, &letter, fate).await?),
                None => return Err(Failure::GaveUp(format!("{}: there is no number {number}", name.dead()))),
            }
        }
    }
    print(format_args!("{done} {}", fate.done()))
}

async fn names(queue: &dyn Queue, only: Option<QueueName>) -> Result<Vec<QueueName>, Failure> {
    match only {
        Some(name) => Ok(vec![name]),
        None => queue.existing().await.map_err(queue_failure),
    }
}

/// Whether it was there. A job goes to the queue where its channel's work is done today, which may be another one.
async fn one(
    config: &Config,
    queue: &dyn Queue,
    name: QueueName,
    letter: &DeadLetter,
    fate: Fate,
) -> Result<bool, Failure> {
    let settled = match (fate, Job::parse(&letter.message.body)) {
        (Fate::Drop, _) => queue.drop_dead(name, letter.number).await,
        (Fate::Replay, Ok(job)) => {
            let to = config.shard(0).queue_for_channel(job.base(), job.channel);
            queue.declare(to).await.map_err(queue_failure)?;
            queue.replay(name, letter.number, to).await
        }
        (Fate::Replay, Err(why)) => {
            let place = format!("{} {}", name.dead(), letter.number);
            return Err(Failure::GaveUp(format!("{place} is no job and can only be dropped: {why}")));
        }
    };
    settled.map_err(queue_failure)
}

fn show(name: QueueName, letter: &DeadLetter, as_json: bool) -> Result<(), Failure> {
    let headers = &letter.message.headers;
    if as_json {
        return print_json(&json!({
            "queue": name.to_string(),
            "number": letter.number,
            "reason": headers.reason,
            "attempts": headers.attempts,
            "first_error": headers.first_error,
            "last_error": headers.last_error,
            "died_at_ms": headers.died_at_ms,
            "body": String::from_utf8_lossy(&letter.message.body),
        }));
    }
    let what = match Job::parse(&letter.message.body) {
        Ok(job) => format!("{} {:?} of {}", job.task.name(), job.id, job.channel),
        Err(_) => "no job".to_owned(),
    };
    let reason = headers.reason.as_deref().unwrap_or("unknown");
    let error = headers.last_error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    print(format_args!("{name} {} {what}: {reason} after {} attempts{error}", letter.number, headers.attempts))
}
