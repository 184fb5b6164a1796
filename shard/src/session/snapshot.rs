//! A whole session as one file: encrypted, versioned, checksummed.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `SHVSESS` and the version |
//! | 4, then so many | the header's length, and the header: JSON, readable without a key |
//! | the rest but 32 | the rows, sealed with the session's key under the header |
//! | 32 | SHA-256 of all before, so that a torn file is told from a wrong key |

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    cipher::{Blind, DataKey, Place},
    rows::{Head, Sealed},
};
use crate::{identity::ChannelId, keyring::Keyring};

const MAGIC: &[u8; 7] = b"SHVSESS";
const VERSION: u8 = 1;
const SUM: usize = 32;
/// No header is longer.
const LONGEST_HEADER: usize = 4096;

/// A file that is no usable snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It is something else.
    #[error("this is no session snapshot")]
    NoSnapshot,
    /// A newer version wrote it.
    #[error("snapshot version {0} is not known here (the newest known is {VERSION})")]
    Version(u8),
    /// It is cut off or changed.
    #[error("the snapshot is damaged: {0}")]
    Damaged(&'static str),
    /// The key file can't open it.
    #[error("{0}")]
    Key(String),
}

/// What is known of a snapshot without a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    channel: ChannelId,
    token: u64,
    seq: u64,
    taken_ms: i64,
    rows: u64,
    key_id: String,
    #[serde(with = "base64_bytes")]
    sealed_key: Vec<u8>,
}

mod base64_bytes {
    //! Bytes as text in the header.

    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(|_| D::Error::custom("is not base64"))
    }
}

/// A session as it was at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Whose.
    pub channel: ChannelId,
    /// The token of whoever changed it last.
    pub token: u64,
    /// How many changes there had been.
    pub seq: u64,
    /// When it was taken, in milliseconds since the Unix epoch.
    pub taken_ms: i64,
    pub(super) head: Head,
    pub(super) rows: Vec<Sealed>,
}

impl Snapshot {
    pub(super) fn new(channel: ChannelId, head: Head, rows: Vec<Sealed>, taken_ms: i64) -> Self {
        Self { channel, token: head.token, seq: head.seq, taken_ms, head, rows }
    }

    /// The file. Fails when the session's key does not open its head.
    pub fn encode(&self, keyring: &Keyring) -> Result<Vec<u8>, SnapshotError> {
        let header = Header {
            channel: self.channel,
            token: self.token,
            seq: self.seq,
            taken_ms: self.taken_ms,
            rows: self.rows.len() as u64,
            key_id: self.head.key_id.clone(),
            sealed_key: self.head.sealed_key.clone(),
        };
        let key = self.key(keyring)?;
        let header = serde_json::to_vec(&header).map_err(|_| SnapshotError::Damaged("its header"))?;
        let length = u32::try_from(header.len()).map_err(|_| SnapshotError::Damaged("its header"))?;
        let mut content = Vec::new();
        for row in &self.rows {
            content.push(row.place.kind);
            content.extend_from_slice(&row.place.scope);
            content.extend_from_slice(&row.place.name);
            content.extend_from_slice(&row.at.to_le_bytes());
            let length = u32::try_from(row.value.len()).map_err(|_| SnapshotError::Damaged("a row is too long"))?;
            content.extend_from_slice(&length.to_le_bytes());
            content.extend_from_slice(&row.value);
        }
        let sealed = key.seal_snapshot(&header, &content).map_err(|_| SnapshotError::Damaged("it can't be sealed"))?;
        let mut file = Vec::with_capacity(12 + header.len() + sealed.len() + SUM);
        file.extend_from_slice(MAGIC);
        file.push(VERSION);
        file.extend_from_slice(&length.to_le_bytes());
        file.extend_from_slice(&header);
        file.extend_from_slice(&sealed);
        let sum = Sha256::digest(&file);
        file.extend_from_slice(&sum);
        Ok(file)
    }

    /// Reads a file, checks its sum and opens it. Every row must open too.
    pub fn decode(file: &[u8], keyring: &Keyring) -> Result<Self, SnapshotError> {
        let start = file.get(..8).ok_or(SnapshotError::NoSnapshot)?;
        if &start[..7] != MAGIC {
            return Err(SnapshotError::NoSnapshot);
        }
        if start[7] != VERSION {
            return Err(SnapshotError::Version(start[7]));
        }
        let torn = SnapshotError::Damaged("it is cut off");
        let body_end = file.len().checked_sub(SUM).filter(|end| *end >= 12).ok_or(torn.clone())?;
        let (body, sum) = file.split_at(body_end);
        if Sha256::digest(body).as_slice() != sum {
            return Err(SnapshotError::Damaged("its checksum is wrong"));
        }
        let length = u32::from_le_bytes([body[8], body[9], body[10], body[11]]) as usize;
        let header_bytes = body.get(12..12 + length.min(LONGEST_HEADER)).ok_or(torn)?;
        let header: Header =
            serde_json::from_slice(header_bytes).map_err(|_| SnapshotError::Damaged("its header does not parse"))?;
        let head = Head { seq: header.seq, token: header.token, key_id: header.key_id, sealed_key: header.sealed_key };
        let mut snapshot = Self::new(header.channel, head, Vec::new(), header.taken_ms);
        let key = snapshot.key(keyring)?;
        let changed = |_| SnapshotError::Damaged("it does not open: it was changed");
        let content = key.open_snapshot(header_bytes, &body[12 + header_bytes.len()..]).map_err(changed)?;
        snapshot.rows = rows(&content).ok_or(SnapshotError::Damaged("its rows do not parse"))?;
        if snapshot.rows.len() as u64 != header.rows {
            return Err(SnapshotError::Damaged("rows are missing"));
        }
        for row in &snapshot.rows {
            key.open(&row.place, &row.value).map_err(|_| SnapshotError::Damaged("a row does not open"))?;
        }
        Ok(snapshot)
    }

    fn key(&self, keyring: &Keyring) -> Result<DataKey, SnapshotError> {
        DataKey::unwrap(self.channel, keyring, &self.head.key_id, &self.head.sealed_key)
            .map_err(|error| SnapshotError::Key(error.to_string()))
    }
}

fn rows(mut content: &[u8]) -> Option<Vec<Sealed>> {
    fn take<'a>(content: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = content.split_at_checked(length)?;
        *content = rest;
        Some(taken)
    }
    let mut rows = Vec::new();
    while !content.is_empty() {
        let kind = take(&mut content, 1)?[0];
        let scope: Blind = take(&mut content, 16)?.try_into().ok()?;
        let name: Blind = take(&mut content, 16)?.try_into().ok()?;
        let at = i64::from_le_bytes(take(&mut content, 8)?.try_into().ok()?);
        let length = u32::from_le_bytes(take(&mut content, 4)?.try_into().ok()?);
        let value = take(&mut content, length as usize)?.to_vec();
        rows.push(Sealed { place: Place { kind, scope, name }, at, value });
    }
    Some(rows)
}
