//! `shardvisor channel`: the built-in directory. A running daemon follows each change by itself.
//!
//! One that lies elsewhere is only read: channels are listed from there, added and removed there, and enabled and disabled for this
//! box alone, as `connect` and `disconnect` do.

mod add;

use std::sync::Arc;

use serde_json::json;
use shard::{
    clock::SystemClock,
    directory::{ChannelSpec, Directory, DirectoryError, Entry, Handler, Kept, look, store::StoreDirectory},
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
    directory::{failure, kept, source},
    exit::{Failure, say},
};

/// Does what was asked.
pub(super) fn run(config: &Config, command: &Channel) -> Result<(), Failure> {
    let elsewhere = source(config)?.is_some();
    match command {
        Channel::Add(_) | Channel::Remove { .. } if elsewhere => return Err(only_read(config)),
        Channel::Add(options) => return add::run(config, options),
        _ => data::enter(config)?,
    }
    block_on(async {
        let (id, done) = match (command, existing(config)?) {
            (Channel::Add(_), _) => return Ok(()),
            (Channel::List { json }, _) => return list(config, &all(config).await?, *json),
            (Channel::Enable { id }, Some(_)) if elsewhere => (id, set_enabled(config, *id, true).await),
            (Channel::Disable { id }, Some(_)) if elsewhere => (id, set_enabled(config, *id, false).await),
            (Channel::Remove { id } | Channel::Enable { id } | Channel::Disable { id }, None) => (id, Ok(false)),
            (Channel::Remove { id }, Some(directory)) => (id, directory.remove(*id).await),
            (Channel::Enable { id }, Some(directory)) => (id, directory.set_enabled(*id, true).await),
            (Channel::Disable { id }, Some(directory)) => (id, directory.set_enabled(*id, false).await),
        };
        if done.map_err(failure)? {
            return Ok(());
        }
        Err(Failure::GaveUp(format!("there is no channel {id}; `shardvisor channel list` shows them all")))
    })
}

fn only_read(config: &Config) -> Failure {
    let at = config.directory.at.describe();
    Failure::Usage(format!("channels come from {at} (directory.url), which is only read: add and remove them there"))
}

async fn set_enabled(config: &Config, id: ChannelId, enabled: bool) -> Result<bool, DirectoryError> {
    let shared = BoxStore::open(&config.data_dir, Arc::new(SystemClock));
    let shared = shared.map_err(|error| DirectoryError::Unavailable(error.to_string()))?;
    Kept::open(shared, &config.key_file())?.set_enabled(id, enabled).await
}

/// A channel, and whether the directory leaves it to us.
pub(super) struct Listed {
    pub(super) spec: Arc<ChannelSpec>,
    held: bool,
}

/// All channels, by id. What can't be used of what a directory elsewhere says is told on standard error.
pub(super) async fn all(config: &Config) -> Result<Vec<Listed>, Failure> {
    let listed = |spec: Arc<ChannelSpec>| Listed { held: is_held(&spec), spec };
    let mut channels: Vec<Listed> = match (source(config)?, existing(config)?) {
        (None, None) => Vec::new(),
        (None, Some(directory)) => directory.channels().await.map_err(failure)?.into_iter().map(listed).collect(),
        (Some(source), there) => {
            let shared = there.map(|_| BoxStore::open(&config.data_dir, Arc::new(SystemClock)).map_err(store_failure));
            let kept = shared.transpose()?.map(|shared| kept(config, shared)).transpose()?;
            let answer = look(&*source, kept.as_ref()).await.map_err(failure)?;
            for bad in &answer.bad {
                say(format_args!("warning: {bad}"));
            }
            let listed = |entry| match entry {
                Entry::Channel(spec) => listed(Arc::new(spec)),
                Entry::LeftAlone(spec) => Listed { spec: Arc::new(spec), held: false },
            };
            answer.entries.into_iter().map(listed).collect()
        }
    };
    channels.sort_by_key(|channel| channel.spec.id);
    Ok(channels)
}

/// The built-in directory, unless there is none yet: looking makes nothing.
fn existing(config: &Config) -> Result<Option<StoreDirectory>, Failure> {
    if config.data_dir.join("box.db").exists() { open(config).map(Some) } else { Ok(None) }
}

/// The built-in directory, made if there is none.
fn open(config: &Config) -> Result<StoreDirectory, Failure> {
    let shared = BoxStore::open(&config.data_dir, Arc::new(SystemClock)).map_err(store_failure)?;
    StoreDirectory::open(shared, &config.key_file()).map_err(failure)
}

fn list(config: &Config, channels: &[Listed], as_json: bool) -> Result<(), Failure> {
    if as_json {
        let listed: Vec<_> = channels.iter().map(|channel| object(config, channel)).collect();
        return print_json(&listed);
    }
    for Listed { spec: channel, held } in channels {
        let shard = shard_for_channel(channel.id, config.shard_count);
        let state = match (held, channel.enabled) {
            (false, _) => "not held",
            (true, false) => "disabled",
            (true, true) => "enabled",
        };
        let label = channel.label.as_deref().map(|label| format!(" {label:?}")).unwrap_or_default();
        let handler = handler(&channel.handler);
        print(format_args!("{} {} shard {shard} {state} {handler}{label}", channel.id, channel.platform))?;
    }
    Ok(())
}

fn object(config: &Config, Listed { spec: channel, held }: &Listed) -> serde_json::Value {
    let mut object = json!({
        "id": channel.id,
        "platform": channel.platform,
        "shard": shard_for_channel(channel.id, config.shard_count),
        "enabled": channel.enabled,
        "handler": handler(&channel.handler),
        "label": channel.label,
    });
    if !held {
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
