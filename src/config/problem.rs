//! What is wrong with a configuration: one line each, all of them at once, and never the value of a secret.

use std::{fmt, path::PathBuf};

use shard::identity::CountError;

/// Where a setting's value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A command-line flag.
    Flag(&'static str),
    /// An environment variable.
    Env(String),
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key.
        key: String,
    },
    /// Nobody gave it.
    Default(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.write_str(flag),
            Self::Env(variable) => f.write_str(variable),
            Self::File { path, line, key } => write!(f, "{}:{line}: {key}", path.display()),
            Self::Default(key) => write!(f, "{key} (its default)"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// A value that is not accepted.
    #[error("{origin}={value:?} is refused: expected {expected}")]
    Refused {
        /// Where it is.
        origin: Origin,
        /// The value, credentials removed.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// A count or index that is not accepted.
    #[error(transparent)]
    Count(#[from] CountError),
    /// A value of a kind that is never accepted there.
    #[error("{origin} is {found}: expected {expected}")]
    Kind {
        /// Where it is.
        origin: Origin,
        /// What is there.
        found: &'static str,
        /// What would be right.
        expected: String,
    },
    /// A key that no setting has.
    #[error("{origin} is no setting: {hint}")]
    Unknown {
        /// Where it is.
        origin: Origin,
        /// What may have been meant.
        hint: String,
    },
    /// Two names of one setting that disagree.
    #[error("{first}={first_value:?} and {second}={second_value:?} are the same setting and differ: set one of them")]
    Differ {
        /// One.
        first: String,
        /// Its value.
        first_value: String,
        /// The other.
        second: String,
        /// Its value.
        second_value: String,
    },
    /// Two settings that don't fit.
    #[error("{origin}={value:?} does not fit: expected {expected}")]
    Unfit {
        /// The one to change.
        origin: Origin,
        /// Its value.
        value: String,
        /// What would fit.
        expected: String,
    },
    /// Something known that this build doesn't have.
    #[cfg(not(all(feature = "amqp", feature = "redis", feature = "postgres")))]
    #[error("{origin}={value:?} is not built into this version: expected {expected}")]
    NotBuiltIn {
        /// Where it is.
        origin: Origin,
        /// The value, credentials removed.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// A secret where it can be read by everyone.
    #[error("{origin} holds a secret itself: write it to a file of mode 0600 and give the path as {instead}")]
    OpenSecret {
        /// Where it is.
        origin: Origin,
        /// The setting to use.
        instead: String,
    },
    /// A file that holds a secret and can't be used.
    #[error("{origin}: {path}: {problem}")]
    SecretFile {
        /// Who names it.
        origin: String,
        /// The file.
        path: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The configuration file can't be read.
    #[error("{path}: can't be read: {cause} (named by {by})")]
    Unreadable {
        /// The file.
        path: String,
        /// Who names it.
        by: String,
        /// Why.
        cause: String,
    },
    /// The configuration file is no TOML.
    #[error("{path}:{line}:{column}: not TOML: {problem}")]
    Syntax {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What the parser says.
        problem: String,
    },
}

/// All that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub(crate) struct Problems(pub(crate) Vec<Problem>);
