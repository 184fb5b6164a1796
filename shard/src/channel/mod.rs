//! The channels of a shard: one life each, decided by a pure state machine, and the roster that holds them all.
//!
//! It joins four ports: the directory says what is wanted, the registry what is ours, a platform connects, and what is
//! received goes into the outbox. LIFECYCLE.md beside the crate shows it on one page.

mod actor;
mod hold;
mod inbox;
mod life;
mod post;
mod ramp;
mod roster;
mod state;
#[cfg(test)]
mod testing;
mod wanted;

pub use hold::Hold;
pub use inbox::OnChanged;
pub use life::Life;
pub use ramp::{Pace, Permit, Ramp, RampConfig};
pub use roster::{ChannelStatus, Roster, RosterConfig, RosterHandle, RosterPorts};
pub use state::{Action, Event, Policy, State};
