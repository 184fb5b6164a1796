//! Queue names: the base alone with one shard, `<base>-<index>` with more.

use std::{fmt, str::FromStr};

/// The three queue bases. No other queue of a broker is ever touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueueBase {
    /// `whatsapp`: sends and control, of every platform.
    Main,
    /// `whatsapp_media`: downloads of inbound media.
    Media,
    /// `whatsapp_avatars`: profile pictures.
    Avatars,
}

impl QueueBase {
    /// All three, the main one first.
    pub const ALL: [Self; 3] = [Self::Main, Self::Media, Self::Avatars];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Main => "whatsapp",
            Self::Media => "whatsapp_media",
            Self::Avatars => "whatsapp_avatars",
        }
    }
}

/// A work queue: a base and, when the fleet has more than one shard, an index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName {
    /// Which kind of work.
    pub base: QueueBase,
    /// `None` is the bare queue.
    pub index: Option<u32>,
}

/// A text that names no queue of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no queue of shardvisor: expected whatsapp, whatsapp_media or whatsapp_avatars, or one of them with -<index>"
)]
pub struct QueueNameError(pub String);

impl QueueName {
    /// The queue of a base for one shard of `count`.
    pub fn of(base: QueueBase, index: u32, count: u32) -> Self {
        Self { base, index: (count > 1).then_some(index) }
    }

    /// The bare queue of a base.
    pub fn bare(base: QueueBase) -> Self {
        Self { base, index: None }
    }

    /// Where jobs wait for a later time.
    pub fn parked(&self) -> String {
        format!("{self}.parked")
    }

    /// Where jobs wait that came from another layout's queues; read before the queue itself.
    pub fn straggler(&self) -> String {
        format!("{self}.straggler")
    }

    /// Where jobs end that can't be done.
    pub fn dead(&self) -> String {
        format!("{self}.dead")
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            None => f.write_str(self.base.as_str()),
            Some(index) => write!(f, "{}-{index}", self.base.as_str()),
        }
    }
}

impl fmt::Debug for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for QueueName {
    type Err = QueueNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || QueueNameError(text.to_owned());
        for base in QueueBase::ALL {
            if text == base.as_str() {
                return Ok(Self::bare(base));
            }
            if let Some(index) = text.strip_prefix(base.as_str()).and_then(|rest| rest.strip_prefix('-')) {
                let index: u32 = index.parse().map_err(|_| refused())?;
                let name = Self { base, index: Some(index) };
                return if name.to_string() == text { Ok(name) } else { Err(refused()) };
            }
        }
        Err(refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract: I2.
    #[test]
    fn names_are_read_back_and_foreign_ones_refused() {
        for base in QueueBase::ALL {
            for (index, count) in [(0, 1), (0, 2), (15, 16)] {
                let name = QueueName::of(base, index, count);
                assert_eq!(name.to_string().parse(), Ok(name));
            }
        }
        for foreign in ["whatsapp-01", "whatsapp-", "whatsapp-+1", "whatsapp_other", "scheduled", "whatsapp.dead", ""] {
            assert!(foreign.parse::<QueueName>().is_err(), "{foreign}");
        }
    }
}
