//! Which worker of a pool should hold which bot. Pure: the same workers and bots give the same answer in every process.
//!
//! The ring alone is what others can compute without a word from us: [`Ring::owner`]. It spreads unevenly, by chance; so
//! [`place`] puts a limit on each worker's load, and lets what is over it go on to the next worker of the ring. What a placement
//! says is a proposal: only a lease makes an owner.

mod bounded;
mod ring;

pub use bounded::{LOAD_FACTOR, Placement, Worker, place};
pub use ring::{REPLICAS, Ring};
