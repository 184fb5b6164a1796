//! The settings, read one after another, and the rules between them.

use std::{net::IpAddr, time::Duration};

use tracing::Level;
use url::Url;

use super::{
    BotWorker, Channels, Config, Events, Health, Jobs, Log, LogFormat, Media, PrivateAddresses, Problems, Sessions,
    Slack, Snapshots, Supervisor, Telegram, Whatsapp, address, directory,
    keys::{self, Key},
    problem::Problem,
    reader::{Reader, size, whole, written},
    secrets,
    sources::Sources,
    stores,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Reads all settings.
pub(super) fn config(sources: &Sources) -> Result<Config, Problems> {
    let mut problems = Vec::new();
    let given = sources.gather(&mut problems);
    let mut read = Reader::new(&given, problems);

    let shard_count = read.shard_count();
    let config = Config {
        shard_count,
        shard_index: read.shard_index(shard_count),
        worker_id: read.read_if_set(&keys::WORKER_ID, worker_name).unwrap_or_else(host_name),
        data_dir: read.path(&keys::DATA_DIR),
        key_file: read.path_if_set(&keys::KEY_FILE),
        health: Health {
            bind: read.read(&keys::HEALTH_BIND, |text| text.parse::<IpAddr>().ok()),
            port: read.read(&keys::HEALTH_PORT, |text| whole(text)?.try_into().ok()),
        },
        queue: stores::queue(&mut read, sources),
        registry: stores::registry(&mut read, sources),
        directory: directory::directory(&mut read, sources),
        telegram: telegram(&mut read),
        slack: Slack {
            api_url: read.read(&keys::SLACK_API_URL, base_address),
            channel_messages_per_second: read.number(&keys::SLACK_CHANNEL_RATE, 1..=100),
        },
        whatsapp: whatsapp(&mut read),
        sessions: sessions(&mut read, sources),
        media: Media {
            largest_file: read.read(&keys::MEDIA_LARGEST, largest_file),
            types: read.read(&keys::MEDIA_TYPES, mime_types),
            keep: read.read(&keys::MEDIA_KEEP, keep),
            private_addresses: read.read(&keys::MEDIA_PRIVATE, private_addresses),
        },
        events: events(&mut read, sources),
        jobs: Jobs {
            prefetch: read.number(&keys::JOBS_PREFETCH, 1..=10_000) as u16,
            attempts: read.number(&keys::JOBS_ATTEMPTS, 1..=1000),
            retry_first: read.duration(&keys::JOBS_RETRY_FIRST, Duration::from_millis(10)..=HOUR),
            retry_max: read.duration(&keys::JOBS_RETRY_MAX, Duration::from_millis(10)..=DAY),
            grace: read.duration(&keys::JOBS_GRACE, Duration::ZERO..=10 * MINUTE),
        },
        channels: Channels {
            reconcile_interval: read.duration(&keys::CHANNELS_RECONCILE, SECOND..=HOUR),
            max_connecting: read.number(&keys::CHANNELS_CONNECTS, 1..=10_000),
            connects_per_second: read.number(&keys::CHANNELS_RATE, 1..=10_000),
        },
        supervisor: Supervisor {
            boot_timeout: read.duration(&keys::SUPERVISOR_BOOT, SECOND..=10 * MINUTE),
            hang_timeout: read.duration(&keys::SUPERVISOR_HANG, SECOND..=6 * SECOND),
            drain_timeout: read.duration(&keys::SUPERVISOR_DRAIN, SECOND..=HOUR),
            shard_memory_limit: read.read_if_set(&keys::SUPERVISOR_MEMORY, shard_memory),
        },
        bot_worker: BotWorker {
            worker_capacity: read.number(&keys::BOT_WORKER_CAPACITY, 1..=10_000),
            heartbeat_interval: read.duration(&keys::BOT_WORKER_HEARTBEAT, SECOND..=5 * MINUTE),
            heartbeat_timeout: read.duration(&keys::BOT_WORKER_TIMEOUT, 2 * SECOND..=HOUR),
            startup_jitter_max: read.duration(&keys::BOT_WORKER_JITTER, Duration::ZERO..=10 * MINUTE),
            hash_replicas: read.number(&keys::BOT_WORKER_REPLICAS, 1..=10_000),
        },
        log: Log { format: read.read(&keys::LOG_FORMAT, log_format), level: read.read(&keys::LOG_LEVEL, log_level) },
        file: given.file.clone(),
        warnings: given.warnings.clone(),
    };
    rules(&mut read, &config);
    if read.problems.is_empty() { Ok(config) } else { Err(Problems(read.problems)) }
}

fn telegram(read: &mut Reader<'_>) -> Telegram {
    Telegram {
        api_url: read.read(&keys::TELEGRAM_API_URL, base_address),
        poll_timeout: read.duration(&keys::TELEGRAM_POLL_TIMEOUT, SECOND..=50 * SECOND),
        bot_messages_per_second: read.number(&keys::TELEGRAM_BOT_RATE, 1..=1000),
        chat_messages_per_second: read.number(&keys::TELEGRAM_CHAT_RATE, 1..=100),
        group_messages_per_minute: read.number(&keys::TELEGRAM_GROUP_RATE, 1..=6000),
    }
}

/// More is put behind this URL's path, so that a query or fragment would swallow it.
fn base_address(text: &str) -> Option<url::Url> {
    address::web(text).filter(|url| url.query().is_none() && url.fragment().is_none())
}

fn whatsapp(read: &mut Reader<'_>) -> Whatsapp {
    let endpoint = |text: &str| Url::parse(text).ok().filter(|url| matches!(url.scheme(), "ws" | "wss"));
    Whatsapp {
        version: read.read(&keys::WHATSAPP_VERSION, version),
        device_name: read.read(&keys::WHATSAPP_DEVICE, device_name),
        pre_keys: read.number(&keys::WHATSAPP_PRE_KEYS, 5..=812),
        history: read.read(&keys::WHATSAPP_HISTORY, |text| matches!(text, "on" | "off").then_some(text == "on")),
        endpoint: read.read_if_set(&keys::WHATSAPP_ENDPOINT, endpoint),
    }
}

fn sessions(read: &mut Reader<'_>, sources: &Sources) -> Sessions {
    let word = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (!text.is_empty() && text.bytes().all(fits)).then(|| text.to_owned())
    };
    Sessions {
        snapshots: read.read_if_set(&keys::SESSIONS_SNAPSHOTS, snapshots),
        snapshot_lag: read.duration(&keys::SESSIONS_LAG, SECOND..=HOUR),
        s3_endpoint: read.web_address(&keys::SESSIONS_S3_ENDPOINT),
        s3_region: read.read(&keys::SESSIONS_S3_REGION, word),
        s3_access_key_id: read.read_if_set(&keys::SESSIONS_S3_KEY_ID, word),
        s3_secret: secrets::read(&keys::SESSIONS_S3_SECRET, read, sources),
    }
}

fn snapshots(text: &str) -> Option<Snapshots> {
    if text == "off" {
        return Some(Snapshots::Off);
    }
    if let Some(rest) = text.strip_prefix("s3://") {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        let known = (3..=63).contains(&bucket.len()) && bucket.bytes().all(fits);
        return known.then(|| Snapshots::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() });
    }
    let path = std::path::PathBuf::from(text);
    path.is_absolute().then_some(Snapshots::Directory(path))
}

fn version(text: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = text.split('.').map(whole);
    let version = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(version)
}

fn device_name(text: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b' ');
    ((1..=50).contains(&text.len()) && text.bytes().all(fits)).then(|| text.to_owned())
}

fn events(read: &mut Reader<'_>, sources: &Sources) -> Events {
    Events {
        url: read.web_address(&keys::EVENTS_URL),
        secrets: secrets::read(&keys::EVENTS_SECRET, read, sources),
        timeout: read.duration(&keys::EVENTS_TIMEOUT, SECOND..=10 * MINUTE),
        handler_timeout: read.duration(&keys::EVENTS_HANDLER_TIMEOUT, SECOND..=10 * MINUTE),
        give_up_after: read.duration(&keys::EVENTS_GIVE_UP, MINUTE..=30 * DAY),
        retention: read.duration(&keys::EVENTS_RETENTION, MINUTE..=365 * DAY),
    }
}

/// What each setting alone can't say.
fn rules(read: &mut Reader<'_>, config: &Config) {
    if let Some(Snapshots::Bucket { .. }) = &config.sessions.snapshots
        && (config.sessions.s3_access_key_id.is_none() || config.sessions.s3_secret.is_empty())
    {
        let origin = read.origin(&keys::SESSIONS_SNAPSHOTS);
        let expected = "sessions.s3_access_key_id and sessions.s3_secret_file too".to_owned();
        read.problems.push(Problem::Unfit { origin, value: "a bucket".to_owned(), expected });
    }
    let mut unfit = |key: &Key, value: Duration, expected: String| {
        let origin = read.origin(key);
        read.problems.push(Problem::Unfit { origin, value: written(value), expected });
    };
    let (grace, drain) = (config.jobs.grace, config.supervisor.drain_timeout);
    if drain <= grace {
        unfit(&keys::SUPERVISOR_DRAIN, drain, format!("more than jobs.grace, which is {}", written(grace)));
    }
    let (first, max) = (config.jobs.retry_first, config.jobs.retry_max);
    if max < first {
        unfit(&keys::JOBS_RETRY_MAX, max, format!("at least jobs.retry_first, which is {}", written(first)));
    }
    let (interval, timeout) = (config.bot_worker.heartbeat_interval, config.bot_worker.heartbeat_timeout);
    if timeout < 2 * interval {
        let expected = format!("at least twice bot_worker.heartbeat_interval, which is {}", written(interval));
        unfit(&keys::BOT_WORKER_TIMEOUT, timeout, expected);
    }
}

fn shard_memory(text: &str) -> Option<u64> {
    size(text).filter(|bytes| (32 << 20..=1 << 40).contains(bytes))
}

fn worker_name(text: &str) -> Option<String> {
    let fits = (1..=100).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    fits.then(|| text.to_owned())
}

fn host_name() -> String {
    let name: String = sysinfo::System::host_name().unwrap_or_default();
    let name: String = name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    worker_name(&name).unwrap_or_else(|| "localhost".to_owned())
}

fn largest_file(text: &str) -> Option<u64> {
    size(text).filter(|bytes| (1 << 20..=2 << 30).contains(bytes))
}

/// `image/png` is one type, `image/` all that begin with it.
fn mime_types(text: &str) -> Option<Vec<String>> {
    let of_a_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.');
    let fits = |name: &&str| {
        name.split_once('/')
            .is_some_and(|(main, sub)| !main.is_empty() && main.bytes().all(of_a_name) && sub.bytes().all(of_a_name))
    };
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    names.iter().all(fits).then(|| names.into_iter().map(str::to_owned).collect())
}

/// `None` within: for ever.
fn keep(text: &str) -> Option<Option<Duration>> {
    if text == "forever" {
        return Some(None);
    }
    super::reader::duration(text).filter(|keep| (HOUR..=365 * DAY).contains(keep)).map(Some)
}

fn private_addresses(text: &str) -> Option<PrivateAddresses> {
    match text {
        "refuse" => Some(PrivateAddresses::Refuse),
        "allow" => Some(PrivateAddresses::Allow),
        _ => None,
    }
}

fn log_format(text: &str) -> Option<LogFormat> {
    match text {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}

fn log_level(text: &str) -> Option<Level> {
    let known = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
    known.into_iter().find(|level| level.as_str().to_ascii_lowercase() == text)
}
