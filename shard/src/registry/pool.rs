//! The port of the bot-worker pool: which workers live, which bot runs where, what the deployment side wants.
//!
//! It proposes and informs; that a bot runs once is the lease's doing. Redis alone speaks it: one box has no pool, its
//! slots are known to its primary.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::RegistryError;
use crate::identity::ChannelId;

/// Where a worker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It claims what is its own.
    Starting,
    /// It works.
    Ready,
    /// It gives away what it has.
    Draining,
}

impl WorkerState {
    /// The word for it in the registry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

impl FromStr for WorkerState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Starting, Self::Ready, Self::Draining].into_iter().find(|state| state.as_str() == text).ok_or(())
    }
}

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerInfo {
    /// The machine it runs on.
    pub host: String,
    /// Where it is in its life.
    pub state: WorkerState,
    /// How many bots it takes.
    pub capacity: u32,
    /// How many it runs.
    pub active_bots: u32,
    /// The same by their type.
    pub bots_by_type: BTreeMap<String, u32>,
}

/// A worker of the pool, as the registry knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub worker: String,
    /// Which life of it.
    pub incarnation: u64,
    /// What it said last.
    pub info: WorkerInfo,
    /// How long ago that was.
    pub silent: Duration,
    /// It was heard of lately.
    pub alive: bool,
}

/// Who is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// All that are known, the dead of the last day among them, by id.
    pub all: Vec<Member>,
    /// For so long members that are there may not have said so yet, since the registry lost what it knew: who was there
    /// before is to be taken for alive.
    pub settling: Duration,
}

impl Members {
    /// Those heard of lately.
    pub fn alive(&self) -> impl Iterator<Item = &Member> {
        self.all.iter().filter(|member| member.alive)
    }
}

/// Where a bot runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The worker.
    pub worker_id: String,
    /// The bot's platform.
    pub bot_type: String,
}

/// What happened to a bot on the deployment side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BotChange {
    /// It shall run.
    Activate,
    /// It shall not.
    Deactivate,
    /// It shall be started anew.
    Restart,
}

impl BotChange {
    /// The word for it in the registry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Activate => "activate",
            Self::Deactivate => "deactivate",
            Self::Restart => "restart",
        }
    }
}

impl FromStr for BotChange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Activate, Self::Deactivate, Self::Restart].into_iter().find(|change| change.as_str() == text).ok_or(())
    }
}

/// A change, told to all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotEvent {
    /// What happened.
    pub change: BotChange,
    /// To which bot.
    pub bot: ChannelId,
    /// Its platform.
    pub bot_type: String,
}

/// A place in the events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub String);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What came after a place in the events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotEvents {
    /// Events that could be read, the oldest first.
    pub events: Vec<BotEvent>,
    /// Where to go on.
    pub cursor: Cursor,
    /// Events before these may be missing: all that is wanted must be looked at.
    pub gap: bool,
}

/// What a worker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A bot of its own shall stop.
    Stop(ChannelId),
    /// A bot of its own shall be started anew.
    Restart(ChannelId),
    /// A worker came, went, or changed its state.
    Members,
}

/// The pool of workers.
#[async_trait]
pub trait Pool: Send + Sync + 'static {
    /// Says that this worker lives, from before its first claim until after its last release; gives who else does. Refused
    /// while another process with this id lives, except for an earlier life when `supersede` says that it is proven dead.
    async fn heartbeat(&self, info: &WorkerInfo, supersede: bool) -> Result<Members, RegistryError>;

    /// This worker has released everything and is gone.
    async fn leave(&self) -> Result<(), RegistryError>;

    /// Who is there, without being one of them.
    async fn members(&self) -> Result<Members, RegistryError>;

    /// Bots run here now.
    async fn assign(&self, bots: &[(ChannelId, String)]) -> Result<(), RegistryError>;

    /// Bots no longer run here. Those that run elsewhere by now stay as they are.
    async fn unassign(&self, bots: &[ChannelId]) -> Result<(), RegistryError>;

    /// Where a bot runs.
    async fn assignment(&self, bot: ChannelId) -> Result<Option<Assignment>, RegistryError>;

    /// Where all bots run.
    async fn assignments(&self) -> Result<Vec<(ChannelId, Assignment)>, RegistryError>;

    /// Tells all workers of a change.
    async fn announce(&self, event: &BotEvent) -> Result<(), RegistryError>;

    /// The place up to which this worker has acted on events, if it ever stored one.
    async fn cursor(&self) -> Result<Option<Cursor>, RegistryError>;

    /// This worker has acted on all events up to here.
    async fn keep_cursor(&self, cursor: &Cursor) -> Result<(), RegistryError>;

    /// What came after a place; waits for about a second where nothing has. Without a place: the end, and a gap.
    async fn events(&self, after: Option<&Cursor>) -> Result<BotEvents, RegistryError>;

    /// Tells one worker something; whether it heard. One that didn't may be told by an event.
    async fn tell(&self, worker: &str, notice: Notice) -> Result<bool, RegistryError>;

    /// What this worker is told next. What is told while nobody listens is lost: the directory says what is wanted. To be
    /// asked by one task alone.
    async fn next_notice(&self) -> Result<Notice, RegistryError>;
}
