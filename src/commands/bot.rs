//! `shardvisor bot where`: which worker of a fleet should hold a bot.

use serde_json::json;
use shard::{
    identity::ChannelId,
    placement::{Ring, Worker, place},
    platform::PlatformKind,
};

use crate::{
    cli::{BotWhere, Settings},
    commands::{
        channel,
        data::{self, block_on},
        load, print, print_json,
    },
    exit::Failure,
};

/// Tells it, the worker's id alone on a line.
pub(super) fn run(settings: &Settings, options: &BotWhere) -> Result<(), Failure> {
    if let Some(worker) = options.workers.iter().find(|worker| worker.trim() != *worker || worker.is_empty()) {
        return Err(Failure::Usage(format!(
            "--workers: {worker:?} is no worker id: expected ids with commas between them"
        )));
    }
    if !(options.load_factor == 0.0 || (1.0..=10.0).contains(&options.load_factor)) {
        return Err(Failure::Usage(format!(
            "--load-factor: {} is refused: expected 0, or 1 to 10",
            options.load_factor
        )));
    }
    // A channel's id is one whatever its spelling.
    let bot = options.id.parse::<ChannelId>().map_or_else(|_| options.id.clone(), |id| id.to_string());
    let owner = if options.load_factor == 0.0 { plain(&bot, options) } else { bounded(settings, &bot, options)? };
    if options.json {
        return print_json(&json!({"worker_id": owner}));
    }
    print(owner)
}

fn plain(bot: &str, options: &BotWhere) -> String {
    let ring = Ring::new(options.workers.iter().map(String::as_str), options.replicas);
    ring.owner(bot).unwrap_or_default().to_owned()
}

/// Where it belongs among all that the directory has.
fn bounded(settings: &Settings, bot: &str, options: &BotWhere) -> Result<String, Failure> {
    let config = load(settings)?;
    data::enter(&config)?;
    let channels = block_on(channel::all(&config))?;
    // A linked device follows its slot, not the ring.
    let placed =
        channels.iter().filter(|channel| channel.spec.enabled && channel.spec.platform != PlatformKind::Whatsapp);
    let bots: Vec<String> = placed.map(|channel| channel.spec.id.to_string()).collect();
    if !bots.iter().any(|other| other == bot) {
        return Err(Failure::Usage(format!(
            "{bot} is no bot that the directory wants to run: with --load-factor 0 the plain ring answers for any"
        )));
    }
    let capacity = config.bot_worker.worker_capacity;
    let workers: Vec<_> = options.workers.iter().map(|id| Worker { id, capacity }).collect();
    let placement = place(&workers, bots.iter().map(String::as_str), options.load_factor, options.replicas);
    let owner = placement.owners.get(bot).map(|owner| (*owner).to_owned());
    owner.ok_or_else(|| Failure::GaveUp(format!("no worker has room for {bot}: each takes {capacity}")))
}
