//! What the service manager is told, by the primary or a single process alone: shards never see the socket.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

/// What a child must not inherit.
pub const ENVIRONMENT: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Speaks to the service manager, if there is one; otherwise says nothing.
#[derive(Debug)]
pub struct Notifier {
    present: bool,
    watchdog: Option<Duration>,
    petted: Option<Duration>,
    /// Ready has been said: until then the start is drawn out.
    started: bool,
    drawn_out: Option<Duration>,
    status: String,
}

/// A start is drawn out for so long at a time. Whether it has failed is for this program to judge: a standby, or one whose
/// server is away, may wait for hours.
const DRAW_OUT: Duration = Duration::from_secs(60);

impl Notifier {
    /// Looks who has started this process.
    pub fn from_env() -> Self {
        let present = std::env::var_os(ENVIRONMENT[0]).is_some();
        let watchdog = sd_notify::watchdog_enabled().filter(|_| present);
        Self { present, watchdog, petted: None, started: false, drawn_out: None, status: String::new() }
    }

    /// Start-up, or a reload, is over.
    pub fn ready(&mut self) {
        self.started = true;
        self.notify(&[NotifyState::Ready]);
    }

    /// A rolling restart begins; [`Self::ready`] ends it.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now]),
            Err(error) => debug!(%error, "no monotonic clock"),
        }
    }

    /// Shutdown begins.
    pub fn stopping(&self) {
        self.notify(&[NotifyState::Stopping]);
    }

    /// One line for `systemctl status`, sent when it changes.
    pub fn status(&mut self, line: &str) {
        if self.status != line {
            line.clone_into(&mut self.status);
            self.notify(&[NotifyState::Status(line)]);
        }
    }

    /// How long the watchdog waits, if one runs: [`Self::pet`] must be called several times in it.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The loop turns. Goes out three times in the watchdog's span, however often it is called.
    pub fn pet(&mut self, now: Duration) {
        if !self.started && self.drawn_out.is_none_or(|at| now.saturating_sub(at) >= DRAW_OUT / 4) {
            self.drawn_out = Some(now);
            self.notify(&[NotifyState::ExtendTimeoutUsec(DRAW_OUT.as_micros() as u32)]);
        }
        let Some(span) = self.watchdog else { return };
        if self.petted.is_none_or(|at| now.saturating_sub(at) >= span / 3) {
            self.petted = Some(now);
            self.notify(&[NotifyState::Watchdog]);
        }
    }

    fn notify(&self, states: &[NotifyState<'_>]) {
        if self.present
            && let Err(error) = sd_notify::notify(states)
        {
            debug!(%error, "the service manager does not listen");
        }
    }
}
