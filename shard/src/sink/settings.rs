//! Who takes events: handlers as the delivery sees them, targets with their secrets, and where replies go.
//!
//! These are the sink's own words. Ports do not import one another, so that what a directory says and how a queue is
//! written to is translated where both are known.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use async_trait::async_trait;
use reqwest::Url;

use crate::{identity::ChannelId, job::Job, secret::Secret};

/// An endpoint or agent: its URL, and the secrets that requests to it are signed with. Printing it shows the host alone.
#[derive(Clone)]
pub struct Target(Arc<Inner>);

struct Inner {
    url: Url,
    secrets: Vec<Secret>,
    site: u64,
}

/// A URL that events can't be sent to. It is not repeated, since it may hold credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an http: or https: URL with a host")]
pub struct BadUrl;

impl Target {
    /// Checks the URL; the requests are signed with each of the secrets.
    pub fn new(url: &str, secrets: Vec<Secret>) -> Result<Self, BadUrl> {
        let url = Url::parse(url).map_err(|_| BadUrl)?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return Err(BadUrl);
        }
        let mut hasher = DefaultHasher::new();
        (url.scheme(), url.host_str(), url.port_or_known_default()).hash(&mut hasher);
        Ok(Self(Arc::new(Inner { site: hasher.finish(), url, secrets })))
    }

    /// The URL itself, for the one place that sends to it.
    pub(super) fn url(&self) -> &Url {
        &self.0.url
    }

    /// What requests are signed with.
    pub(super) fn secrets(&self) -> &[Secret] {
        &self.0.secrets
    }

    /// Scheme, host and port as a number: what is slow or dead together.
    pub(super) fn site(&self) -> u64 {
        self.0.site
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({}, {} secrets)", self.0.url.host_str().unwrap_or_default(), self.0.secrets.len())
    }
}

/// Who answers a channel's messages.
#[derive(Debug, Clone)]
pub enum HandlerSettings {
    /// Nobody.
    None,
    /// Every text comes back as it was.
    Echo,
    /// The agent behind a URL.
    Agent(Target),
    /// Somebody, but the settings can't work until somebody changes them: events are tried again.
    Broken(String),
}

impl HandlerSettings {
    /// An agent, from settings as they are written down.
    pub fn agent(url: &str, secret: Option<Secret>) -> Self {
        match Target::new(url, secret.into_iter().collect()) {
            Ok(target) => Self::Agent(target),
            Err(error) => Self::Broken(format!("the handler's URL: {error}")),
        }
    }
}

/// The handlers' settings, always current.
pub trait Handlers: Send + Sync + 'static {
    /// A channel's handler; `None` while the channel is not known: its events then wait.
    fn handler(&self, channel: ChannelId) -> Option<HandlerSettings>;
}

/// Replies could not be handed over, for a reason that holds no secret: try again. Some of them may be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("replies could not be queued: {0}")]
pub struct ReplyError(pub String);

/// Where a handler's replies go: the queue of the channel they are for.
#[async_trait]
pub trait Replies: Send + Sync + 'static {
    /// Durable when it returns `Ok`, in this order. A job whose id was handed over before may be stored once more: the
    /// send guard knows it.
    async fn reply(&self, jobs: Vec<Job>) -> Result<(), ReplyError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_with_a_host_are_targets() {
        for bad in ["", "agent", "ftp://host/", "http://", "file:///etc/passwd", "/hook", "https:"] {
            let error = Target::new(bad, vec![]).map(|_| bad).expect_err("refused");
            assert!(!error.to_string().contains("passwd"));
        }
        assert!(Target::new("http://127.0.0.1:9/x", vec![]).is_ok());
        let settings = HandlerSettings::agent("https//user:pw@host", None);
        assert!(matches!(&settings, HandlerSettings::Broken(why) if !why.contains("pw")), "{settings:?}");
    }

    #[test]
    fn a_target_prints_neither_credentials_nor_path() {
        let target = Target::new("https://user:pw@hook.test/t0ken?k=v", vec![Secret::new("s3cret")]).expect("a URL");
        assert_eq!(format!("{target:?}"), "Target(hook.test, 1 secrets)");
    }

    #[test]
    fn a_site_is_scheme_host_and_port() {
        let site = |url| Target::new(url, vec![]).expect("a URL").site();
        assert_eq!(site("https://a.test/x"), site("https://u:p@a.test:443/y?z"));
        assert_ne!(site("https://a.test/"), site("http://a.test/"));
        assert_ne!(site("http://a.test/"), site("http://a.test:81/"));
    }
}
