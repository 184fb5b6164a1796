//! File, environment and flags → one [`Config`], or every error at once.
//!
//! A shard process reads the same sources as its primary and so comes to the same settings. Nothing here opens a
//! connection or touches the data directory.

mod address;
mod build;
mod describe;
mod directory;
mod file;
pub(crate) mod keys;
mod nearest;
mod problem;
mod reader;
mod secrets;
mod sources;
mod stores;
mod template;

use std::{net::IpAddr, path::PathBuf, time::Duration};

use serde::{Serialize, Serializer};
use shard::{identity::ShardId, secret::Secret};
use tracing::Level;
use url::Url;

pub(crate) use address::{is_web as is_web_address, without_credentials};
pub(crate) use directory::{DirectoryAt, DirectorySettings};
pub(crate) use problem::Problems;
pub(crate) use reader::cpus;
#[cfg(feature = "demo")]
pub(crate) use reader::duration;
pub(crate) use secrets::{file_with_one as secret_file, lines as secrets_of_file, of_text as secrets_of_text};
pub(crate) use sources::{Sources, plain};
pub(crate) use stores::{QueueAt, QueueSettings, RegistryAt, RegistrySettings};
pub(crate) use template::template;

/// All settings.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Config {
    /// The file that was read, if any.
    pub(crate) file: Option<PathBuf>,
    /// How many shards the fleet has.
    pub(crate) shard_count: u32,
    /// The one static shard to run, without a primary.
    pub(crate) shard_index: Option<u32>,
    /// What worker ids begin with.
    pub(crate) worker_id: String,
    /// Where everything durable lies.
    pub(crate) data_dir: PathBuf,
    /// The file of the key by which tokens are encrypted, where it isn't in the data directory.
    pub(crate) key_file: Option<PathBuf>,
    /// The health port.
    pub(crate) health: Health,
    /// Where jobs come from.
    pub(crate) queue: QueueSettings,
    /// Where it is kept who owns what.
    pub(crate) registry: RegistrySettings,
    /// Which channels are wanted.
    pub(crate) directory: DirectorySettings,
    /// Telegram.
    pub(crate) telegram: Telegram,
    /// Slack.
    pub(crate) slack: Slack,
    /// Files.
    pub(crate) media: Media,
    /// WhatsApp.
    pub(crate) whatsapp: Whatsapp,
    /// Device sessions.
    pub(crate) sessions: Sessions,
    /// Events out.
    pub(crate) events: Events,
    /// Jobs.
    pub(crate) jobs: Jobs,
    /// Channels.
    pub(crate) channels: Channels,
    /// The primary's patience.
    pub(crate) supervisor: Supervisor,
    /// The bot-worker pool.
    pub(crate) bot_worker: BotWorker,
    /// Logs.
    pub(crate) log: Log,
    /// What is odd, but no error; to be logged once.
    pub(crate) warnings: Vec<String>,
}

/// `[health]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Health {
    /// The address.
    pub(crate) bind: IpAddr,
    /// The port; 0 takes a free one.
    pub(crate) port: u16,
}

/// `[telegram]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Telegram {
    /// The Bot API server.
    #[serde(serialize_with = "shown_url")]
    pub(crate) api_url: Url,
    /// How long a long poll waits.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) poll_timeout: Duration,
    /// Messages a second of one bot.
    pub(crate) bot_messages_per_second: u32,
    /// Messages a second into one private chat.
    pub(crate) chat_messages_per_second: u32,
    /// Messages a minute into one group.
    pub(crate) group_messages_per_minute: u32,
}

/// `[slack]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Slack {
    /// The Web API's server.
    #[serde(serialize_with = "shown_url")]
    pub(crate) api_url: Url,
    /// Messages a second of one app into one conversation.
    pub(crate) channel_messages_per_second: u32,
}

/// `[media]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Media {
    /// Whether files may be fetched from private addresses.
    /// No file that is sent or fetched is larger.
    pub(crate) largest_file: u64,
    /// Which received files are fetched; all when it is empty.
    pub(crate) types: Vec<String>,
    /// How long fetched files are kept; for ever when absent.
    pub(crate) keep: Option<Duration>,
    /// Where files to be sent may be fetched from.
    pub(crate) private_addresses: PrivateAddresses,
}

/// What becomes of a URL that leads to a private address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PrivateAddresses {
    /// It is not asked.
    Refuse,
    /// It is asked like any other.
    Allow,
}

/// `[whatsapp]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Whatsapp {
    /// The version that linked devices say they are.
    pub(crate) version: (u32, u32, u32),
    /// Their name on the phone.
    pub(crate) device_name: String,
    /// One-time keys at the server.
    pub(crate) pre_keys: u32,
    /// Whether history becomes events.
    pub(crate) history: bool,
    /// A simulator in place of the platform.
    #[serde(serialize_with = "shown_optional_url")]
    pub(crate) endpoint: Option<Url>,
}

/// Where snapshots of sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Snapshots {
    /// Nowhere.
    Off,
    /// In a directory.
    Directory(PathBuf),
    /// In a bucket.
    Bucket {
        /// Its name.
        bucket: String,
        /// What names begin with.
        prefix: String,
    },
}

/// `[sessions]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sessions {
    /// Where snapshots are kept; absent: in the data directory.
    pub(crate) snapshots: Option<Snapshots>,
    /// How long after a change one is taken at the latest.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) snapshot_lag: Duration,
    /// The bucket's server.
    #[serde(serialize_with = "shown_optional_url")]
    pub(crate) s3_endpoint: Option<Url>,
    /// The bucket's region.
    pub(crate) s3_region: String,
    /// The id of its access key.
    pub(crate) s3_access_key_id: Option<String>,
    /// Its access key.
    #[serde(serialize_with = "shown_secrets")]
    pub(crate) s3_secret: Vec<Secret>,
}

/// `[events]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Events {
    /// The endpoint for everything.
    #[serde(serialize_with = "shown_optional_url")]
    pub(crate) url: Option<Url>,
    /// What requests to it are signed with, the newest first.
    #[serde(serialize_with = "shown_secrets")]
    pub(crate) secrets: Vec<Secret>,
    /// How long the endpoint may take.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) timeout: Duration,
    /// How long a handler may take.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) handler_timeout: Duration,
    /// From which age on an event that can't be delivered is a dead letter.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) give_up_after: Duration,
    /// How long an event without destination is kept.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) retention: Duration,
}

/// `[jobs]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Jobs {
    /// Jobs of one queue in hand.
    pub(crate) prefetch: u16,
    /// Attempts before a job is a dead letter.
    pub(crate) attempts: u32,
    /// The wait after the first failure.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) retry_first: Duration,
    /// The longest wait.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) retry_max: Duration,
    /// How long running jobs may take to end.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) grace: Duration,
}

/// `[channels]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Channels {
    /// How often wanted and running channels are compared anyway.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) reconcile_interval: Duration,
    /// How many channels of a platform connect at a time.
    pub(crate) max_connecting: u32,
    /// How many of a platform begin to connect in a second.
    pub(crate) connects_per_second: u32,
}

/// `[supervisor]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Supervisor {
    /// From a shard's start to its first check-in as ready.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) boot_timeout: Duration,
    /// How long a shard may be silent.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) hang_timeout: Duration,
    /// How long a shard may take to stop.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) drain_timeout: Duration,
    /// The resident bytes above which a shard is replaced.
    pub(crate) shard_memory_limit: Option<u64>,
}

/// `[bot_worker]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct BotWorker {
    /// The most channels of one shard.
    pub(crate) worker_capacity: u32,
    /// How often a worker shows that it lives.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) heartbeat_interval: Duration,
    /// After what silence it counts as dead.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) heartbeat_timeout: Duration,
    /// Over how long a cold start is spread.
    #[serde(serialize_with = "shown_duration")]
    pub(crate) startup_jitter_max: Duration,
    /// Points of one worker on the ring.
    pub(crate) hash_replicas: u32,
}

/// `[log]`.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Log {
    /// How lines are written.
    pub(crate) format: LogFormat,
    /// The least important ones that are.
    #[serde(serialize_with = "shown_level")]
    pub(crate) level: Level,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people and the journal.
    Text,
    /// One object a line.
    Json,
}

impl Config {
    /// Reads everything; all that is wrong comes back together.
    pub(crate) fn load(sources: &Sources) -> Result<Self, Problems> {
        build::config(sources)
    }

    /// The layout as producers know it, seen from shard `index`.
    pub(crate) fn shard(&self, index: u32) -> ShardId {
        ShardId::new(index, self.shard_count)
    }

    /// The file of the key by which tokens are encrypted.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| self.data_dir.join("secret.key"))
    }

    /// Where snapshots of sessions are kept.
    #[cfg(feature = "whatsapp")]
    pub(crate) fn snapshots(&self) -> Snapshots {
        let beside = || Snapshots::Directory(self.data_dir.join("snapshots"));
        self.sessions.snapshots.clone().unwrap_or_else(beside)
    }

    /// A shard's worker id: bare with one shard, so that nothing changes for who runs just one.
    pub(crate) fn worker_id_of(&self, index: u32) -> String {
        if self.shard_count == 1 { self.worker_id.clone() } else { format!("{}-{index}", self.worker_id) }
    }
}

fn shown_url<S: Serializer>(url: &Url, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&address::without_credentials(url.as_str()))
}

fn shown_optional_url<S: Serializer>(url: &Option<Url>, serializer: S) -> Result<S::Ok, S::Error> {
    match url {
        Some(url) => shown_url(url, serializer),
        None => serializer.serialize_none(),
    }
}

fn shown_secrets<S: Serializer>(secrets: &[Secret], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(secrets.iter().map(ToString::to_string))
}

fn shown_duration<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&reader::written(*time))
}

fn shown_level<S: Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&level.as_str().to_ascii_lowercase())
}
