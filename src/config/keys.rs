//! Every setting there is, in one table: its key in the file, its environment variables, what it accepts, its default.
//!
//! The table is what is read, what an unknown key is compared with, and what `docs/configuration.md` is checked
//! against, so that none of the three can know a setting that the others don't.

/// One setting.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its place in the file: `section.name`, or `name` at the top.
    pub(crate) name: &'static str,
    /// Its environment variables; the first is the name to use, the others are aliases.
    pub(crate) env: &'static [&'static str],
    /// Its command-line flag, if any.
    pub(crate) flag: Option<&'static str>,
    /// What is accepted, for people.
    pub(crate) accepts: &'static str,
    /// What holds when nothing is given, as it would be written; empty when there is none.
    pub(crate) default: &'static str,
    /// What it is for.
    pub(crate) about: &'static str,
    /// For a secret: the name of the systemd credential that may hold it. The setting itself is then the path of a file.
    pub(crate) credential: Option<&'static str>,
}

macro_rules! keys {
    (@maybe) => { None };
    (@maybe $given:literal) => { Some($given) };
    ($($constant:ident = $name:literal, [$($env:literal),+] $(, flag $flag:literal)? $(, credential $credential:literal)?,
        $accepts:literal, $default:literal, $about:literal;)+) => {
        $(pub(crate) const $constant: Key = Key {
            name: $name,
            env: &[$($env),+],
            flag: keys!(@maybe $($flag)?),
            accepts: $accepts,
            default: $default,
            about: $about,
            credential: keys!(@maybe $($credential)?),
        };)+

        /// All of them, in the order of the documentation.
        pub(crate) const ALL: &[&Key] = &[$(&$constant),+];
    };
}

keys! {
    SHARD_COUNT = "shard_count", ["SHARD_COUNT", "WHATSAPP_SHARD_COUNT"], flag "--shard-count",
        "a whole number from 1 to 1024, in plain digits, or auto", "1",
        "How many shards the fleet has; must be what the producers use. `auto`: the CPUs this process may use";
    SHARD_INDEX = "shard_index", ["SHARD_INDEX"], flag "--shard-index",
        "a whole number below shard_count", "",
        "Run this one static shard, without a primary";
    WORKER_ID = "worker_id", ["WORKER_ID", "BOT_WORKER_WORKER_ID"],
        "1 to 100 letters, digits, dots, dashes and underscores", "",
        "The name under which this box's shards are workers; the host name when absent";
    DATA_DIR = "data_dir", ["SHARDVISOR_DATA_DIR"], flag "--data-dir",
        "an absolute path", "/var/lib/shardvisor",
        "Where everything durable lies";
    KEY_FILE = "key_file", ["SHARDVISOR_KEY_FILE"],
        "an absolute path", "",
        "The file of the key by which tokens are encrypted, made at first use; `secret.key` in the data directory when absent";

    HEALTH_BIND = "health.bind", ["SHARDVISOR_HEALTH_BIND"],
        "an IP address", "0.0.0.0",
        "The address of `/healthz`, `/readyz`, `/metrics` and `/status`";
    HEALTH_PORT = "health.port", ["HEALTH_PORT"], flag "--health-port",
        "a port from 0 to 65535, in plain digits", "8080",
        "Its port; 0 takes a free one and writes it to `health.port` in the data directory";

    QUEUE_URL = "queue.url", ["SHARDVISOR_QUEUE_URL"],
        "`sqlite:`, or amqp: or amqps: URLs with commas between them", "sqlite:",
        "Where jobs come from; `sqlite:` is the embedded store in the data directory, `amqp://user:password@host:5672/vhost` a RabbitMQ";
    QUEUE_URL_FILE = "queue.url_file", ["SHARDVISOR_QUEUE_URL_FILE"], credential "queue-url",
        "the path of a file", "",
        "The same from a file, since it holds a password";
    QUEUE_TYPE = "queue.type", ["SHARDVISOR_QUEUE_TYPE"],
        "quorum or classic", "quorum",
        "What kind of queues are made on a broker";
    QUEUE_DECLARE = "queue.declare", ["SHARDVISOR_QUEUE_DECLARE"],
        "active or passive", "active",
        "Whether the work queues are made on a broker, or their producer owns them and they are only looked for";
    QUEUE_CA_FILE = "queue.ca_file", ["SHARDVISOR_QUEUE_CA_FILE"],
        "an absolute path", "",
        "Certificates (PEM) to trust for amqps: beside the system's";
    REGISTRY_URL = "registry.url", ["SHARDVISOR_REGISTRY_URL"],
        "`sqlite:`, or a redis:, rediss:, redis+unix:, redis+sentinel: or rediss+sentinel: URL", "sqlite:",
        "Where it is kept who owns what; `redis://user:password@host:6379/0`, `redis+sentinel://host,host/service`";
    REGISTRY_URL_FILE = "registry.url_file", ["SHARDVISOR_REGISTRY_URL_FILE"], credential "registry-url",
        "the path of a file", "",
        "The same from a file, since it holds a password";
    DIRECTORY_URL = "directory.url", ["SHARDVISOR_DIRECTORY_URL", "SHARDVISOR_API_URL"],
        "`sqlite:`, an http: or https: URL without query, or a postgres: URL", "sqlite:",
        "Where it is said which channels are wanted; `sqlite:` is the built-in store that `shardvisor channel` fills, a web address the platform's API (`/internal/v1/channels/active` behind it), `postgres://user@host:5432/database` a database with the view `shardvisor_channels`";
    DIRECTORY_URL_FILE = "directory.url_file", ["SHARDVISOR_DIRECTORY_URL_FILE"], credential "directory-url",
        "the path of a file", "",
        "The same from a file, where it holds a password";
    DIRECTORY_TOKEN = "directory.token_file", ["SHARDVISOR_DIRECTORY_TOKEN_FILE"], credential "directory-token",
        "the path of a file", "",
        "The bearer token that the platform's API is shown; a second line is a second token, tried when the first is refused";
    DIRECTORY_REMOVAL = "directory.mass_removal", ["SHARDVISOR_DIRECTORY_MASS_REMOVAL"],
        "hold or accept", "hold",
        "What becomes of channels that such a directory lists no longer when they are all, or more than ten and more than half: they go on until `shardvisor directory confirm`, or are stopped";

    TELEGRAM_API_URL = "telegram.api_url", ["SHARDVISOR_TELEGRAM_API_URL"],
        "an http: or https: URL without query", "https://api.telegram.org",
        "The Bot API server";
    TELEGRAM_POLL_TIMEOUT = "telegram.poll_timeout", ["SHARDVISOR_TELEGRAM_POLL_TIMEOUT"],
        "a duration from 1s to 50s", "30s",
        "How long a long poll waits for something to happen";
    TELEGRAM_BOT_RATE = "telegram.bot_messages_per_second", ["SHARDVISOR_TELEGRAM_BOT_MESSAGES_PER_SECOND"],
        "a whole number from 1 to 1000", "30",
        "Messages a second of one bot";
    TELEGRAM_CHAT_RATE = "telegram.chat_messages_per_second", ["SHARDVISOR_TELEGRAM_CHAT_MESSAGES_PER_SECOND"],
        "a whole number from 1 to 100", "1",
        "Messages a second into one private chat; short bursts pass";
    TELEGRAM_GROUP_RATE = "telegram.group_messages_per_minute", ["SHARDVISOR_TELEGRAM_GROUP_MESSAGES_PER_MINUTE"],
        "a whole number from 1 to 6000", "20",
        "Messages a minute into one group; short bursts pass";

    SLACK_API_URL = "slack.api_url", ["SHARDVISOR_SLACK_API_URL"],
        "an http: or https: URL without query", "https://slack.com/api",
        "The Web API's server; it also says where sockets are opened";
    SLACK_CHANNEL_RATE = "slack.channel_messages_per_second", ["SHARDVISOR_SLACK_CHANNEL_MESSAGES_PER_SECOND"],
        "a whole number from 1 to 100", "1",
        "Messages a second of one app into one conversation; short bursts pass";

    WHATSAPP_VERSION = "whatsapp.version", ["SHARDVISOR_WHATSAPP_VERSION"],
        "three numbers with dots between", "2.3000.1035194821",
        "The version of the web client that linked devices say they are; raise it when WhatsApp refuses it as outdated";
    WHATSAPP_DEVICE = "whatsapp.device_name", ["SHARDVISOR_WHATSAPP_DEVICE_NAME"],
        "1 to 50 letters, digits, dots, dashes, underscores and blanks", "shardvisor",
        "The name shown on the phone among the linked devices";
    WHATSAPP_PRE_KEYS = "whatsapp.pre_keys", ["SHARDVISOR_WHATSAPP_PRE_KEYS"],
        "a whole number from 5 to 812", "812",
        "One-time keys of a device that are kept at the server";
    WHATSAPP_HISTORY = "whatsapp.history", ["SHARDVISOR_WHATSAPP_HISTORY"],
        "on or off", "on",
        "Whether history that the phone sends becomes events";
    WHATSAPP_ENDPOINT = "whatsapp.endpoint", ["SHARDVISOR_WHATSAPP_ENDPOINT"],
        "a ws: or wss: URL of a loopback address, in a loopback build alone", "",
        "A simulator in place of WhatsApp";

    SESSIONS_SNAPSHOTS = "sessions.snapshots", ["SHARDVISOR_SESSIONS_SNAPSHOTS"],
        "an absolute path, s3://bucket/prefix, or off", "",
        "Where snapshots of device sessions are kept, encrypted; `snapshots` in the data directory when absent";
    SESSIONS_LAG = "sessions.snapshot_lag", ["SHARDVISOR_SESSIONS_SNAPSHOT_LAG"],
        "a duration from 1s to 1h", "5m",
        "How long after a change a snapshot is taken at the latest";
    SESSIONS_S3_ENDPOINT = "sessions.s3_endpoint", ["SHARDVISOR_SESSIONS_S3_ENDPOINT"],
        "an http: or https: URL", "",
        "The server of the bucket, where it isn't Amazon's";
    SESSIONS_S3_REGION = "sessions.s3_region", ["SHARDVISOR_SESSIONS_S3_REGION"],
        "letters, digits and dashes", "us-east-1",
        "The bucket's region";
    SESSIONS_S3_KEY_ID = "sessions.s3_access_key_id", ["SHARDVISOR_SESSIONS_S3_ACCESS_KEY_ID"],
        "letters, digits, dashes and underscores", "",
        "The id of the bucket's access key";
    SESSIONS_S3_SECRET = "sessions.s3_secret_file", ["SHARDVISOR_SESSIONS_S3_SECRET_FILE"], credential "s3-secret",
        "the path of a file", "",
        "The bucket's access key";

    MEDIA_LARGEST = "media.largest_file", ["SHARDVISOR_MEDIA_LARGEST_FILE"],
        "a size from 1M to 2G, such as 64M", "64M",
        "No file that is sent or fetched is larger";
    MEDIA_TYPES = "media.types", ["SHARDVISOR_MEDIA_TYPES"],
        "MIME types with commas between them, such as image/,application/pdf", "",
        "Received files are fetched when they are of one of these types (`image/`: of any image); of all when it is empty";
    MEDIA_KEEP = "media.keep", ["SHARDVISOR_MEDIA_KEEP"],
        "a duration from 1h to 365d, or forever", "forever",
        "How long fetched files and profile pictures are kept";
    MEDIA_PRIVATE = "media.private_addresses", ["SHARDVISOR_MEDIA_PRIVATE_ADDRESSES"],
        "refuse or allow", "refuse",
        "Whether a file to be sent may be fetched from a private or loopback address";

    EVENTS_URL = "events.url", ["SHARDVISOR_EVENTS_URL"],
        "an http: or https: URL", "",
        "The endpoint that gets every event, beside the channels' own handlers";
    EVENTS_SECRET = "events.secret_file", ["SHARDVISOR_EVENTS_SECRET_FILE"], credential "events-secret",
        "the path of a file", "",
        "The key by which requests to `events.url` are signed (HMAC-SHA256); a second line is a second key, for rotation";
    EVENTS_TIMEOUT = "events.timeout", ["SHARDVISOR_EVENTS_TIMEOUT"],
        "a duration from 1s to 10m", "10s",
        "How long the endpoint may take to answer";
    EVENTS_HANDLER_TIMEOUT = "events.handler_timeout", ["SHARDVISOR_EVENTS_HANDLER_TIMEOUT"],
        "a duration from 1s to 10m", "60s",
        "How long a channel's handler may take to answer";
    EVENTS_GIVE_UP = "events.give_up_after", ["SHARDVISOR_EVENTS_GIVE_UP_AFTER"],
        "a duration from 1m to 30d", "24h",
        "How old an event becomes that can't be delivered before it is a dead letter; it was tried several times by then";
    EVENTS_RETENTION = "events.retention", ["SHARDVISOR_EVENTS_RETENTION"],
        "a duration from 1m to 365d", "7d",
        "How long an event is kept that no destination is configured for";

    JOBS_PREFETCH = "jobs.prefetch", ["SHARDVISOR_JOBS_PREFETCH"],
        "a whole number from 1 to 10000", "200",
        "How many jobs of one queue a shard has in hand at a time";
    JOBS_ATTEMPTS = "jobs.attempts", ["SHARDVISOR_JOBS_ATTEMPTS"],
        "a whole number from 1 to 1000", "8",
        "Attempts to do a job before it becomes a dead letter";
    JOBS_RETRY_FIRST = "jobs.retry_first", ["SHARDVISOR_JOBS_RETRY_FIRST"],
        "a duration from 10ms to 1h", "2300ms",
        "The wait after the first failure; each further one is 2.3 times as long";
    JOBS_RETRY_MAX = "jobs.retry_max", ["SHARDVISOR_JOBS_RETRY_MAX"],
        "a duration from 10ms to 1d", "10m",
        "The longest such wait";
    JOBS_GRACE = "jobs.grace", ["SHARDVISOR_JOBS_GRACE"],
        "a duration from 0s to 10m", "10s",
        "How long running jobs may take to end when a shard is asked to stop; what is left goes back to its queue";

    CHANNELS_RECONCILE = "channels.reconcile_interval", ["SHARDVISOR_CHANNELS_RECONCILE_INTERVAL"],
        "a duration from 1s to 1h", "30s",
        "How often the wanted channels are compared with the running ones, should nobody tell of a change";
    CHANNELS_CONNECTS = "channels.max_connecting", ["SHARDVISOR_CHANNELS_MAX_CONNECTING"],
        "a whole number from 1 to 10000", "50",
        "How many channels of one platform a shard connects at a time";
    CHANNELS_RATE = "channels.connects_per_second", ["SHARDVISOR_CHANNELS_CONNECTS_PER_SECOND"],
        "a whole number from 1 to 10000", "300",
        "How many of one platform it begins to connect in a second";

    SUPERVISOR_BOOT = "supervisor.boot_timeout", ["SHARDVISOR_SUPERVISOR_BOOT_TIMEOUT"],
        "a duration from 1s to 10m", "30s",
        "How long a shard may take from its start to its first check-in as ready";
    SUPERVISOR_HANG = "supervisor.hang_timeout", ["SHARDVISOR_SUPERVISOR_HANG_TIMEOUT"],
        "a duration from 1s to 6s", "5s",
        "How long a shard may be silent, or a loop of it stand still, before it is ended; below the lease of a channel";
    SUPERVISOR_DRAIN = "supervisor.drain_timeout", ["SHARDVISOR_SUPERVISOR_DRAIN_TIMEOUT"],
        "a duration from 1s to 1h", "20s",
        "How long a shard may take to stop before it is killed; longer than jobs.grace";
    SUPERVISOR_MEMORY = "supervisor.shard_memory_limit", ["SHARDVISOR_SUPERVISOR_SHARD_MEMORY_LIMIT"],
        "a size from 32M to 1024G, such as 512M or 2G", "",
        "The resident memory above which a shard is replaced in good order; no limit when absent";

    BOT_WORKER_CAPACITY = "bot_worker.worker_capacity", ["BOT_WORKER_WORKER_CAPACITY"],
        "a whole number from 1 to 10000", "1000",
        "The most channels one shard runs";
    BOT_WORKER_HEARTBEAT = "bot_worker.heartbeat_interval", ["BOT_WORKER_HEARTBEAT_INTERVAL"],
        "a duration from 1s to 5m", "3s",
        "How often a worker of the pool shows that it lives";
    BOT_WORKER_TIMEOUT = "bot_worker.heartbeat_timeout", ["BOT_WORKER_HEARTBEAT_TIMEOUT"],
        "a duration from 2s to 1h", "10s",
        "After what silence it counts as dead; at least twice the interval";
    BOT_WORKER_JITTER = "bot_worker.startup_jitter_max", ["BOT_WORKER_STARTUP_JITTER_MAX"],
        "a duration from 0s to 10m", "5s",
        "Over how long the connects of a cold start are spread";
    BOT_WORKER_REPLICAS = "bot_worker.hash_replicas", ["BOT_WORKER_HASH_REPLICAS"],
        "a whole number from 1 to 10000", "100",
        "Points of one worker on the pool's ring; the same everywhere";

    LOG_FORMAT = "log.format", ["SHARDVISOR_LOG_FORMAT"],
        "text or json", "text",
        "How log lines are written";
    LOG_LEVEL = "log.level", ["SHARDVISOR_LOG_LEVEL"],
        "error, warn, info, debug or trace", "info",
        "The least important lines that are written";
}

/// The variable that names the configuration file; it is no setting of the file itself.
pub(crate) const CONFIG_VARIABLE: &str = "SHARDVISOR_CONFIG";

/// Finds a setting by its key.
pub(crate) fn by_name(name: &str) -> Option<&'static Key> {
    ALL.iter().copied().find(|key| key.name == name)
}

/// Whether some setting lies below this section.
pub(crate) fn is_section(name: &str) -> bool {
    ALL.iter().any(|key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_key_and_no_variable_is_there_twice() {
        let mut seen = HashSet::new();
        for key in ALL {
            assert!(seen.insert(key.name), "{}", key.name);
            for variable in key.env {
                assert!(seen.insert(variable), "{variable}");
            }
        }
    }

    /// Contract: I5.
    #[test]
    fn the_documentation_lists_exactly_the_settings_of_the_code() {
        let document = std::fs::read_to_string("docs/configuration.md").expect("docs/configuration.md");
        let documented: Vec<&str> = document.lines().filter(|line| line.starts_with("| `")).collect();
        let expected: Vec<String> = ALL.iter().map(|key| row(key)).collect();
        for (documented, expected) in documented.iter().zip(&expected) {
            assert_eq!(documented, expected);
        }
        assert_eq!(documented.len(), expected.len(), "the whole table should be:\n{}", expected.join("\n"));
    }

    fn row(key: &Key) -> String {
        let mut ways: Vec<String> = key.env.iter().map(|variable| format!("`{variable}`")).collect();
        ways.extend(key.flag.map(|flag| format!("`{flag}`")));
        ways.extend(key.credential.map(|name| format!("credential `{name}`")));
        let default = if key.default.is_empty() { "none".to_owned() } else { format!("`{}`", key.default) };
        format!("| `{}` | {} | {} | {} | {} |", key.name, ways.join(", "), key.accepts, default, key.about)
    }
}
