//! What the tests of the job path share: a world that outlives processes, and processes that end when told to.

#[cfg(feature = "amqp")]
mod broker;
mod channels;
mod faults;
mod faulty;
mod jobs;
mod journal;
mod process;
mod wire;
mod world;

use std::time::{Duration, Instant};

pub(crate) use faults::{Fault, When};
pub(crate) use jobs::*;
pub(crate) use process::{Ended, Options, Process};
pub(crate) use wire::{Act, Kind};
pub(crate) use world::World;

/// How long whatever must come is waited for.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Looks until a condition holds; panics when it doesn't within [`SOON`].
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}: did not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
