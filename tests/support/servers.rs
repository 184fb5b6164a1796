//! Real servers for the suites, started by the scripts of `tests/support` and stopped by them when the run is over.
//!
//! One server serves all tests of a run: it is kept for as long as the process lives that runs them. Tests are kept apart
//! inside it; those that disturb the server itself have it alone.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    process::Command,
};

use nix::fcntl::{Flock, FlockArg};

/// A server that runs.
pub(crate) struct Server {
    script: PathBuf,
    dir: PathBuf,
    told: HashMap<String, String>,
    _use: Flock<File>,
}

/// How a test uses a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Beside others.
    Beside,
    /// With nobody beside: it will be stopped, starved or misled.
    Alone,
}

impl Server {
    /// The server of this run; started by whoever asks first.
    pub(crate) fn of_run(script: &str, how: Use, arguments: &[&str]) -> Self {
        // The runner's: a test's own process may be one of many.
        let owner = std::os::unix::process::parent_id();
        let dir = std::env::temp_dir().join(format!("shardvisor-ports-{script}-{owner}"));
        std::fs::create_dir_all(&dir).expect("a directory");
        let lock = OpenOptions::new().create(true).append(true).open(dir.join("use")).expect("a lock file");
        let kind = if how == Use::Alone { FlockArg::LockExclusive } else { FlockArg::LockShared };
        let lock = Flock::lock(lock, kind).map_err(|(_, error)| error).expect("locked");
        let script = Path::new(file!()).parent().expect("a directory").join(script);
        // Paths of sources are relative to the workspace, which one of the two packages lies in.
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = [root.join(&script), root.join("..").join(&script)].into_iter().find(|path| path.exists());
        let script = script.expect("the script lies beside this file");
        let mut this = Self { script, dir, told: HashMap::new(), _use: lock };
        let mut up = vec!["--while".to_owned(), owner.to_string()];
        up.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        this.up(&up);
        this
    }

    fn up(&mut self, arguments: &[String]) {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let told = self.run("up", &arguments);
        self.told = told.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
    }

    /// What the script told about it.
    pub(crate) fn told(&self, key: &str) -> &str {
        self.told.get(key).unwrap_or_else(|| panic!("{key} was not told"))
    }

    /// Where it answers.
    pub(crate) fn port(&self) -> u16 {
        self.told("PORT").parse().expect("a port")
    }

    /// Does something to it.
    pub(crate) fn run(&self, action: &str, more: &[&str]) -> String {
        let output =
            Command::new(&self.script).arg(action).arg(&self.dir).args(more).output().expect("the script runs");
        assert!(output.status.success(), "{action}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A number from `0..of` that no other test of this run has got.
    pub(crate) fn claim(&self, of: u32) -> u32 {
        let free = |number: &u32| {
            let path = self.dir.join(format!("claimed-{number}"));
            OpenOptions::new().write(true).create_new(true).open(path).is_ok()
        };
        (0..of).find(free).expect("fewer tests than places")
    }
}
