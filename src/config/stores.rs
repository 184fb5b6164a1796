//! Where jobs come from and where it is kept who owns what: `queue.url` and `registry.url`, or the files that hold them.
//! Neither is shown with its credentials.

use serde::{Serialize, Serializer};
#[cfg(feature = "amqp")]
use shard::queue::{AmqpConfig, DeclareMode, QueueType};
#[cfg(feature = "redis")]
use shard::registry::RedisUrl;

#[cfg(any(feature = "amqp", feature = "redis"))]
use super::sources::plain;
use super::{
    address::without_credentials,
    keys::{self, Key},
    problem::{Origin, Problem},
    reader::Reader,
    secrets,
    sources::Sources,
};

/// Where jobs come from.
#[derive(Debug, Clone)]
pub(crate) enum QueueAt {
    /// The SQLite files in the data directory.
    Embedded,
    /// A broker.
    #[cfg(feature = "amqp")]
    Amqp(Box<AmqpConfig>),
}

/// Where it is kept who owns what.
#[derive(Debug, Clone)]
pub(crate) enum RegistryAt {
    /// The SQLite files in the data directory.
    Embedded,
    /// A Redis.
    #[cfg(feature = "redis")]
    Redis(RedisUrl),
}

impl QueueAt {
    /// How it is named in logs.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Embedded => "embedded".to_owned(),
            #[cfg(feature = "amqp")]
            Self::Amqp(config) => config.shown().join(","),
        }
    }
}

impl RegistryAt {
    /// How it is named in logs.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Embedded => "embedded".to_owned(),
            #[cfg(feature = "redis")]
            Self::Redis(url) => url.to_string(),
        }
    }
}

/// `[queue]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct QueueSettings {
    /// What is behind it.
    #[serde(rename = "url", serialize_with = "shown_queue")]
    pub(crate) at: QueueAt,
}

/// `[registry]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RegistrySettings {
    /// What is behind it.
    #[serde(rename = "url", serialize_with = "shown_registry")]
    pub(crate) at: RegistryAt,
}

fn shown_queue<S: Serializer>(at: &QueueAt, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&at.describe())
}

fn shown_registry<S: Serializer>(at: &RegistryAt, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&at.describe())
}

/// Reads `[queue]`.
pub(super) fn queue(read: &mut Reader<'_>, sources: &Sources) -> QueueSettings {
    let url = url(read, &keys::QUEUE_URL, &keys::QUEUE_URL_FILE, sources);
    let kind = read.read(&keys::QUEUE_TYPE, |text| matches!(text, "quorum" | "classic").then(|| text.to_owned()));
    let declare = read.read(&keys::QUEUE_DECLARE, |text| matches!(text, "active" | "passive").then(|| text.to_owned()));
    let trusted = read.path_if_set(&keys::QUEUE_CA_FILE);
    let at = match url {
        Some(url) if url.scheme_is(&["amqp", "amqps"]) => {
            #[cfg(feature = "amqp")]
            {
                amqp(read, &url, &kind, &declare, trusted)
            }
            #[cfg(not(feature = "amqp"))]
            {
                let _ = (kind, declare, trusted);
                read.problems.push(url.not_built_in(&keys::QUEUE_URL));
                QueueAt::Embedded
            }
        }
        Some(url) => {
            read.problems.push(url.unknown(&keys::QUEUE_URL));
            QueueAt::Embedded
        }
        None => QueueAt::Embedded,
    };
    QueueSettings { at }
}

#[cfg(feature = "amqp")]
fn amqp(read: &mut Reader<'_>, url: &Given, kind: &str, declare: &str, trusted: Option<std::path::PathBuf>) -> QueueAt {
    let mut config = match AmqpConfig::new([url.text.as_str()]) {
        Ok(config) => config,
        Err(error) => {
            read.problems.push(url.refused(format!("{} ({error})", keys::QUEUE_URL.accepts)));
            return QueueAt::Embedded;
        }
    };
    if kind == "classic" {
        config.queue_type = QueueType::Classic;
    }
    if declare == "passive" {
        config.declare = DeclareMode::Passive;
    }
    if let Some(path) = trusted {
        match std::fs::read_to_string(&path) {
            Ok(pem) if pem.contains("-----BEGIN CERTIFICATE-----") => config.trusted = Some(pem),
            other => {
                let origin = read.origin(&keys::QUEUE_CA_FILE).to_string();
                let problem = other.map_or_else(|error| plain(&error), |_| "holds no certificate: expected PEM".into());
                read.problems.push(Problem::SecretFile { origin, path: path.display().to_string(), problem });
            }
        }
    }
    QueueAt::Amqp(Box::new(config))
}

/// Reads `[registry]`.
pub(super) fn registry(read: &mut Reader<'_>, sources: &Sources) -> RegistrySettings {
    let schemes = ["redis", "rediss", "redis+unix", "redis+sentinel", "rediss+sentinel"];
    let at = match url(read, &keys::REGISTRY_URL, &keys::REGISTRY_URL_FILE, sources) {
        Some(url) if url.scheme_is(&schemes) => {
            #[cfg(feature = "redis")]
            match url.text.parse() {
                Ok(redis) => RegistryAt::Redis(redis),
                Err(error) => {
                    read.problems.push(url.refused(format!("{} ({error})", keys::REGISTRY_URL.accepts)));
                    RegistryAt::Embedded
                }
            }
            #[cfg(not(feature = "redis"))]
            {
                read.problems.push(url.not_built_in(&keys::REGISTRY_URL));
                RegistryAt::Embedded
            }
        }
        Some(url) => {
            read.problems.push(url.unknown(&keys::REGISTRY_URL));
            RegistryAt::Embedded
        }
        None => RegistryAt::Embedded,
    };
    RegistrySettings { at }
}

/// A URL as it was given, in the open or in a file.
pub(super) struct Given {
    pub(super) text: String,
    origin: Origin,
}

impl Given {
    pub(super) fn scheme_is(&self, known: &[&str]) -> bool {
        self.text.split_once("://").is_some_and(|(scheme, _)| known.contains(&scheme))
    }

    pub(super) fn refused(&self, expected: String) -> Problem {
        Problem::Refused { origin: self.origin.clone(), value: without_credentials(&self.text), expected }
    }

    pub(super) fn unknown(&self, key: &Key) -> Problem {
        if self.text.starts_with("sqlite:") {
            return self.refused("`sqlite:` alone; the store lies in the data directory".to_owned());
        }
        self.refused(key.accepts.to_owned())
    }

    #[cfg(not(all(feature = "amqp", feature = "redis", feature = "postgres")))]
    pub(super) fn not_built_in(&self, key: &Key) -> Problem {
        let (origin, value) = (self.origin.clone(), without_credentials(&self.text));
        Problem::NotBuiltIn { origin, value, expected: format!("`sqlite:`, or a build with {}", key.accepts) }
    }
}

/// The URL of a setting or of the file beside it; `None` is the embedded store.
pub(super) fn url(read: &mut Reader<'_>, key: &Key, file: &Key, sources: &Sources) -> Option<Given> {
    let open = read.value(key).map(|value| Given { text: value.text.clone(), origin: value.origin.clone() });
    let lines = secrets::read(file, read, sources);
    let hidden = (!lines.is_empty()).then(|| Given {
        // Several addresses may stand on a line each.
        text: lines.iter().map(|line| line.expose()).collect::<Vec<_>>().join(","),
        origin: read.origin(file),
    });
    let given = match (open, hidden) {
        (Some(open), Some(_)) => {
            let expected = format!("nothing, since {} gives it already", file.name);
            read.problems.push(Problem::Unfit {
                origin: open.origin.clone(),
                value: without_credentials(&open.text),
                expected,
            });
            return None;
        }
        (open, hidden) => open.or(hidden)?,
    };
    (given.text != "sqlite:").then_some(given)
}
