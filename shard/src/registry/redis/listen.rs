//! Listening: what a worker is told over the channels of the pool, on a connection of its own.
//!
//! A channel keeps nothing for who isn't there. After a connection was lost the first notice is always that members may
//! have changed, so that whoever acts on notices looks at everything once.

use ::redis::{Msg, Value, aio::PubSub};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Mutex,
    time::{Duration, sleep, timeout},
};

use super::{
    super::{Notice, RegistryError},
    connect::subscribe,
    trouble::Trouble,
    url::RedisUrl,
};
use crate::identity::ChannelId;

/// How long making the connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the next attempt waits after one that failed.
const PAUSE: Duration = Duration::from_millis(500);
/// A connection over which nothing came for so long is asked whether it is there still.
const QUIET: Duration = Duration::from_secs(10);

/// A command as it is written down.
#[derive(Serialize, Deserialize)]
struct Written {
    command: String,
    bot_id: ChannelId,
}

/// The channel and the text by which a worker is told something.
pub(super) fn payload(prefix: &str, worker: &str, notice: Notice) -> (String, String) {
    let (command, bot_id) = match notice {
        Notice::Members => return (format!("{prefix}members"), worker.to_owned()),
        Notice::Stop(bot) => ("stop", bot),
        Notice::Restart(bot) => ("restart", bot),
    };
    let text = serde_json::to_string(&Written { command: command.to_owned(), bot_id }).unwrap_or_default();
    (format!("{prefix}commands:{worker}"), text)
}

/// What listens for one worker.
pub(super) struct Ear {
    url: RedisUrl,
    channels: [String; 2],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<PubSub>,
    failed: bool,
}

impl Ear {
    /// Nothing is connected yet.
    pub(super) fn new(url: RedisUrl, prefix: &str, worker: &str) -> Self {
        let channels = [format!("{prefix}commands:{worker}"), format!("{prefix}members")];
        Self { url, channels, state: Mutex::default() }
    }

    /// The next notice.
    pub(super) async fn next(&self) -> Result<Notice, RegistryError> {
        let mut state = self.state.lock().await;
        if state.connection.is_none() {
            if std::mem::replace(&mut state.failed, true) {
                sleep(PAUSE).await;
            }
            let connected = timeout(CONNECT, subscribe(&self.url, &self.channels)).await;
            let late = |_| Err(Trouble::Unavailable("it can't be connected to in time".to_owned()));
            let connected = connected.unwrap_or_else(late);
            state.connection = Some(connected.map_err(|trouble| trouble.at(&self.url.to_string()))?);
            state.failed = false;
            return Ok(Notice::Members);
        }
        while let Some(connection) = &mut state.connection {
            let came = timeout(QUIET, connection.on_message().next()).await;
            match came {
                Ok(Some(message)) => match read(&message, &self.channels) {
                    Some(notice) => return Ok(notice),
                    None => tracing::warn!("a worker was told something that can't be read"),
                },
                Ok(None) => break,
                Err(_) => {
                    let there = timeout(CONNECT, connection.ping::<Value>()).await;
                    if !matches!(there, Ok(Ok(_))) {
                        break;
                    }
                }
            }
        }
        state.connection = None;
        Err(RegistryError::Unavailable(format!("{}: nothing can be heard any more", self.url)))
    }
}

fn read(message: &Msg, channels: &[String; 2]) -> Option<Notice> {
    if message.get_channel_name() == channels[1] {
        return Some(Notice::Members);
    }
    let written: Written = serde_json::from_slice(message.get_payload_bytes()).ok()?;
    match written.command.as_str() {
        "stop" => Some(Notice::Stop(written.bot_id)),
        "restart" => Some(Notice::Restart(written.bot_id)),
        _ => None,
    }
}
