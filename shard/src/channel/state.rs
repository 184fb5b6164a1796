//! The words of a channel's life cycle: its states, what can happen to it, what is then to be done, and by which times.
//! What follows from what is decided in [`Life`](super::Life).

use std::time::Duration;

use crate::platform::Closed;

/// Where a channel stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Not wanted.
    Stopped,
    /// Tries for the first time.
    Connecting,
    /// The platform answered.
    Connected,
    /// Lost its connection and tries again.
    Reconnecting,
    /// Somebody else uses its identity.
    Replaced,
    /// Its credentials are dead.
    LoggedOut,
    /// The platform banned it.
    Banned,
    /// A device must be linked.
    NeedsPairing,
    /// Set up wrongly, or refused too often: probed slowly.
    Parked,
}

impl State {
    /// Its name in events, metrics and `/status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Reconnecting => "reconnecting",
            Self::Replaced => "replaced",
            Self::LoggedOut => "logged_out",
            Self::Banned => "banned",
            Self::NeedsPairing => "needs_pairing",
            Self::Parked => "parked",
        }
    }

    /// Whether somebody should look at it.
    pub fn is_alert(self) -> bool {
        matches!(self, Self::Replaced | Self::LoggedOut | Self::Banned | Self::NeedsPairing | Self::Parked)
    }

    /// Whether a failed try leaves it as it is: only a connection that holds, or a person, changes it.
    pub(super) fn is_sticky(self) -> bool {
        matches!(self, Self::Replaced | Self::Banned | Self::Parked)
    }
}

/// The times and limits by which is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The first delay after an end; it doubles.
    pub backoff_first: Duration,
    /// No backoff is longer.
    pub backoff_cap: Duration,
    /// How long a connection must have lasted to count as good.
    pub stable: Duration,
    /// The first delay from the second `Replaced` on; it doubles, up to `backoff_cap`.
    pub replaced_first: Duration,
    /// How many refused logins in a row park a channel.
    pub park_after: u32,
    /// How often a channel that was refused too often is tried.
    pub park_probe: Duration,
    /// How often a channel that is set up wrongly is tried (up to twice as long).
    pub misconfigured_probe: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            backoff_first: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(300),
            stable: Duration::from_secs(30),
            replaced_first: Duration::from_secs(30),
            park_after: 20,
            park_probe: Duration::from_secs(1800),
            misconfigured_probe: Duration::from_secs(300),
        }
    }
}

/// What happens to a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It is wanted, and may connect after so long.
    Start {
        /// The jitter of a cold start, or zero.
        delay: Duration,
    },
    /// It is no longer wanted.
    Stop,
    /// Somebody asks for it now (a `connect` job, an operator).
    Kick,
    /// It shall connect anew.
    Restart {
        /// Its settings changed, so that a try under way is of no use.
        changed: bool,
    },
    /// The platform answered.
    Up,
    /// The platform waits for a person to link the device.
    Waits,
    /// The connection ended.
    Ended(Closed),
    /// The timer fired.
    Due,
    /// The lease is no longer ours.
    Lost,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Begin a connection. There is none now.
    Connect,
    /// End the connection; `Ended` will follow.
    HangUp,
    /// Set the one timer, instead of what it was set to.
    Arm(Duration),
    /// Unset it.
    Disarm,
    /// The state or its reason is worth an event.
    Tell,
    /// All is over: there is no connection and no timer.
    Gone,
}
