//! Keeps a fixed number of child processes alive; knows no queue and no chat.
//!
//! What decides is [`state::State`], a pure function of events and time; what acts is [`Supervisor::run`], one loop on
//! one thread. `LIFECYCLE.md` beside this crate has the states, events and timers on one page. Linux only.

pub mod action;
pub mod backoff;
pub mod clock;
pub mod control;
pub mod exit_status;
pub mod intensity;
pub mod link;
pub mod lock;
pub mod memory;
pub mod observer;
pub mod policy;
pub mod signals;
pub mod spawn;
pub mod spec;
pub mod state;
pub mod status;
pub mod succession;
pub mod systemd;

mod reaper;
mod run;

pub use exit_status::ExitReason;
pub use link::{ChildLink, LinkEvent, LinkEvents, LinkHandle};
pub use lock::SlotLock;
pub use observer::Observer;
pub use run::{Outcome, Supervisor};
pub use spec::{ChildSpec, Policy};
pub use status::{Phase, SlotStatus};
pub use succession::speak_the_primarys_link;
