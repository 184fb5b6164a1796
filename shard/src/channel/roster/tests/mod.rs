//! The roster on ports and a network in memory, in paused time.

mod ending;
mod events;
mod leases;
mod starting;
#[cfg(feature = "telegram")]
mod telegram;

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::{
    channel::{
        State,
        testing::{Script, World, id, spec},
    },
    directory::{ChannelSpec, Handler},
    dispatch::{Availability, Channels},
    event::{EventKind, Message},
    identity::ChannelId,
    platform::Closed,
    secret::Secret,
    sink::Destination,
};

pub(super) const LONG: Duration = Duration::from_secs(3600);

pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(super) fn start(world: &World, config: RosterConfig) -> RosterHandle {
    let roster = world.roster(config);
    let handle = roster.handle();
    tokio::spawn(roster.run());
    handle
}

/// Waits (in paused time) until something holds.
pub(super) async fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() <= limit, "it never came about");
        sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

pub(super) fn state_of(handle: &RosterHandle, channel: ChannelId) -> Option<State> {
    handle.states().into_iter().find(|status| status.channel == channel).map(|status| status.state)
}

pub(super) fn all_connected(handle: &RosterHandle, count: usize) -> bool {
    let states = handle.states();
    states.len() == count && states.iter().all(|status| status.state == State::Connected)
}

pub(super) fn event(n: u32, key: &str, kind: EventKind) -> crate::event::Event {
    let at = jiff::Timestamp::UNIX_EPOCH;
    crate::event::Event::new(id(n), PlatformKind::Telegram, None, at, key, kind)
}
