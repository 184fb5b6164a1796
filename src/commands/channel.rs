//! `shardvisor channel`: the built-in directory. A running daemon follows each change by itself.

mod add;

use std::sync::Arc;

use serde_json::json;
use shard::{
    clock::SystemClock,
    directory::{ChannelSpec, Directory, DirectoryError, Handler, store::StoreDirectory},
    identity::shard_for_channel,
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
        let (id, done) = match (command, existing(config)?) {
            (Channel::Add(_), _) => return Ok(()),
            (Channel::List { json }, _) => return list(config, &all(config).await?, *json),
            (Channel::Remove { id } | Channel::Enable { id } | Channel::Disable { id }, None) => (id, Ok(false)),
            (Channel::Remove { id }, Some(directory)) => (id, directory.remove(*id).await),
            (Channel::Enable { id }, Some(directory)) => (id, directory.set_enabled(*id, true).await),
            (Channel::Disable { id }, Some(directory)) => (id, directory.set_enabled(*id, false).await),
        };
        if done.map_err(directory_failure)? {
            return Ok(());
        }
        Err(Failure::GaveUp(format!("there is no channel {id}; `shardvisor channel list` shows them all")))
    })
}

/// All channels, by id.
pub(super) async fn all(config: &Config) -> Result<Vec<Arc<ChannelSpec>>, Failure> {
    let Some(directory) = existing(config)? else { return Ok(Vec::new()) };
    let mut channels = directory.channels().await.map_err(directory_failure)?;
    channels.sort_by_key(|channel| channel.id);
    Ok(channels)
}

/// The built-in directory, unless there is none yet: looking makes nothing.
fn existing(config: &Config) -> Result<Option<StoreDirectory>, Failure> {
    if config.data_dir.join("box.db").exists() { open(config).map(Some) } else { Ok(None) }
}

/// The built-in directory, made if there is none.
fn open(config: &Config) -> Result<StoreDirectory, Failure> {
    let shared = BoxStore::open(&config.data_dir, Arc::new(SystemClock)).map_err(store_failure)?;
    StoreDirectory::open(shared, &config.key_file()).map_err(directory_failure)
}

/// Whose fault an error of the directory is.
fn directory_failure(error: DirectoryError) -> Failure {
    match error {
        DirectoryError::Unavailable(_) => Failure::GaveUp(error.to_string()),
        DirectoryError::Nonsense(_) | DirectoryError::Refused(_) => Failure::Config(error.to_string()),
    }
}

fn list(config: &Config, channels: &[Arc<ChannelSpec>], as_json: bool) -> Result<(), Failure> {
    if as_json {
        let listed: Vec<_> = channels.iter().map(|channel| object(config, channel)).collect();
        return print_json(&listed);
    }
    for channel in channels {
        let shard = shard_for_channel(channel.id, config.shard_count);
        let state = match channel.enabled {
            false => "disabled",
            true if is_held(channel) => "enabled",
            true => "not held",
        };
        let label = channel.label.as_deref().map(|label| format!(" {label:?}")).unwrap_or_default();
        let handler = handler(&channel.handler);
        print(format_args!("{} {} shard {shard} {state} {handler}{label}", channel.id, channel.platform))?;
    }
    Ok(())
}

fn object(config: &Config, channel: &ChannelSpec) -> serde_json::Value {
    let mut object = json!({
        "id": channel.id,
        "platform": channel.platform,
        "shard": shard_for_channel(channel.id, config.shard_count),
        "enabled": channel.enabled,
        "handler": handler(&channel.handler),
        "label": channel.label,
    });
    if !is_held(channel) {
        object["held"] = false.into();
    }
    object
}

/// Whether a connection is held for it: not for a Slack app that gets its events by HTTP.
fn is_held(channel: &ChannelSpec) -> bool {
    #[cfg(feature = "slack")]
    if channel.platform == shard::platform::PlatformKind::Slack {
        let tokens = channel.token.as_ref().and_then(|token| shard::platform::slack::Tokens::read(token).ok());
        return tokens.is_none_or(|tokens| tokens.app.is_some());
    }
    let _ = channel;
    true
}

/// A handler for people; of a URL what can hold no secret.
fn handler(handler: &Handler) -> String {
    match handler {
        Handler::None => "none".to_owned(),
        Handler::Echo => "echo".to_owned(),
        Handler::Agent { url, .. } => crate::config::without_credentials(url),
    }
}
