//! A channel's identity: a UUID, parsed to 128 bits before anything else is done with it.
//!
//! Two spellings are accepted: 36 characters with dashes, 32 without, any letter case. Everything else is refused, since
//! the three languages that share the shard rule disagree on braces, `urn:`, blanks and signs.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// A tenant's connection identity. Displays in the canonical lower-case form with dashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(Uuid);

/// A text that is no channel id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a channel id: expected a UUID of 32 hexadecimal digits, plain or dashed 8-4-4-4-12")]
pub struct ChannelIdError {
    /// The refused text, cut to 64 characters.
    pub value: String,
}

impl ChannelId {
    /// Wraps a UUID that is already parsed.
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The UUID.
    pub fn uuid(&self) -> Uuid {
        self.0
    }

    /// The first 32 bits, big-endian: what sharding is computed from.
    pub fn prefix(&self) -> u32 {
        self.0.as_fields().0
    }
}

impl FromStr for ChannelId {
    type Err = ChannelIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ChannelIdError { value: text.chars().take(64).collect() };
        let bytes = text.as_bytes();
        let dashes = [8, 13, 18, 23];
        let spelled = match bytes.len() {
            32 => bytes.iter().all(u8::is_ascii_hexdigit),
            36 => bytes
                .iter()
                .enumerate()
                .all(|(at, byte)| if dashes.contains(&at) { *byte == b'-' } else { byte.is_ascii_hexdigit() }),
            _ => false,
        };
        if !spelled {
            return Err(refused());
        }
        Uuid::try_parse(text).map(Self).map_err(|_| refused())
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ChannelId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ChannelId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for ChannelId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ChannelId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A UUID, plain or dashed, any letter case",
            "pattern": "^([0-9A-Fa-f]{32}|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$"
        })
    }
}
