//! Signals as a stream of three words. Reusable by a process without children.

use futures_util::StreamExt;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

/// What a signal means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: end.
    Stop,
    /// SIGHUP: take on a new configuration.
    Reload,
    /// SIGCHLD: somebody has ended.
    Child,
}

/// The signals of this process, as they come.
pub struct Signals(signal_hook_tokio::Signals);

impl Signals {
    /// Begins to listen; the default actions are off from here on. Needs a tokio runtime.
    pub fn new() -> std::io::Result<Self> {
        signal_hook_tokio::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD]).map(Self)
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        loop {
            match self.0.next().await {
                Some(SIGTERM | SIGINT) => return Signal::Stop,
                Some(SIGHUP) => return Signal::Reload,
                Some(SIGCHLD) => return Signal::Child,
                Some(_) => {}
                // The stream ends only when its handle is closed, and nobody has it.
                None => std::future::pending().await,
            }
        }
    }
}
