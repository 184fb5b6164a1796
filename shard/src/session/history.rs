//! Histories that came and are not told whole yet: the phone is told at once that it need not send them again.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use whatsapp_rust::{types::events::LazyHistorySync, wacore::store::error::Result};

use super::{device::DeviceSession, rows::Kind};

/// By what a kept history is found: the same whenever the phone sends it.
pub type HistoryName = [u8; 32];

/// What the library tells beside the bytes.
#[derive(Serialize, Deserialize)]
struct Head {
    size: usize,
    sync_type: i32,
    chunk_order: Option<u32>,
    progress: Option<u32>,
    request: Option<String>,
}

/// The name of a history.
pub fn history_name(history: &LazyHistorySync) -> HistoryName {
    Sha256::digest(history.compressed_bytes()).into()
}

impl DeviceSession {
    /// Keeps a history until it is told whole.
    pub async fn keep_history(&self, name: &HistoryName, history: &LazyHistorySync) -> Result<()> {
        let head = Head {
            size: history.decompressed_size(),
            sync_type: history.sync_type(),
            chunk_order: history.chunk_order(),
            progress: history.progress(),
            request: history.peer_data_request_session_id().map(str::to_owned),
        };
        // JSON holds no line break: what is behind the first one are the bytes as they came.
        let mut value = serde_json::to_vec(&head).unwrap_or_default();
        value.push(b'\n');
        value.extend_from_slice(history.compressed_bytes());
        self.put(Kind::History, b"", name, &value).await
    }

    /// Those that were not told whole, by their names. One that does not parse is left out.
    pub async fn kept_histories(&self) -> Result<Vec<(HistoryName, LazyHistorySync)>> {
        let rows = self.list(Kind::History, None).await?;
        let read = rows.into_iter().filter_map(|(row, _)| {
            let name = row.name.as_slice().try_into().ok()?;
            let end = row.value.iter().position(|byte| *byte == b'\n')?;
            let head: Head = serde_json::from_slice(&row.value[..end]).ok()?;
            let bytes = Bytes::from(row.value).slice(end + 1..);
            let history = LazyHistorySync::new(bytes, head.size, head.sync_type, head.chunk_order, head.progress);
            Some((name, history.with_peer_data_request_session_id(head.request)))
        });
        Ok(read.collect())
    }

    /// It was told.
    pub async fn forget_history(&self, name: &HistoryName) -> Result<()> {
        self.delete(Kind::History, b"", name).await
    }
}
