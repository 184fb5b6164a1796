//! The link: a socket pair between the primary and each shard, with small framed messages.
//!
//! Its end of file is how a shard learns that the primary is gone, even when the death signal was lost. Nothing that a
//! child does or leaves undone on it can block or bloat the primary: reads have a budget, writes a bound.

mod child;
pub(crate) mod codec;
mod fd;
mod frame;
mod parent;
mod views;

pub use child::{ChildLink, LinkError, LinkEvent, LinkEvents, LinkHandle};
pub use codec::{FrameError, MAX_FRAME};
pub use fd::{FdError, inherited};
pub use frame::{FromChild, ToChild};
pub use parent::{Incoming, Links, ParentLink};

/// How often a shard should check in.
pub const CHECK_IN_EVERY: std::time::Duration = std::time::Duration::from_millis(250);
