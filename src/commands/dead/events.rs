//! Events that could not be delivered: read from the outbox of every slot. One is named by its id and its
//! destination, since the channel's handler and the endpoint for everything fail each for itself.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::json;
use shard::{
    clock::SystemClock,
    queue::{EmbeddedQueue, Queue},
    sink::{DeadEvent, Outbox, OutboxError, outbox::EmbeddedOutbox},
};

#[cfg(feature = "amqp")]
use shard::{dispatch::RegistryBook, sink::outbox::AmqpOutbox};

use super::Fate;
use crate::{
    cli::DeadChoice,
    commands::{data::queue_failure, print, print_json},
    config::Config,
    exit::Failure,
};
#[cfg(feature = "amqp")]
use crate::{commands::data::registry, config::QueueAt};

/// How many are read of one slot.
const MOST: usize = 100_000;

/// Lists them: for people without the event's content, as JSON with all of it.
pub(super) async fn list(config: &Config, as_json: bool) -> Result<(), Failure> {
    for (index, outbox) in outboxes(config).await? {
        for dead in outbox.dead(MOST).await.map_err(outbox_failure)? {
            show(index, &dead, as_json)?;
        }
    }
    Ok(())
}

/// Replays or drops those that were chosen; says how many.
pub(super) async fn settle(config: &Config, choice: &DeadChoice, fate: Fate) -> Result<(), Failure> {
    let mut wanted: BTreeSet<&str> = choice.which.iter().map(String::as_str).collect();
    let mut done = 0;
    for (_, outbox) in outboxes(config).await? {
        for dead in outbox.dead(MOST).await.map_err(outbox_failure)? {
            let chosen = wanted.remove(name(&dead).as_str());
            if choice.all || chosen {
                let (event, destination) = (dead.event.id, dead.destination);
                let settled = match fate {
                    Fate::Replay => outbox.replay(event, destination).await,
                    Fate::Drop => outbox.drop_dead(event, destination).await,
                };
                done += usize::from(settled.map_err(outbox_failure)?);
            }
        }
    }
    print(format_args!("{done} {}", fate.done()))?;
    match wanted.first() {
        Some(missing) => Err(Failure::GaveUp(format!("there is no dead event {missing}: expected <id>/<destination>"))),
        None => Ok(()),
    }
}

type Outboxes = Vec<(Option<u32>, Arc<dyn Outbox>)>;

async fn outboxes(config: &Config) -> Result<Outboxes, Failure> {
    #[cfg(feature = "amqp")]
    if let QueueAt::Amqp(amqp) = &config.queue.at {
        let book = Arc::new(RegistryBook::new(registry(config)?));
        let of = |index| {
            let clock = Arc::new(SystemClock);
            let outbox = AmqpOutbox::new((**amqp).clone(), book.clone(), config.shard(index), clock);
            (Some(index), Arc::new(outbox) as Arc<dyn Outbox>)
        };
        return Ok((0..config.shard_count).map(of).collect());
    }
    let queues = EmbeddedQueue::producer(&config.data_dir).existing().await.map_err(queue_failure)?;
    let mut outboxes: Outboxes = Vec::new();
    for index in queues.iter().map(|queue| queue.index).collect::<BTreeSet<_>>() {
        let outbox = EmbeddedOutbox::visit(&config.data_dir, index, Arc::new(SystemClock)).await;
        outboxes.push((index, Arc::new(outbox.map_err(outbox_failure)?)));
    }
    Ok(outboxes)
}

fn name(dead: &DeadEvent) -> String {
    format!("{}/{}", dead.event.id, dead.destination.as_str())
}

fn show(index: Option<u32>, dead: &DeadEvent, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(&json!({
            "name": name(dead),
            "shard": index.unwrap_or(0),
            "reason": dead.reason,
            "attempts": dead.attempts,
            "event": dead.event,
        }));
    }
    let (kind, channel) = (dead.event.kind.name(), dead.event.channel_id);
    print(format_args!("{} {kind} of {channel}: {} after {} attempts", name(dead), dead.reason, dead.attempts))
}

fn outbox_failure(error: OutboxError) -> Failure {
    match error {
        OutboxError::Unavailable(_) => Failure::GaveUp(error.to_string()),
        OutboxError::Refused(_) => Failure::Config(error.to_string()),
        OutboxError::Fenced(_) => Failure::Internal(error.to_string()),
    }
}
