//! From which message on a chat's older history can be asked for.

use serde::{Deserialize, Serialize};
use whatsapp_rust::wacore::store::error::{Result, StoreError};

use super::{device::DeviceSession, rows::Kind};

/// The oldest message of a chat that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// Its id.
    pub message_id: String,
    /// Whether it is our own.
    pub from_me: bool,
    /// When it was written, in milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
}

impl DeviceSession {
    /// Keeps the first message that is known of a chat.
    pub async fn keep_anchor(&self, chat: &str, anchor: &Anchor) -> Result<()> {
        if self.get(Kind::Anchor, b"", chat.as_bytes()).await?.is_some() {
            return Ok(());
        }
        self.put_anchor(chat, anchor).await
    }

    /// Moves a chat's anchor back, never forth.
    pub async fn move_anchor(&self, chat: &str, anchor: &Anchor) -> Result<()> {
        match self.anchor(chat).await? {
            Some(there) if there.timestamp_ms <= anchor.timestamp_ms => Ok(()),
            _ => self.put_anchor(chat, anchor).await,
        }
    }

    /// The anchor of a chat.
    pub async fn anchor(&self, chat: &str) -> Result<Option<Anchor>> {
        self.get(Kind::Anchor, b"", chat.as_bytes()).await?.map(|bytes| parse(&bytes)).transpose()
    }

    /// All chats that have one.
    pub async fn anchors(&self) -> Result<Vec<(String, Anchor)>> {
        let rows = self.list(Kind::Anchor, None).await?;
        let parsed = rows.into_iter().map(|(row, _)| {
            let chat = String::from_utf8(row.name);
            let chat = chat.map_err(|_| StoreError::Validation("a stored name is not UTF-8".to_owned()))?;
            Ok((chat, parse(&row.value)?))
        });
        parsed.collect()
    }

    async fn put_anchor(&self, chat: &str, anchor: &Anchor) -> Result<()> {
        let value = serde_json::to_vec(anchor).map_err(|error| StoreError::Serialization(Box::new(error)))?;
        self.put(Kind::Anchor, b"", chat.as_bytes(), &value).await
    }
}

fn parse(bytes: &[u8]) -> Result<Anchor> {
    serde_json::from_slice(bytes).map_err(|_| StoreError::Validation("a stored anchor does not parse".to_owned()))
}
