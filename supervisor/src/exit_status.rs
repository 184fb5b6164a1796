//! How a child ended, and what that is called: a closed set of reasons, fit for a metric's label.

use std::fmt;

use serde::Serialize;

/// Exit status of the primary when every shard failed at first boot (EX_UNAVAILABLE).
pub const GAVE_UP: u8 = 69;
/// Exit status of the primary when its own machinery failed (EX_SOFTWARE).
pub const INTERNAL: u8 = 70;
/// Exit status of a shard, and then of the primary, whose configuration is wrong (EX_CONFIG).
pub const CONFIG: u8 = 78;

/// What the kernel said of a child's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It never came to be: fork or exec failed.
    NotStarted,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit status {code}"),
            Exit::Signal(signal) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(name) => write!(f, "signal {signal} ({name})"),
                Err(_) => write!(f, "signal {signal}"),
            },
            Exit::NotStarted => f.write_str("not started"),
        }
    }
}

/// Why a life of a slot ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// It exited without being asked, whatever the status.
    Exit,
    /// A signal that was not the primary's ended it.
    Signal,
    /// The kernel killed it for want of memory.
    Oom,
    /// It did not check in, or its loops did not get on: the primary ended it.
    Hang,
    /// It was not ready by its boot deadline: the primary ended it.
    BootTimeout,
    /// It said that its configuration is wrong (exit status 78).
    Config,
    /// Fork or exec failed.
    Spawn,
    /// It was above its memory limit and was replaced.
    Memory,
    /// It was replaced by a rolling restart.
    Roll,
    /// The primary is shutting down.
    Stop,
}

impl ExitReason {
    /// All of them, for a metric that shows each from the start.
    pub const ALL: [ExitReason; 10] = [
        ExitReason::Exit,
        ExitReason::Signal,
        ExitReason::Oom,
        ExitReason::Hang,
        ExitReason::BootTimeout,
        ExitReason::Config,
        ExitReason::Spawn,
        ExitReason::Memory,
        ExitReason::Roll,
        ExitReason::Stop,
    ];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            ExitReason::Exit => "exit",
            ExitReason::Signal => "signal",
            ExitReason::Oom => "oom",
            ExitReason::Hang => "hang",
            ExitReason::BootTimeout => "boot_timeout",
            ExitReason::Config => "config",
            ExitReason::Spawn => "spawn",
            ExitReason::Memory => "memory",
            ExitReason::Roll => "roll",
            ExitReason::Stop => "stop",
        }
    }

    /// Names an end. `ended_by` is why the primary itself wanted this life to end; `asked` says that it only asked, so
    /// that a crash on the way out keeps its own name.
    pub(crate) fn of(exit: Exit, oom: bool, ended_by: Option<ExitReason>, asked: bool) -> Self {
        match (ended_by, exit) {
            (Some(reason), _) if !asked => reason,
            (Some(reason), Exit::Code(0) | Exit::Signal(libc::SIGKILL)) => reason,
            (_, Exit::NotStarted) => ExitReason::Spawn,
            (_, Exit::Signal(libc::SIGKILL)) if oom => ExitReason::Oom,
            (_, Exit::Signal(_)) => ExitReason::Signal,
            (None, Exit::Code(code)) if code == i32::from(CONFIG) => ExitReason::Config,
            (_, Exit::Code(_)) => ExitReason::Exit,
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field report R46.
    #[test]
    fn a_kill_by_the_kernel_for_memory_is_told_from_any_other_kill() {
        assert_eq!(ExitReason::of(Exit::Signal(9), true, None, false), ExitReason::Oom);
        assert_eq!(ExitReason::of(Exit::Signal(9), false, None, false), ExitReason::Signal);
        assert_eq!(ExitReason::of(Exit::Signal(11), true, None, false), ExitReason::Signal);
    }

    #[test]
    fn leaving_without_being_asked_is_an_exit_even_with_status_zero() {
        assert_eq!(ExitReason::of(Exit::Code(0), false, None, false), ExitReason::Exit);
        assert_eq!(ExitReason::of(Exit::Code(78), false, None, false), ExitReason::Config);
    }

    #[test]
    fn a_crash_on_the_way_out_keeps_its_name() {
        assert_eq!(ExitReason::of(Exit::Code(0), false, Some(ExitReason::Roll), true), ExitReason::Roll);
        assert_eq!(ExitReason::of(Exit::Signal(11), false, Some(ExitReason::Roll), true), ExitReason::Signal);
        assert_eq!(ExitReason::of(Exit::Signal(6), false, Some(ExitReason::Hang), false), ExitReason::Hang);
    }

    #[test]
    fn labels_are_what_is_serialized() {
        for reason in ExitReason::ALL {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{reason}\""));
        }
    }
}
