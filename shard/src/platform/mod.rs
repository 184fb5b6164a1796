//! The port to a chat network.
//!
//! Receiving is a connection that one owner at a time holds; sending is what a connection can do, or, where the network
//! needs nothing but the token for it (Telegram, Slack), what a [`Sender`] does without one.

#[cfg(any(feature = "slack", feature = "telegram"))]
mod rate;
#[cfg(feature = "slack")]
pub mod slack;
#[cfg(feature = "telegram")]
pub mod telegram;
#[cfg(feature = "whatsapp")]
pub mod whatsapp;

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{directory::ChannelSpec, event::Event, job::Job, registry::Fence};

/// Which network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlatformKind {
    /// WhatsApp, device link.
    Whatsapp,
    /// Slack, Socket Mode.
    Slack,
    /// Telegram, long polling.
    Telegram,
}

impl PlatformKind {
    /// Its name in configuration, events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whatsapp => "whatsapp",
            Self::Slack => "slack",
            Self::Telegram => "telegram",
        }
    }
}

impl fmt::Display for PlatformKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PlatformKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Whatsapp, Self::Slack, Self::Telegram]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no platform: expected telegram, slack or whatsapp"))
    }
}

/// Where a connection puts what it received. Durable when it returns: only then may the platform be told.
#[async_trait]
pub trait Inbox: Send + Sync + 'static {
    /// Stores events, and with them how far the platform has been read. An error means that nothing is stored and the
    /// connection must close without confirming anything: [`Closed::Fenced`] when the channel is no longer ours.
    async fn store(&self, events: Vec<Event>, offset: Option<i64>) -> Result<(), Closed>;

    /// How far the platform had been read.
    async fn offset(&self) -> Result<Option<i64>, Closed>;

    /// Whether the channel can be proven to be ours at this moment; to be asked before each read that the platform takes
    /// for a confirmation, since the process may have been stopped in between.
    fn held(&self) -> Result<(), Closed>;

    /// Under what right the channel is run, for what a platform stores beside events.
    fn fence(&self) -> Fence;

    /// A person has to do something (scan a code) before the connection can be up. It goes on, and no longer counts as a
    /// login in flight.
    fn waits_for_person(&self);

    /// The connection is up, and proven so by an answer of the platform.
    fn connected(&self);

    /// Something was heard from the platform (an empty poll counts): what liveness is judged by.
    fn heard(&self);
}

/// Why a connection ended, as the channel's life cycle needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// We were asked to.
    Asked,
    /// It may work again soon: back off and reconnect.
    Transient {
        /// For people, without secrets.
        reason: String,
        /// The platform's own word on when.
        after: Option<Duration>,
    },
    /// The login was answered and refused, for no reason that would tell what to do (500, a panic of ours): back off,
    /// and after many in a row stop trying so often.
    Rejected {
        /// For people.
        reason: String,
    },
    /// Somebody else uses the same identity (409, 440).
    Replaced {
        /// For people.
        reason: String,
    },
    /// The credentials are no longer valid; only a person can help.
    LoggedOut {
        /// For people.
        reason: String,
    },
    /// Banned, perhaps until a known time.
    Banned {
        /// For people.
        reason: String,
        /// For how long.
        until: Option<Duration>,
    },
    /// A device must be linked first.
    NeedsPairing {
        /// For people.
        reason: String,
    },
    /// Something is set up so that it can't work (a webhook is set, Socket Mode is off): probe slowly.
    Misconfigured {
        /// For people: what, and what would be right.
        reason: String,
    },
    /// The channel is no longer ours: touch nothing.
    Fenced,
}

/// What a job's work came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Done {
    /// The provider's id of what was sent.
    pub provider_id: Option<String>,
    /// What else the producer may want to know.
    pub result: Option<Value>,
}

/// Why a job's work did not come to anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// It did not reach the platform, or the platform certainly did not do it: try again.
    #[error("{error}")]
    Retry {
        /// For people, without secrets.
        error: String,
        /// The platform's own word on when (429).
        after: Option<Duration>,
    },
    /// The platform may have done it, and it can't be told.
    #[error("{error}")]
    Ambiguous {
        /// For people, without secrets.
        error: String,
    },
    /// It can't be done, now or later.
    #[error("{error}")]
    Permanent {
        /// A word of the closed list: `bad_recipient`, `logged_out`, `rejected`, `unsupported`, `too_large`.
        reason: &'static str,
        /// For people, without secrets.
        error: String,
    },
    /// The channel isn't connected; it is waited for.
    #[error("the channel is not connected")]
    NotConnected,
}

impl Failed {
    /// Of what can be done again without a trace: that it may have been done is no reason not to.
    pub(crate) fn repeatable(self) -> Self {
        match self {
            Self::Ambiguous { error } => Self::Retry { error, after: None },
            other => other,
        }
    }
}

/// Does jobs for a channel.
#[async_trait]
pub trait Sender: Send + Sync + 'static {
    /// Does the work. `provider_id` is the id to send under where the platform lets the client choose it.
    async fn perform(&self, job: &Job, provider_id: Option<&str>) -> Result<Done, Failed>;
}

/// A chat network.
#[async_trait]
pub trait Platform: Send + Sync + 'static {
    /// Which one.
    fn kind(&self) -> PlatformKind;

    /// The id that a job's message will carry, where the platform lets the client choose it.
    fn provider_id(&self, job: &Job) -> Option<String>;

    /// Whether this is a channel whose connection is to be held; else why it is left alone (its events go elsewhere).
    fn holds(&self, _: &ChannelSpec) -> Result<(), &'static str> {
        Ok(())
    }

    /// What sends with the token alone; `None` where sending needs the connection.
    fn sender(&self, spec: &Arc<ChannelSpec>) -> Option<Arc<dyn Sender>>;

    /// Gives up the channel's login, where the network has one: nobody can connect with it afterwards.
    async fn log_out(&self, _: &Arc<ChannelSpec>) -> Result<(), Failed> {
        Ok(())
    }

    /// Holds the channel's connection until it ends or `stop` is cancelled, and says why it ended.
    /// One life: reconnecting is the channel's business.
    async fn receive(
        &self,
        spec: Arc<ChannelSpec>,
        inbox: Arc<dyn Inbox>,
        stop: tokio_util::sync::CancellationToken,
    ) -> Closed;
}
