//! What an outbox that lies elsewhere has to have written down where it can be read back in one step: places, ids, how far a
//! platform was read, and what can't be written into a message where it lies.

use async_trait::async_trait;
use uuid::Uuid;

use super::super::Fence;
use crate::identity::ChannelId;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// Try again.
    #[error("{0}")]
    Unavailable(String),
    /// Somebody newer owns what is named; nothing was written.
    #[error("{resource} is held by a newer owner")]
    Fenced {
        /// A channel, or what else there is to own.
        resource: String,
    },
    /// It can't work until somebody changes something.
    #[error("{0}")]
    Refused(String),
}

/// The book. Every method is durable when it returns `Ok`.
#[async_trait]
pub trait EventBook: Send + Sync + 'static {
    /// The place of each event in its channel's gapless sequence, or none for one that is stored already. Asked again before
    /// [`EventBook::events_stored`], it gives the same places.
    async fn place_events(&self, fence: &Fence, ids: &[Uuid]) -> Result<Vec<Option<u64>>, BookError>;

    /// They are stored, and the channel's platform has been read up to `offset`.
    async fn events_stored(&self, fence: &Fence, ids: &[Uuid], offset: Option<i64>) -> Result<(), BookError>;

    /// How far a channel's platform has been read.
    async fn read_to(&self, channel: ChannelId) -> Result<Option<i64>, BookError>;

    /// What became of events that can't be changed where they lie; `None` when there is nothing more to say.
    async fn mark_events(&self, marks: &[(Uuid, Option<String>)]) -> Result<(), BookError>;

    /// What was said of them within the last two days.
    async fn event_marks(&self, ids: &[Uuid]) -> Result<Vec<Option<String>>, BookError>;

    /// Something about an outbox under a key; `None` takes it away.
    async fn note(&self, outbox: &str, key: &str, note: Option<&str>) -> Result<(), BookError>;

    /// All that is noted of an outbox.
    async fn notes(&self, outbox: &str) -> Result<Vec<(String, String)>, BookError>;
}
