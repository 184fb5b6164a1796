//! A slot as the outside sees it.

use std::time::Duration;

use serde::Serialize;

use crate::exit_status::{Exit, ExitReason};

/// Where a slot is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "name")]
pub enum Phase {
    /// A child runs and has not said yet that it is ready.
    Starting {
        /// What it waits for, if it said so.
        waiting_for: Option<String>,
    },
    /// A child runs and serves.
    Ready,
    /// A child runs and says that it does not serve, or its loops do not get on.
    NotReady {
        /// Why.
        reason: String,
    },
    /// Nothing was heard of the child for too long, or it is being ended.
    Silent,
    /// The child was asked to finish.
    Draining,
    /// The child has died; the next is due.
    Backoff {
        /// When, since boot.
        until: Duration,
        /// Why the last died.
        reason: ExitReason,
    },
    /// The slot is past its intensity and is retried slowly.
    Slow {
        /// When, since boot.
        until: Duration,
        /// Why the last died.
        reason: ExitReason,
    },
    /// The child says that its configuration is wrong: nothing is tried until somebody asks for it.
    Config,
    /// No child, and none will be.
    Stopped,
}

impl Phase {
    /// The name alone.
    pub fn name(&self) -> &'static str {
        match self {
            Phase::Starting { .. } => "starting",
            Phase::Ready => "ready",
            Phase::NotReady { .. } => "not_ready",
            Phase::Silent => "silent",
            Phase::Draining => "draining",
            Phase::Backoff { .. } => "backoff",
            Phase::Slow { .. } => "slow",
            Phase::Config => "config",
            Phase::Stopped => "stopped",
        }
    }
}

/// How a slot's last life ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastExit {
    /// Which life.
    pub incarnation: u64,
    /// Why.
    pub reason: ExitReason,
    /// How.
    pub exit: Exit,
    /// When, since boot.
    pub at: Duration,
}

/// A slot as the outside sees it. Times are CLOCK_BOOTTIME.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotStatus {
    /// Which slot.
    pub index: u32,
    /// The child, if one runs.
    pub pid: Option<i32>,
    /// The life that runs, or the last one.
    pub incarnation: u64,
    /// Where it is.
    pub phase: Phase,
    /// Since when.
    pub since: Duration,
    /// How many lives it had after the first.
    pub restarts_total: u64,
    /// How the life before ended.
    pub last_exit: Option<LastExit>,
    /// A child runs, has been ready and is heard of, and nobody has asked it to leave.
    pub up: bool,
    /// Past its intensity, and not yet stable again.
    pub gave_up: bool,
}
