//! What the primary and a shard say to each other. Reports and views are opaque: only `src/` knows what is in them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// From a shard to the primary.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromChild {
    /// The first words.
    Hello {
        /// Who speaks.
        pid: i32,
        /// Which life it believes to be.
        incarnation: u64,
    },
    /// May I listen on the health port?
    Listen,
    /// I listen.
    Listening,
    /// I serve my channels.
    Ready,
    /// I do not, and why.
    NotReady {
        /// For people.
        reason: String,
    },
    /// I do not, for want of something that is not in this process: a server, a slot that somebody else holds.
    Waiting {
        /// For people.
        reason: String,
    },
    /// How my loops are, and what I have to report.
    CheckIn {
        /// The loops that do not get on.
        stalled: Vec<String>,
        /// For the observer.
        report: Box<RawValue>,
    },
    /// What does the box look like?
    ViewRequest {
        /// Repeated in the answer.
        id: u64,
    },
    /// What [`ToChild::Steer`] or [`ToChild::Unsteer`] asked for is done, or cannot be done here.
    Steered {
        /// Which.
        id: u64,
    },
    /// I have closed my listener.
    LeftGroup,
    /// I have nothing left to do and exit now.
    Drained,
}

/// From the primary to a shard.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToChild {
    /// Listen now, and say so.
    ListenGranted,
    /// Finish: stop taking work, empty the accept queue, close, exit with status 0.
    Drain {
        /// When you will be killed, from now.
        deadline_ms: u64,
    },
    /// What the box looks like.
    View {
        /// Which request this answers.
        id: u64,
        /// From the observer.
        payload: Box<RawValue>,
    },
    /// Attach a program to your listener that sends new connections to these places of the group.
    Steer {
        /// Repeated in the answer.
        id: u64,
        /// How many listeners there are.
        total: u32,
        /// The places in the group that get connections.
        targets: Vec<u32>,
    },
    /// Detach the program.
    Unsteer {
        /// Repeated in the answer.
        id: u64,
    },
}
