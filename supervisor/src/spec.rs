//! What a child is and how it is treated: the program, and every deadline of its life.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use crate::{
    backoff::Backoff,
    intensity::Intensity,
    succession::{self, LINK_ENV},
};

/// Environment variable that tells a child its slot.
pub const SHARD_INDEX_ENV: &str = "SHARD_INDEX";
/// Environment variable that tells a child which life of its slot it is.
pub const INCARNATION_ENV: &str = "SHARDVISOR_INCARNATION";
/// Environment variable that tells a child how many lives its slot has had under this primary, its own included.
pub const LIFE_ENV: &str = "SHARDVISOR_LIFE";
/// Environment variable that names the descriptor of the link to the primary.
pub const LINK_FD_ENV: &str = "SHARDVISOR_LINK_FD";
/// Environment variable that names the descriptor of the slot's lock.
pub const LOCK_FD_ENV: &str = "SHARDVISOR_LOCK_FD";

/// What the primary tells a child about itself, beside its slot.
pub const CHILD_ENV: [&str; 5] = [INCARNATION_ENV, LIFE_ENV, LINK_FD_ENV, LOCK_FD_ENV, LINK_ENV];

/// Which life of which slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    /// The slot.
    pub slot: u32,
    /// Greater than every earlier life's, over all primaries.
    pub incarnation: u64,
    /// The first, second, … life under this primary.
    pub life: u64,
}

/// The program of a child. Its slot, incarnation, link and lock are added when it is spawned.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// What to execute.
    pub program: PathBuf,
    /// When that is not there, what this process was started from.
    pub or_itself: bool,
    /// What it is called in a process list; the program's own path when absent.
    pub arg0: Option<OsString>,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Set in its environment, beside what it inherits.
    pub env: Vec<(OsString, OsString)>,
    /// Taken out of its environment.
    pub env_remove: Vec<OsString>,
}

impl ChildSpec {
    /// This same program again, with other arguments: by its path, where an upgrade puts the next version.
    pub fn itself(args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { or_itself: true, ..Self::program(succession::by_path(), args) }
    }

    /// A given program.
    pub fn program(program: impl Into<PathBuf>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            program: program.into(),
            or_itself: false,
            arg0: None,
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            env_remove: Vec::new(),
        }
    }
}

/// A shard above its limit is replaced in good order, before the kernel chooses whom to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Resident bytes.
    pub bytes: u64,
    /// How many samples in a row (one a second) must lie above.
    pub samples: u32,
}

/// Every rule by which the primary treats its children.
#[derive(Debug, Clone)]
pub struct Policy {
    /// How often the loop looks at its deadlines.
    pub tick: Duration,
    /// From spawn to ready.
    pub boot: Duration,
    /// Without a frame for this long, a shard is shown down and connections are steered away.
    pub silent: Duration,
    /// Without a good check-in for this long, a shard is ended. Together with `abort_grace` it must lie below the
    /// lease's self-fence.
    pub hang: Duration,
    /// From SIGABRT to SIGKILL.
    pub abort_grace: Duration,
    /// From the request to drain to SIGKILL.
    pub drain: Duration,
    /// How long a shard that has said that it is drained may take to exit.
    pub drained: Duration,
    /// How long a shard may take to answer that it steers connections.
    pub steer: Duration,
    /// How long a shard may take to listen once it is its turn.
    pub grant: Duration,
    /// A gap between two looks at the clock longer than this is no time at all for the children: the machine slept.
    pub clock_jump: Duration,
    /// The wait between lives.
    pub backoff: Backoff,
    /// How many deaths are an accident.
    pub intensity: Intensity,
    /// The wait between lives of a slot past its intensity.
    pub slow_retry: Duration,
    /// When to replace a shard for its memory.
    pub memory: Option<MemoryLimit>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(100),
            boot: Duration::from_secs(30),
            silent: Duration::from_secs(1),
            hang: Duration::from_secs(5),
            abort_grace: Duration::from_secs(1),
            drain: Duration::from_secs(20),
            drained: Duration::from_secs(2),
            steer: Duration::from_millis(500),
            grant: Duration::from_secs(2),
            clock_jump: Duration::from_secs(2),
            backoff: Backoff::default(),
            intensity: Intensity::default(),
            // Six lives before it is past its intensity and one every two minutes: never more than 12 in ten minutes.
            slow_retry: Duration::from_secs(120),
            memory: None,
        }
    }
}
