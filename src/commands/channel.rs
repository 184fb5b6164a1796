//! `shardvisor channel`: the built-in directory. A running daemon follows each change by itself.

mod add;

use std::sync::Arc;

use serde_json::json;
use shard::{
    clock::SystemClock,
    directory::{ChannelSpec, Directory, DirectoryError, Handler, StoreDirectory},
    identity::{ChannelId, shard_for_channel},
    store::BoxStore,
};

use crate::{
    cli::Channel,
    commands::{
        data::{self, block_on, store_failure},
        print, print_json,
    },
    config::Config,
    exit::Failure,
};

/// Does what was asked.
pub(super) fn run(config: &Config, command: &Channel) -> Result<(), Failure> {
    if let Channel::Add(options) = command {
        return add::run(config, options);
    }
    data::enter(config)?;
    block_on(async {
        let directory = open(config)?;
        match command {
            Channel::Add(_) => Ok(()),
            Channel::List { json } => list(config, &directory, *json).await,
            Channel::Remove { id } => changed(*id, directory.remove(*id).await),
            Channel::Enable { id } => changed(*id, directory.set_enabled(*id, true).await),
            Channel::Disable { id } => changed(*id, directory.set_enabled(*id, false).await),
        }
    })
}

/// The built-in directory of this box.
pub(super) fn open(config: &Config) -> Result<StoreDirectory, Failure> {
    let shared = BoxStore::open(&config.data_dir, Arc::new(SystemClock)).map_err(store_failure)?;
    StoreDirectory::open(shared, &config.key_file()).map_err(directory_failure)
}

/// Whose fault an error of the directory is.
pub(super) fn directory_failure(error: DirectoryError) -> Failure {
    match error {
        DirectoryError::Unavailable(_) => Failure::GaveUp(error.to_string()),
        DirectoryError::Nonsense(_) | DirectoryError::Refused(_) => Failure::Config(error.to_string()),
    }
}

fn changed(id: ChannelId, there: Result<bool, DirectoryError>) -> Result<(), Failure> {
    if there.map_err(directory_failure)? {
        return Ok(());
    }
    Err(Failure::GaveUp(format!("there is no channel {id}; `shardvisor channel list` shows them all")))
}

async fn list(config: &Config, directory: &StoreDirectory, as_json: bool) -> Result<(), Failure> {
    let mut channels = directory.channels().await.map_err(directory_failure)?;
    channels.sort_by_key(|channel| channel.id);
    if as_json {
        let listed: Vec<_> = channels.iter().map(|channel| object(config, channel)).collect();
        return print_json(&listed);
    }
    for channel in &channels {
        let shard = shard_for_channel(channel.id, config.shard_count);
        let state = if channel.enabled { "enabled" } else { "disabled" };
        let label = channel.label.as_deref().map(|label| format!(" {label:?}")).unwrap_or_default();
        let handler = handler(&channel.handler);
        print(format_args!("{} {} shard {shard} {state} {handler}{label}", channel.id, channel.platform))?;
    }
    Ok(())
}

fn object(config: &Config, channel: &ChannelSpec) -> serde_json::Value {
    json!({
        "id": channel.id,
        "platform": channel.platform,
        "shard": shard_for_channel(channel.id, config.shard_count),
        "enabled": channel.enabled,
        "handler": handler(&channel.handler),
        "label": channel.label,
    })
}

/// A handler for people; of a URL what can hold no secret.
fn handler(handler: &Handler) -> String {
    match handler {
        Handler::None => "none".to_owned(),
        Handler::Echo => "echo".to_owned(),
        Handler::Agent { url, .. } => crate::config::without_credentials(url),
    }
}
