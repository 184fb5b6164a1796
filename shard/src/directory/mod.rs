//! The port that knows which channels are wanted, and with which settings.
//!
//! The built-in store is one; the others lie elsewhere (the platform's HTTP API, a PostgreSQL database), are only read, and share
//! what makes that safe: [`RemoteDirectory`].

pub mod api;
mod caution;
mod entry;
mod kept;
#[cfg(feature = "postgres")]
pub mod postgres;
mod remote;
pub mod store;

use std::sync::Arc;

use async_trait::async_trait;

pub use caution::MassRemoval;
pub use entry::{BadEntry, Entry};
pub use kept::Kept;
pub use remote::{Answer, RemoteDirectory, RemoteOptions, Source, look};

use crate::{identity::ChannelId, platform::PlatformKind, secret::Secret};

/// A channel as the directory wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Its identity.
    pub id: ChannelId,
    /// Which network.
    pub platform: PlatformKind,
    /// What the platform wants to be shown; absent for WhatsApp, whose session holds it.
    pub token: Option<Secret>,
    /// Who answers.
    pub handler: Handler,
    /// Whether it shall run.
    pub enabled: bool,
    /// A name for people.
    pub label: Option<String>,
}

/// Who answers a channel's messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Handler {
    /// Nobody: events go to the sinks alone.
    #[default]
    None,
    /// Every text comes back as it was.
    Echo,
    /// The agent behind this URL.
    Agent {
        /// `http:` or `https:`.
        url: String,
        /// The key by which requests are signed.
        secret: Option<Secret>,
    },
}

/// What went wrong. Nothing that runs is ever stopped for it.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It can't be reached just now.
    #[error("directory unavailable: {0}")]
    Unavailable(String),
    /// It answered something that can't be right.
    #[error("directory answered nonsense: {0}")]
    Nonsense(String),
    /// It can't do this (a read-only directory).
    #[error("directory refused: {0}")]
    Refused(String),
    /// It gave no usable answer; this is what it said before. Channels may be started by it, but that a channel isn't in it
    /// proves nothing.
    #[error("{why}; what it said before holds")]
    Stale {
        /// What went wrong.
        why: String,
        /// The last good answer.
        last: Vec<Arc<ChannelSpec>>,
    },
}

/// Which channels are wanted.
#[async_trait]
pub trait Directory: Send + Sync + 'static {
    /// All channels, disabled ones included; the caller keeps its own share.
    async fn channels(&self) -> Result<Vec<Arc<ChannelSpec>>, DirectoryError>;

    /// Sets whether a channel shall run (`connect` and `disconnect` jobs). `false` when there is no such channel.
    async fn set_enabled(&self, channel: ChannelId, enabled: bool) -> Result<bool, DirectoryError>;

    /// Returns when something may have changed since the last call, or never, should the directory not tell. Cancel-safe.
    async fn changed(&self);
}
