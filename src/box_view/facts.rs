//! What is known of shards and primary beside the shards' own reports.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;
use shard::http::Usage;

/// A slot, as whoever supervises it sees it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct SlotFacts {
    /// Its fixed place.
    pub(crate) index: u32,
    /// The process, if there is one.
    pub(crate) pid: Option<i32>,
    /// Which life of the slot.
    pub(crate) incarnation: u64,
    /// It lives, and was heard from within the last second.
    pub(crate) up: bool,
    /// What it is at, in one word.
    pub(crate) phase: String,
    /// Why it is not up, for people.
    pub(crate) reason: Option<String>,
    /// How often it was started again, by a closed list of reasons.
    pub(crate) restarts: BTreeMap<String, u64>,
}

/// The process that answers for the box.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PrimaryFacts {
    /// How many shards the fleet has.
    pub(crate) shard_count: u32,
    /// Which layout: it grows with every change of the count.
    pub(crate) epoch: u64,
    /// The effective layout, as it is logged at start.
    pub(crate) layout: Value,
    /// It is shutting down.
    pub(crate) closing: bool,
    /// The primary itself; `None` where the process is its own only shard.
    pub(crate) process: Option<PrimaryProcess>,
}

/// The primary, as a process.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PrimaryProcess {
    /// Its id.
    pub(crate) pid: u32,
    /// Time since it started.
    pub(crate) uptime: Duration,
    /// What it takes of the machine.
    pub(crate) usage: Option<Usage>,
}
