//! Where the broker is and how its queues are made.

use std::{fmt, time::Duration};

use lapin::{tcp::OwnedTLSConfig, uri::AMQPUri};

/// What kind of queue is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueType {
    /// Replicated, the default.
    #[default]
    Quorum,
    /// On one node.
    Classic,
}

/// Who makes the work queues. Parked and dead-letter queues are always ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeclareMode {
    /// We do.
    #[default]
    Active,
    /// Somebody else does; we look whether they are there.
    Passive,
}

/// A broker address that can't be used. The address itself is not shown: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmqpConfigError {
    /// None given.
    #[error("no broker address was given")]
    NoAddress,
    /// Not an address of a broker.
    #[error("broker address {number} can't be used: {problem}")]
    Address {
        /// Which, from 1 on.
        number: usize,
        /// Why.
        problem: String,
    },
}

/// How to reach the broker, and what to ask of it.
#[derive(Clone)]
pub struct AmqpConfig {
    pub(crate) addresses: Vec<AMQPUri>,
    /// What kind of queue is declared.
    pub queue_type: QueueType,
    /// Who makes the work queues.
    pub declare: DeclareMode,
    /// Queues of other layouts are looked for up to this index: a broker tells no names over AMQP.
    pub probe_to: u32,
    /// How long a publish waits for its confirm.
    pub confirm_timeout: Duration,
    /// How long everything else waits for its answer.
    pub answer_timeout: Duration,
    /// How many bytes of parked jobs are kept in memory.
    pub parked_budget: usize,
    /// How long the parked queue is held before it is read anew; below the broker's acknowledgement time-out.
    pub parked_reread: Duration,
    /// What the broker shows as the connection's name.
    pub name: String,
    /// Certificates (PEM) to trust beside the system's.
    pub trusted: Option<String>,
}

impl fmt::Debug for AmqpConfig {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AmqpConfig").field(&self.shown()).finish()
    }
}

impl AmqpConfig {
    /// Takes one or several addresses (`amqp:` or `amqps:`), tried in turn; several may also be given in one text, with commas.
    pub fn new<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Result<Self, AmqpConfigError> {
        let texts =
            addresses.into_iter().flat_map(|text| text.split(',')).map(str::trim).filter(|text| !text.is_empty());
        let addresses = texts
            .enumerate()
            .map(|(at, text)| {
                let bad = |problem: String| AmqpConfigError::Address { number: at + 1, problem };
                address(text).map_err(bad)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if addresses.is_empty() {
            return Err(AmqpConfigError::NoAddress);
        }
        Ok(Self {
            addresses,
            queue_type: QueueType::default(),
            declare: DeclareMode::default(),
            probe_to: 64,
            confirm_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(15),
            parked_budget: 32 << 20,
            parked_reread: Duration::from_secs(600),
            name: "shardvisor".to_owned(),
            trusted: None,
        })
    }

    /// The same under another name of its connections.
    pub fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// The addresses without credentials, for people.
    pub fn shown(&self) -> Vec<String> {
        let shown =
            |uri: &AMQPUri| format!("{}://{}:{}/{}", uri.scheme, uri.authority.host, uri.authority.port, uri.vhost);
        self.addresses.iter().map(shown).collect()
    }

    pub(crate) fn tls(&self) -> OwnedTLSConfig {
        OwnedTLSConfig { identity: None, cert_chain: self.trusted.clone() }
    }
}

fn address(text: &str) -> Result<AMQPUri, String> {
    if !(text.starts_with("amqp://") || text.starts_with("amqps://")) {
        return Err("expected amqp:// or amqps://".to_owned());
    }
    // The parser's own words may repeat the address.
    let mut uri: AMQPUri =
        text.parse().map_err(|_| "it can't be read as a URL with host, port and vhost".to_owned())?;
    // Without it the client fills its buffers before it knows their size: eight megabytes for each connection.
    uri.query.frame_max.get_or_insert(131_072);
    // A broker that stands still is noticed within twice this.
    uri.query.heartbeat.get_or_insert(10);
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_and_shown_without_credentials() {
        let config = AmqpConfig::new(["amqp://u:hush@one:5673/work, amqps://two?heartbeat=60"]).expect("two addresses");
        assert_eq!(config.shown(), ["amqp://one:5673/work", "amqps://two:5671//"]);
        let queries: Vec<_> = config.addresses.iter().map(|uri| (uri.query.frame_max, uri.query.heartbeat)).collect();
        assert_eq!(queries, [(Some(131_072), Some(10)), (Some(131_072), Some(60))]);
    }

    #[test]
    fn a_bad_address_is_told_by_its_number_alone() {
        for bad in ["amqp://one,redis://u:hush@two", "amqp://one,amqp://u:hush@two:port"] {
            let error = AmqpConfig::new([bad]).map(|_| ()).expect_err(bad).to_string();
            assert!(error.starts_with("broker address 2") && !error.contains("hush"), "{error}");
        }
        assert!(matches!(AmqpConfig::new([" ,"]).map(|_| ()), Err(AmqpConfigError::NoAddress)));
    }
}
