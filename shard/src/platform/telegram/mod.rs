//! Telegram, by long polling of the Bot API.
//!
//! Types and payloads are teloxide-core's; the requests are our own, over one HTTP client that all bots share.
//! teloxide's own requests would hold a failed call for ten seconds before they tell, say nothing of the HTTP status, which
//! is what decides whether a send may have happened, and lose the raw form of an update they can't read.

mod api;
mod files;
mod limits;
mod message;
mod outcome;
mod poll;
mod send;
#[cfg(test)]
mod tests;
mod update;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use url::Url;

pub use limits::TelegramLimits;

use self::{api::Api, limits::Limits, send::TelegramSender};
use super::{Closed, Inbox, Platform, PlatformKind, Sender};
use crate::{clock::Clock, directory::ChannelSpec, identity::ChannelId, job::Job, media::Media};

/// How Telegram is reached.
#[derive(Debug, Clone)]
pub struct TelegramConfig {
    /// The Bot API server: `https://api.telegram.org`, or one of your own.
    pub api_url: Url,
    /// How long a poll waits for something to happen (the platform holds one for 50 s at most).
    pub poll_timeout: Duration,
    /// How fast bots may send.
    pub limits: TelegramLimits,
}

impl TelegramConfig {
    /// The defaults for a Bot API server.
    pub fn new(api_url: Url) -> Self {
        Self { api_url, poll_timeout: Duration::from_secs(50), limits: TelegramLimits::default() }
    }
}

/// The Bot API could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelegramError {
    /// The address is of no use.
    #[error("the Bot API's address has scheme {scheme:?}: expected http or https")]
    Address {
        /// Its scheme.
        scheme: String,
    },
    /// No HTTP client could be made.
    #[error("no HTTP client for the Bot API")]
    Client(#[source] reqwest::Error),
}

/// The network. One serves all bots of a shard.
pub struct Telegram {
    api: Arc<Api>,
    config: TelegramConfig,
    media: Arc<Media>,
    clock: Arc<dyn Clock>,
    /// The limits of each bot that somebody can send with: two senders of one bot share them.
    limits: Mutex<HashMap<ChannelId, Weak<Limits>>>,
}

impl Telegram {
    /// Nothing is connected yet.
    pub fn new(config: TelegramConfig, media: Arc<Media>, clock: Arc<dyn Clock>) -> Result<Self, TelegramError> {
        let api = Arc::new(Api::new(&config.api_url)?);
        Ok(Self { api, config, media, clock, limits: Mutex::default() })
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
impl Platform for Telegram {
    fn kind(&self) -> PlatformKind {
        PlatformKind::Telegram
    }

    /// The platform gives the ids.
    fn provider_id(&self, _: &Job) -> Option<String> {
        None
    }

    fn sender(&self, spec: &Arc<ChannelSpec>) -> Option<Arc<dyn Sender>> {
        let (api, limits) = (self.api.clone(), self.limits_of(spec.id));
        Some(Arc::new(TelegramSender::new(api, self.media.clone(), spec.token.clone(), limits, self.clock.clone())))
    }

    async fn receive(&self, spec: Arc<ChannelSpec>, inbox: Arc<dyn Inbox>, stop: CancellationToken) -> Closed {
        match poll::poll(&self.api, self.config.poll_timeout, &spec, &*inbox, &stop).await {
            Ok(()) => Closed::Asked,
            Err(closed) => closed,
        }
    }
}
