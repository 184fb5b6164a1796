//! Real servers for the suites, started by the scripts of `tests/support` and stopped by them when the run is over.
//!
//! One server serves all tests of a run: it is kept by the process that runs them, and tests are kept apart inside it.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::Command,
};

/// A server that runs.
pub(crate) struct Server {
    script: PathBuf,
    dir: PathBuf,
    /// Where it answers.
    pub(crate) port: u16,
}

impl Server {
    /// The server of this name in this run; started by whoever asks first.
    pub(crate) fn shared(script: &str, name: &str, more: &[&str]) -> Self {
        // The runner's: a test's own process may be one of many.
        let owner = std::os::unix::process::parent_id();
        let dir = std::env::temp_dir().join(format!("shardvisor-{script}-{name}-{owner}"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/support").join(script);
        let mut this = Self { script, dir, port: 0 };
        let owner = owner.to_string();
        let mut arguments = vec!["--while", owner.as_str()];
        arguments.extend(more);
        this.port = port(&this.run("up", &arguments));
        this
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

fn port(output: &str) -> u16 {
    let line = output.lines().find_map(|line| line.strip_prefix("PORT="));
    line.and_then(|port| port.parse().ok()).expect("the script tells the port")
}
