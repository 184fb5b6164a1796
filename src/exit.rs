//! How the command ends: exit codes are an interface, and systemd restarts by them.
//!
//! 0 done · 1 the demo lost or doubled a message · 64 the command line is wrong · 69 gave up, something needed isn't there · 70 a fault inside · 78 the
//! configuration is wrong (not restarted, since only a person can change that).

use std::{fmt::Display, process::ExitCode};

use crate::config::Problems;

/// Why a command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line, or what was given on standard input, is wrong.
    #[error("{0}")]
    Usage(String),
    /// Something that is needed isn't there, or did not become what it should in time.
    #[error("{0}")]
    GaveUp(String),
    /// The demo did not go as it should.
    #[cfg(feature = "demo")]
    #[error("{0}")]
    Demo(String),
    /// A fault of this program or of the machine it runs on.
    #[error("{0}")]
    Internal(String),
    /// A setting, or a file or directory that settings name, is wrong.
    #[error("{0}")]
    Config(String),
    /// Settings that are wrong, a line each.
    #[error(transparent)]
    Settings(#[from] Problems),
}

impl Failure {
    /// The status that the process ends with.
    pub(crate) fn code(&self) -> u8 {
        match self {
            #[cfg(feature = "demo")]
            Self::Demo(_) => 1,
            Self::Usage(_) => 64,
            Self::GaveUp(_) => 69,
            Self::Internal(_) => INTERNAL,
            Self::Config(_) | Self::Settings(_) => 78,
        }
    }

    /// Says it, one line for each thing that is wrong, and gives the status.
    pub(crate) fn report(&self) -> ExitCode {
        for line in self.to_string().lines().filter(|line| !line.trim().is_empty()) {
            say(line);
        }
        ExitCode::from(self.code())
    }
}

/// The status of a fault inside.
pub(crate) const INTERNAL: u8 = 70;

/// What each status means, for the manual.
pub(crate) const STATUSES: [(u8, &str); 5] = [
    (0, "Done."),
    (64, "The command line is wrong."),
    (69, "Gave up: something needed isn't there."),
    (INTERNAL, "A fault inside."),
    (78, "The configuration, or a file that it names, is wrong. systemd does not restart it: only a person can help."),
];

/// One line on standard error. It may be closed: nothing can be said then.
pub(crate) fn say(what: impl Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "shardvisor: {what}");
}
