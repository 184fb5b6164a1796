//! Where settings come from, and which source wins: a flag beats an environment variable beats the file beats the
//! default.
//!
//! The sources are a value of their own, so that tests need no process and a shard reads what its primary read.

use std::{
    collections::{BTreeMap, HashMap},
    io::ErrorKind,
    path::{Path, PathBuf},
};

use supervisor::spec::CHILD_ENV;

use super::{
    address::without_credentials,
    file,
    keys::{self, CONFIG_VARIABLE, Key},
    nearest::nearest,
    problem::{Origin, Problem},
};

/// The file that is read when none is named.
const DEFAULT_FILE: &str = "/etc/shardvisor/shardvisor.toml";

/// Everything a configuration is read from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// `--config`.
    pub(crate) file: Option<PathBuf>,
    /// Other flags, by the key they set.
    pub(crate) flags: Vec<(&'static str, String)>,
    /// The environment.
    pub(crate) env: BTreeMap<String, String>,
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    /// As it was written.
    pub(crate) text: String,
    /// Where.
    pub(crate) origin: Origin,
}

/// What was given, by key.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// The winning value of each key.
    pub(super) values: HashMap<&'static str, Value>,
    /// The file that was read.
    pub(super) file: Option<PathBuf>,
    /// What is odd, but no error.
    pub(super) warnings: Vec<String>,
}

impl Sources {
    /// The sources of this process, with the flags it was given.
    pub(crate) fn of_process(file: Option<PathBuf>, flags: Vec<(&'static str, String)>) -> Self {
        // A value that isn't UTF-8 is kept with its replacement characters, which no setting but a path accepts.
        let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let env = std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))).collect();
        Self { file, flags, env }
    }

    /// Puts the sources together.
    pub(super) fn gather(&self, problems: &mut Vec<Problem>) -> Given {
        let mut given = Given::default();
        if let Some((path, text)) = self.read_file(problems) {
            given.values.extend(file::read(&path, &text, problems));
            given.file = Some(path);
        }
        for key in keys::ALL {
            if let Some(value) = self.variable(key, problems) {
                given.values.insert(key.name, value);
            }
        }
        for (name, text) in &self.flags {
            let flag = keys::by_name(name).and_then(|key| key.flag).unwrap_or(name);
            given.values.insert(name, Value { text: text.clone(), origin: Origin::Flag(flag) });
        }
        self.strangers(&mut given.warnings, problems);
        given
    }

    fn read_file(&self, problems: &mut Vec<Problem>) -> Option<(PathBuf, String)> {
        let named = match (&self.file, self.env.get(CONFIG_VARIABLE)) {
            (Some(path), _) => Some((path.clone(), "--config")),
            (None, Some(path)) => Some((PathBuf::from(path), CONFIG_VARIABLE)),
            (None, None) => None,
        };
        let (path, by) = named.clone().unwrap_or((PathBuf::from(DEFAULT_FILE), "its default"));
        match std::fs::read(&path).map(String::from_utf8) {
            Ok(Ok(text)) => Some((path, text)),
            Ok(Err(_)) => {
                problems.push(unreadable(&path, by, "it is not UTF-8"));
                None
            }
            Err(error) if error.kind() == ErrorKind::NotFound && named.is_none() => None,
            Err(error) => {
                problems.push(unreadable(&path, by, &plain(&error)));
                None
            }
        }
    }

    /// The value of a key's variables; aliases that disagree are an error, since one of two programs that share the
    /// environment would be believed and the other not.
    fn variable(&self, key: &'static Key, problems: &mut Vec<Problem>) -> Option<Value> {
        let mut set = key.env.iter().filter_map(|name| self.env.get(*name).map(|text| (*name, text)));
        let (first, value) = set.next()?;
        if let Some((second, other)) = set.find(|(_, other)| *other != value) {
            problems.push(Problem::Differ {
                first: first.to_owned(),
                first_value: without_credentials(value),
                second: second.to_owned(),
                second_value: without_credentials(other),
            });
        }
        Some(Value { text: value.clone(), origin: Origin::Env(first.to_owned()) })
    }

    /// Variables with our prefixes that are no setting: an error when a setting is near, else a warning, since container
    /// platforms set variables such as `SHARDVISOR_SERVICE_HOST` unasked.
    fn strangers(&self, warnings: &mut Vec<String>, problems: &mut Vec<Problem>) {
        let known: Vec<&str> =
            keys::ALL.iter().flat_map(|key| key.env.iter().copied()).chain([CONFIG_VARIABLE]).collect();
        let ours = |name: &&String| name.starts_with("SHARDVISOR_") || name.starts_with("BOT_WORKER_");
        for name in self.env.keys().filter(ours).filter(|name| !known.contains(&name.as_str())) {
            let origin = Origin::Env(name.clone());
            let open = keys::ALL.iter().find(|key| key.credential.is_some() && key.env[0] == format!("{name}_FILE"));
            if let Some(secret) = open {
                problems.push(Problem::OpenSecret { origin, instead: secret.env[0].to_owned() });
            } else if supervisor_variable(name) {
                // How a primary tells a shard which slot it is; no setting.
            } else if let Some(near) = nearest(name, known.iter().copied()) {
                problems.push(Problem::Unknown { origin, hint: format!("did you mean {near}?") });
            } else {
                warnings.push(format!("{name} is no setting and is ignored"));
            }
        }
    }
}

fn supervisor_variable(name: &str) -> bool {
    CHILD_ENV.contains(&name)
}

fn unreadable(path: &Path, by: &str, cause: &str) -> Problem {
    Problem::Unreadable { path: path.display().to_string(), by: by.to_owned(), cause: cause.to_owned() }
}

/// An operating system's error in lower case, without its number.
pub(crate) fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
