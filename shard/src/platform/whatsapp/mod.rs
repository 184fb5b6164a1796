//! WhatsApp, as a linked device.
//!
//! The protocol is whatsapp-rust's; the session, the decision what an end means, and when anything counts as stored are
//! our own. The library never reconnects by itself here: one life of a channel is one client, so that every end passes
//! through one table, and a restart after pairing begins from what lies on the disk.

mod close;
mod connection;
mod content;
mod history;
mod hook;
mod http;
mod line;
mod runtime;
mod seen;
mod send;
#[cfg(all(test, feature = "loopback"))]
mod tests;

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use url::{Host, Url};
use whatsapp_rust::{
    transport::TokioWebSocketTransportFactory,
    wacore::net::{HttpClient, TransportFactory},
};

use self::{history::UnderWay, http::MediaHttp, line::Line, send::WhatsappSender};
use super::{Closed, Failed, Inbox, Platform, PlatformKind, Sender};
use crate::{
    directory::ChannelSpec,
    identity::ChannelId,
    job::{Job, Task},
    media::Media,
    session::Sessions,
};

/// A version of the web client that servers are known to take.
pub const PINNED_VERSION: (u32, u32, u32) = (2, 3000, 1_035_194_821);

/// How WhatsApp is reached.
#[derive(Debug, Clone)]
pub struct WhatsappConfig {
    /// The version that the client says it is.
    pub version: (u32, u32, u32),
    /// The name shown among the account's linked devices.
    pub device_name: String,
    /// One-time keys that are kept at the server.
    pub pre_keys: usize,
    /// Whether history that the phone sends is told.
    pub history: bool,
    /// After how long without a sound a connection counts as dead.
    pub idle_limit: Duration,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// How long a server may take to answer for a message.
    pub ack_timeout: Duration,
    /// Another server than WhatsApp's; loopback builds only, and only on this machine.
    pub endpoint: Option<Url>,
    /// Divides the client's own waits; 1 but in tests.
    pub hurry: u32,
}

impl Default for WhatsappConfig {
    fn default() -> Self {
        Self {
            version: PINNED_VERSION,
            device_name: "shardvisor".to_owned(),
            pre_keys: 812,
            history: true,
            idle_limit: Duration::from_secs(75),
            login_timeout: Duration::from_secs(60),
            ack_timeout: Duration::from_secs(20),
            endpoint: None,
            hurry: 1,
        }
    }
}

/// WhatsApp could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum WhatsappError {
    /// This build connects to WhatsApp alone.
    #[error(
        "whatsapp.endpoint: this build connects to WhatsApp alone; one with the feature `loopback` takes an address"
    )]
    NoEndpoint,
    /// This build must not reach WhatsApp, nor anything else away from this machine.
    #[error("whatsapp.endpoint: a loopback build connects to loopback addresses alone (ws://127.0.0.1:<port>/…)")]
    NotLoopback,
    /// No HTTP client could be made.
    #[error("no HTTP client for media")]
    Client(#[source] reqwest::Error),
}

/// Whether this build skips the chain of certificates, and therefore connects to loopback addresses alone.
pub const LOOPBACK: bool = cfg!(feature = "loopback");

/// Refuses a server that this build must not connect to.
fn checked_endpoint(endpoint: Option<&Url>, loopback: bool) -> Result<(), WhatsappError> {
    match (endpoint, loopback) {
        (None, false) => Ok(()),
        (Some(_), false) => Err(WhatsappError::NoEndpoint),
        (None, true) => Err(WhatsappError::NotLoopback),
        (Some(url), true) => {
            let is_here = match url.host() {
                Some(Host::Ipv4(ip)) => IpAddr::from(ip).is_loopback(),
                Some(Host::Ipv6(ip)) => IpAddr::from(ip).is_loopback(),
                // A name may lead anywhere.
                Some(Host::Domain(_)) | None => false,
            };
            if is_here && matches!(url.scheme(), "ws" | "wss") { Ok(()) } else { Err(WhatsappError::NotLoopback) }
        }
    }
}

/// What all channels of a shard share.
struct Shared {
    config: WhatsappConfig,
    sessions: Arc<dyn Sessions>,
    transport: Arc<dyn TransportFactory>,
    http: Arc<dyn HttpClient>,
    media: Arc<Media>,
    lines: Mutex<HashMap<ChannelId, Arc<Line>>>,
    /// Histories read at a time.
    histories: Arc<UnderWay>,
}

impl Shared {
    fn line(&self, channel: ChannelId) -> Arc<Line> {
        self.lines.lock().expect("lines").entry(channel).or_default().clone()
    }
}

/// The network. One serves all channels of a shard.
pub struct Whatsapp {
    shared: Arc<Shared>,
}

impl Whatsapp {
    /// Nothing is connected yet. Must be called within the runtime.
    pub fn new(config: WhatsappConfig, media: Arc<Media>, sessions: Arc<dyn Sessions>) -> Result<Self, WhatsappError> {
        checked_endpoint(config.endpoint.as_ref(), LOOPBACK)?;
        let web = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .pool_max_idle_per_host(4)
            .build()
            .map_err(WhatsappError::Client)?;
        let mut transport = TokioWebSocketTransportFactory::new();
        let mut instead = None;
        if let Some(endpoint) = &config.endpoint {
            transport = transport.with_url(endpoint.as_str());
            let mut media = endpoint.clone();
            // From `ws:` to `http:` and `wss:` to `https:`: both are known to be special schemes.
            let _ = media.set_scheme(if endpoint.scheme() == "wss" { "https" } else { "http" });
            instead = Some(media);
        }
        let shared = Shared {
            sessions,
            transport: Arc::new(transport),
            http: Arc::new(MediaHttp::new(web, instead)),
            media,
            lines: Mutex::default(),
            histories: UnderWay::new(2),
            config,
        };
        Ok(Self { shared: Arc::new(shared) })
    }
}

/// The id of a job's message: like those of the web client, and the same whenever the job is done again.
fn message_id(job: &Job) -> String {
    let mut digest = Sha256::new();
    digest.update(job.channel.uuid().as_bytes());
    digest.update(job.id.as_str().as_bytes());
    let hex: String = digest.finalize().iter().take(9).map(|byte| format!("{byte:02X}")).collect();
    format!("3EB0{hex}")
}

#[async_trait]
impl Platform for Whatsapp {
    fn kind(&self) -> PlatformKind {
        PlatformKind::Whatsapp
    }

    /// A group's id is the platform's to choose.
    fn provider_id(&self, job: &Job) -> Option<String> {
        (!matches!(job.task, Task::GroupCreate(_))).then(|| message_id(job))
    }

    /// It waits for the connection, and sends by it.
    fn sender(&self, spec: &Arc<ChannelSpec>) -> Option<Arc<dyn Sender>> {
        let line = self.shared.line(spec.id);
        Some(Arc::new(WhatsappSender::new(self.shared.clone(), line)))
    }

    async fn log_out(&self, spec: &Arc<ChannelSpec>) -> Result<(), Failed> {
        let link = self.shared.line(spec.id).wait(Duration::ZERO).await?;
        link.held()?;
        link.leave();
        link.client.logout().await;
        let deleted = self.shared.sessions.delete(link.session.right()).await;
        deleted.map_err(|error| Failed::Retry { error: error.to_string(), after: None })
    }

    async fn receive(&self, spec: Arc<ChannelSpec>, inbox: Arc<dyn Inbox>, stop: CancellationToken) -> Closed {
        connection::live(&self.shared, &spec, &inbox, &stop).await
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn job(id: &str) -> Job {
        let body = serde_json::json!({
            "name": "send", "id": id, "channel_id": "00000000-0000-7000-8000-000000000001",
            "data": {"chat_id": "4915@s.whatsapp.net", "text": "hi"},
        });
        Job::parse(body.to_string().as_bytes()).expect("a job")
    }

    /// Contract: Q8. Field report R33.
    #[test]
    fn a_jobs_message_has_the_same_id_whenever_it_is_sent() {
        assert_eq!(message_id(&job("a")), message_id(&job("a")));
        assert_ne!(message_id(&job("a")), message_id(&job("b")));
        let id = message_id(&job("a"));
        assert!(id.len() == 22 && id.starts_with("3EB0") && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }

    #[test]
    fn a_build_that_skips_certificates_reaches_this_machine_alone_and_another_none_but_whatsapp() {
        let refused = |url: &str, loopback| checked_endpoint(Some(&url.parse().expect("a URL")), loopback).is_err();
        for away in ["wss://web.whatsapp.com/ws/chat", "ws://10.0.0.1/ws", "ws://localhost/ws", "http://127.0.0.1/ws"] {
            assert!(refused(away, true), "{away}");
        }
        for here in ["ws://127.0.0.1:1/ws/chat", "ws://[::1]:1/ws/chat", "ws://127.8.9.1:1/"] {
            assert!(!refused(here, true), "{here}");
            assert!(refused(here, false), "{here}");
        }
        assert!(checked_endpoint(None, false).is_ok());
        assert!(checked_endpoint(None, true).is_err());
    }
}
