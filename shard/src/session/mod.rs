//! The port that keeps what a linked device must not lose: its keys, and where each ratchet stands.
//!
//! A lost step is a peer whose messages can never be read again, so that every change is on the disk before anything is
//! acknowledged, and everything at rest is sealed. The rows lie in the slot's own file, keyed by channel: a thousand
//! devices share one connection, one writer thread and one fsync (a database a device would cost four descriptors and
//! half a megabyte each), a ratchet step is committed together with the event it brought, and a change of the layout
//! moves them with everything else of the channel. Each channel's rows are sealed with a key of its own, and that one
//! with the key file's: to rotate, one short value a channel is sealed anew.
//!
//! A snapshot goes to a bucket after changes, at most once in a bounded time, and when a connection ends in good order.
//! Its name begins with the owner's fencing token, so that what a stale owner still writes is never the newest.

mod anchor;
mod backend;
mod baileys;
mod bucket;
mod cipher;
mod device;
mod history;
mod keeper;
mod rows;
mod snapshot;
#[cfg(test)]
mod tests;
mod transfer;

use std::sync::Arc;

use async_trait::async_trait;

pub use anchor::Anchor;
pub use baileys::{BaileysError, ForeignSession, read_baileys};
pub use bucket::{Bucket, BucketError, S3Options};
pub use device::DeviceSession;
pub use history::{HistoryName, history_name};
pub use keeper::{SessionKeeper, SnapshotPolicy};
pub use snapshot::{Snapshot, SnapshotError};
pub use transfer::{Import, TransferError, delete_session, export_session, import_session};

use crate::{identity::ChannelId, keyring::KeyringError, registry::Fence, store::StoreError};

/// Under what right a session is written: the fencing token, and whether its lease can be proven at this moment.
#[derive(Clone)]
pub struct Right {
    /// Compared with the last one that wrote.
    pub fence: Fence,
    /// Asked before each write: the process may have been stopped since the last.
    pub held: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// A session that was opened.
pub struct Opened {
    /// It.
    pub session: Arc<DeviceSession>,
    /// Set when there was none on this box, or an older one, and the bucket's was taken.
    pub restored: Option<Restored>,
}

/// A session came back from the bucket: what happened after the snapshot is lost, and peers have to be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// When the snapshot was taken, in milliseconds since the Unix epoch.
    pub taken_ms: i64,
    /// The change it holds.
    pub seq: u64,
}

/// What went wrong. A session that can't be opened for certain is not used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionError {
    /// A newer owner has written, or the lease can no longer be proven.
    #[error("fenced: the session of channel {0} is somebody else's")]
    Fenced(ChannelId),
    /// It may work again soon.
    #[error("{0}")]
    Unavailable(String),
    /// It can't work until a person changes something.
    #[error("{0}")]
    Refused(String),
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::ChannelFenced(channel) => Self::Fenced(channel),
            StoreError::Unavailable { .. } | StoreError::Closed { .. } => Self::Unavailable(error.to_string()),
            StoreError::Fenced { .. }
            | StoreError::Refused { .. }
            | StoreError::Newer { .. }
            | StoreError::Missing { .. } => Self::Refused(error.to_string()),
        }
    }
}

impl From<KeyringError> for SessionError {
    fn from(error: KeyringError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// The sessions of a shard's channels.
#[async_trait]
pub trait Sessions: Send + Sync + 'static {
    /// Opens a channel's session, empty when there is none anywhere. What is damaged or older than what is known
    /// elsewhere is refused with a reason.
    async fn open(&self, right: Right) -> Result<Opened, SessionError>;

    /// A connection has ended in good order: what changed goes to the bucket now.
    async fn settle(&self, session: &DeviceSession);

    /// Removes a session, on the box and in the bucket.
    async fn delete(&self, right: &Right) -> Result<(), SessionError>;
}
