//! Slack, by Socket Mode for what comes in and the Web API for what goes out.
//!
//! The few payloads are read as JSON values, so that nothing the platform adds is lost; the sockets' life cycle is our own,
//! for it decides what a library would hide: when an envelope is acknowledged, when a socket is replaced, what a refusal
//! means.

mod api;
mod download;
mod envelope;
mod event;
mod interaction;
mod limits;
mod link;
mod message;
mod opens;
mod outcome;
mod receive;
mod send;
mod socket;
#[cfg(test)]
mod tests;
mod tokens;
mod upload;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use url::Url;

pub use limits::SlackLimits;
pub use link::SlackTimes;
pub use tokens::{BadTokens, Tokens};

use self::{api::Api, limits::Limits, opens::Opens, receive::Shared, send::SlackSender};
use super::{Closed, Inbox, Platform, PlatformKind, Sender};
use crate::{clock::Clock, directory::ChannelSpec, identity::ChannelId, job::Job, media::Media};

/// Why an app without an app token is left alone.
const NOT_HELD: &str = "the app has no app token (xapp-…): its events come by HTTP, and no socket is held for it";

/// How Slack is reached.
#[derive(Debug, Clone)]
pub struct SlackConfig {
    /// The Web API: `https://slack.com/api`.
    pub api_url: Url,
    /// How fast apps may send.
    pub limits: SlackLimits,
    /// By what times sockets live.
    pub times: SlackTimes,
}

impl SlackConfig {
    /// The defaults for a Web API.
    pub fn new(api_url: Url) -> Self {
        Self { api_url, limits: SlackLimits::default(), times: SlackTimes::default() }
    }
}

/// Slack could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SlackError {
    /// The address is of no use.
    #[error("the Web API's address has scheme {scheme:?}: expected http or https")]
    Address {
        /// Its scheme.
        scheme: String,
    },
    /// No HTTP client could be made.
    #[error("no HTTP client for Slack")]
    Client(#[source] reqwest::Error),
}

/// The network. One serves all apps of a shard.
pub struct Slack {
    shared: Arc<Shared>,
    media: Arc<Media>,
    config: SlackConfig,
    clock: Arc<dyn Clock>,
    /// The limits of each app that somebody can send with: two senders of one app share them.
    limits: Mutex<HashMap<ChannelId, Weak<Limits>>>,
}

impl Slack {
    /// Nothing is connected yet.
    pub fn new(config: SlackConfig, media: Arc<Media>, clock: Arc<dyn Clock>) -> Result<Self, SlackError> {
        let api = Arc::new(Api::new(&config.api_url)?);
        let shared = Arc::new(Shared { api, times: config.times.clone(), opens: Opens::default() });
        Ok(Self { shared, media, config, clock, limits: Mutex::default() })
    }

    fn limits_of(&self, channel: ChannelId) -> Arc<Limits> {
        let mut all = self.limits.lock().expect("limits");
        if let Some(limits) = all.get(&channel).and_then(Weak::upgrade) {
            return limits;
        }
        if all.len() % 256 == 255 {
            all.retain(|_, limits| limits.strong_count() > 0);
        }
        let limits = Arc::new(Limits::new(self.config.limits.clone()));
        all.insert(channel, Arc::downgrade(&limits));
        limits
    }
}

#[async_trait]
impl Platform for Slack {
    fn kind(&self) -> PlatformKind {
        PlatformKind::Slack
    }

    /// The platform gives the ids.
    fn provider_id(&self, _: &Job) -> Option<String> {
        None
    }

    fn holds(&self, spec: &ChannelSpec) -> Result<(), &'static str> {
        let tokens = spec.token.as_ref().map(Tokens::read);
        if tokens.is_some_and(|tokens| tokens.is_ok_and(|tokens| tokens.app.is_none())) {
            Err(NOT_HELD)
        } else {
            Ok(())
        }
    }

    fn sender(&self, spec: &Arc<ChannelSpec>) -> Option<Arc<dyn Sender>> {
        let limits = self.limits_of(spec.id);
        let (api, media, clock) = (self.shared.api.clone(), self.media.clone(), self.clock.clone());
        Some(Arc::new(SlackSender::new(api, media, spec.token.as_ref(), limits, clock)))
    }

    async fn receive(&self, spec: Arc<ChannelSpec>, inbox: Arc<dyn Inbox>, stop: CancellationToken) -> Closed {
        receive::receive(&self.shared, &spec, &*inbox, &stop).await.unwrap_or_else(|closed| closed)
    }
}
