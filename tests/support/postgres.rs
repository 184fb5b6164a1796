//! A PostgreSQL of one test, started by the script beside this file.

#![allow(dead_code, reason = "each test takes from here what it needs")]

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

pub(crate) const PASSWORD: &str = "p0stgres-hunter2";

/// A private server: loopback only, a free port, own data.
pub(crate) struct Postgres {
    dir: tempfile::TempDir,
    pub(crate) url: String,
}

impl Postgres {
    /// Starts one; none, said aloud, where its programs are not installed.
    pub(crate) fn start() -> Option<Self> {
        if std::fs::read_dir("/usr/lib/postgresql").is_err() {
            assert!(std::env::var_os("SERVERS").is_none(), "no PostgreSQL here");
            println!("SKIPPED: no PostgreSQL here");
            return None;
        }
        let mut server = Self { dir: tempfile::tempdir().expect("a directory"), url: String::new() };
        let told = server.up();
        server.url = told.lines().find_map(|line| line.strip_prefix("URL=")).expect("told").to_owned();
        Some(server)
    }

    fn script(&self, action: &str, more: &[&str], input: &str) -> String {
        // Paths of sources are relative to the workspace, which one of the two packages lies in.
        let script = Path::new(file!()).parent().expect("a directory").join("start-postgres");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = [root.join(&script), root.join("..").join(&script)].into_iter().find(|path| path.exists());
        let mut child = Command::new(script.expect("the script lies beside this file"))
            .arg(action)
            .arg(self.dir.path().join("postgres"))
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start-postgres");
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success(), "{action}: {input}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Starts it, or starts it again with what it kept.
    pub(crate) fn up(&self) -> String {
        self.script("up", &["--while", &std::process::id().to_string(), "--password", PASSWORD], "")
    }

    pub(crate) fn down(&self) {
        self.script("down", &[], "");
    }

    pub(crate) fn sql(&self, sql: &str) {
        self.script("sql", &[], sql);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.down();
    }
}
