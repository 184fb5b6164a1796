//! `shardvisor where`: which shard and queues a channel's work belongs to. It needs neither daemon nor data directory,
//! and with `--shard-count` no configuration either.

use serde::Serialize;
use serde_json::json;
use shard::identity::{ChannelId, QueueBase, ShardId, parse_shard_count, shard_for_channel};

use crate::{
    cli::{Settings, Where},
    commands::{
        channel,
        data::{self, block_on},
        load, print, print_json,
    },
    config::{cpus, keys},
    exit::{Failure, say},
    spread::Spread,
};

#[derive(Serialize)]
struct Place {
    shard: u32,
    queues: Queues,
}

#[derive(Serialize)]
struct Queues {
    send: String,
    media: String,
    avatars: String,
}

/// Tells where the channel belongs, or how all of the directory are spread.
pub(super) fn run(settings: &Settings, options: &Where) -> Result<(), Failure> {
    match options.id {
        Some(id) => one(id, count(settings)?, options.json),
        None => all(settings, options.json),
    }
}

fn all(settings: &Settings, as_json: bool) -> Result<(), Failure> {
    let config = load(settings)?;
    data::enter(&config)?;
    let channels = block_on(channel::all(&config))?;
    let spread = Spread::of(channels.iter().map(|channel| channel.spec.id), config.shard_count);
    if let Some(warning) = spread.warning() {
        say(format_args!("warning: {warning}"));
    }
    if as_json {
        return print_json(&json!({"channels": spread.channels, "time_ordered": spread.time_ordered}));
    }
    for (index, channels) in spread.channels.iter().enumerate() {
        print(format_args!("shard {index} of {}: {channels} of {} channels", config.shard_count, spread.total()))?;
    }
    Ok(())
}

/// The shard count: the flag's alone where it is given, since the configuration may not be readable for everyone.
fn count(settings: &Settings) -> Result<u32, Failure> {
    match settings.shard_count.as_deref() {
        None => Ok(load(settings)?.shard_count),
        Some("auto") => Ok(cpus()),
        Some(count) => parse_shard_count(keys::SHARD_COUNT.flag.unwrap_or_default(), count)
            .map_err(|error| Failure::Config(error.to_string())),
    }
}

fn one(id: ChannelId, count: u32, as_json: bool) -> Result<(), Failure> {
    let shard = shard_for_channel(id, count);
    let [send, media, avatars] = QueueBase::ALL.map(|base| ShardId::new(shard, count).queue(base).to_string());
    if as_json {
        return print_json(&Place { shard, queues: Queues { send, media, avatars } });
    }
    print(format_args!("{id}: shard {shard} of {count}, queues {send} {media} {avatars}"))
}
