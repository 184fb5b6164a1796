//! What happens to the policy and what it wants done: the whole vocabulary between what decides and what acts.

use std::time::Duration;

use crate::{
    exit_status::{Exit, ExitReason},
    policy::group::Plan,
    status::Phase,
};

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Begin: every slot gets its first life.
    Start,
    /// An [`Action::Spawn`] was done.
    Spawned {
        /// Whose.
        slot: u32,
        /// The child.
        pid: i32,
        /// Which life of the slot.
        incarnation: u64,
    },
    /// An [`Action::Spawn`] could not be done.
    SpawnFailed {
        /// Whose.
        slot: u32,
    },
    /// A child was reaped.
    Exited {
        /// Which.
        pid: i32,
        /// How.
        exit: Exit,
        /// The kernel has killed for want of memory since the last look.
        oom: bool,
    },
    /// A child has said something.
    Heard {
        /// Which slot's.
        slot: u32,
        /// What.
        heard: Heard,
    },
    /// A child's end of the link is closed.
    LinkClosed {
        /// Which slot's.
        slot: u32,
    },
    /// A sample of a child's resident memory.
    Memory {
        /// Which slot's.
        slot: u32,
        /// Bytes.
        rss: u64,
    },
    /// Replace all shards one after the other (SIGHUP).
    Roll,
    /// End in good order (SIGTERM, SIGINT); the second time at once.
    Stop,
    /// Time has passed, and whoever could be reaped has been.
    Tick,
}

/// What a child says, as far as the policy cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It lives; nothing more.
    Alive,
    /// It wants to join the group of listeners.
    Listen,
    /// It has joined.
    Listening,
    /// It serves its channels.
    Ready,
    /// It does not (yet, or any more), and why.
    NotReady(String),
    /// It does not, and waits for something outside of it.
    Waiting(String),
    /// Its loops, as they are.
    CheckIn {
        /// The loops that do not get on.
        stalled: Vec<String>,
    },
    /// It has done an [`Action::Steer`].
    Steered {
        /// Which.
        id: u64,
    },
    /// It has closed its listener.
    LeftGroup,
    /// It has nothing left to do but exit.
    Drained,
}

/// Do this, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a life; answer with [`Event::Spawned`] or [`Event::SpawnFailed`] before any other event.
    Spawn {
        /// For which slot.
        slot: u32,
    },
    /// Tell a child that it may listen now.
    Grant {
        /// Which slot's.
        slot: u32,
    },
    /// Ask a child to finish and exit.
    Drain {
        /// Which slot's.
        slot: u32,
        /// When it will be killed.
        deadline: Duration,
    },
    /// Ask a child to steer new connections, or (without a plan) to stop that.
    Steer {
        /// Which slot's.
        slot: u32,
        /// Repeated in its answer.
        id: u64,
        /// Where connections go.
        plan: Option<Plan>,
    },
    /// Signal a child.
    Kill {
        /// Which slot's.
        slot: u32,
        /// Its process.
        pid: i32,
        /// With what.
        signal: Deadly,
    },
    /// Say so: a line in the log, a word to systemd, an answer to who waits.
    Tell(News),
    /// All is over; leave with this status.
    Exit {
        /// The status.
        code: u8,
    },
}

/// The two signals that end a hung child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadly {
    /// SIGABRT: with a core or a last word, where it can.
    Abort,
    /// SIGKILL.
    Kill,
}

/// What the outside should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A slot is in another phase.
    Phase {
        /// Which.
        slot: u32,
        /// The phase.
        phase: Phase,
    },
    /// A life has ended.
    Lost {
        /// Of which slot.
        slot: u32,
        /// Which life.
        incarnation: u64,
        /// Why.
        reason: ExitReason,
        /// How.
        exit: Exit,
    },
    /// A slot is past its intensity: from now on it is retried slowly.
    GaveUp {
        /// Which.
        slot: u32,
        /// Why it fell last.
        reason: ExitReason,
    },
    /// First boot is over: each slot is ready, or is known to be broken while another one is ready.
    Ready,
    /// A request to roll was taken; it is answered by this number.
    RollAccepted {
        /// Which roll will serve it.
        id: u64,
    },
    /// A request to roll was refused, since the primary is stopping.
    RollRefused,
    /// A roll begins.
    RollStarted {
        /// Which.
        id: u64,
    },
    /// Every slot has been replaced and is ready.
    RollDone {
        /// Which.
        id: u64,
    },
    /// A roll has stopped: this slot's new life did not become ready.
    RollFailed {
        /// Which.
        id: u64,
        /// Where.
        slot: u32,
        /// Why.
        reason: ExitReason,
    },
    /// Shutdown begins.
    Stopping {
        /// The status it will end with.
        code: u8,
    },
}
