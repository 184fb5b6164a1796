//! A running primary with its children, seen from outside: its status, its log, and /proc.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use supervisor::control::{self, Request, Response};
use tempfile::TempDir;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// The state letter of a process; `None` when there is none or only a zombie, which nobody here may be there to reap.
pub(crate) fn alive(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).map(str::trim);
    state.is_some_and(|state| !state.starts_with('Z') && !state.starts_with('X'))
}

pub(crate) struct Daemon {
    pub(crate) process: Child,
    dir: TempDir,
}

pub(crate) struct Setup {
    dir: TempDir,
    env: Vec<(&'static str, String)>,
    wrapper: Option<&'static str>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), env: Vec::new(), wrapper: None }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl ToString) -> Self {
        self.env.push((name, value.to_string()));
        self
    }

    /// How children of this slot behave.
    pub(crate) fn mode(self, slot: u32, mode: &str) -> Self {
        fs::write(self.dir.path().join(format!("mode-{slot}")), mode).unwrap();
        self
    }

    /// Started by this shell line, which ends in `exec "$@"`.
    pub(crate) fn wrapped(mut self, line: &'static str) -> Self {
        self.wrapper = Some(line);
        self
    }

    pub(crate) fn start(self, slots: u32) -> Daemon {
        let fixture = env!("CARGO_BIN_EXE_supervisor-fixture");
        let mut command = match self.wrapper {
            Some(line) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", line, "sh", fixture]);
                shell
            }
            None => Command::new(fixture),
        };
        command.args(["primary".as_ref(), self.dir.path().as_os_str()]).arg(slots.to_string());
        command.envs(self.env).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        Daemon { process: command.spawn().unwrap(), dir: self.dir }
    }
}

impl Daemon {
    pub(crate) fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    pub(crate) fn set_mode(&self, slot: u32, mode: &str) {
        fs::write(self.dir.path().join(format!("mode-{slot}")), mode).unwrap();
    }

    pub(crate) fn view(&self) -> Option<Value> {
        match control::call(&self.socket(), &Request::Status, PATIENCE) {
            Ok(Response::Status { view }) => serde_json::from_str(view.get()).ok(),
            _ => None,
        }
    }

    /// A field of a slot's status.
    pub(crate) fn slot(&self, slot: usize) -> Value {
        self.view().map(|view| view["slots"][slot].clone()).unwrap_or_default()
    }

    pub(crate) fn phases(&self) -> Vec<String> {
        let view = self.view().unwrap_or_default();
        let slots = view["slots"].as_array().cloned().unwrap_or_default();
        slots.iter().map(|slot| slot["phase"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        let view = self.view().unwrap_or_default();
        let slots = view["slots"].as_array().cloned().unwrap_or_default();
        slots.iter().filter_map(|slot| slot["pid"].as_i64()).map(|pid| pid as i32).collect()
    }

    pub(crate) fn all_ready(&self) -> Vec<i32> {
        eventually("all shards are ready", || {
            let phases = self.phases();
            (!phases.is_empty() && phases.iter().all(|phase| phase == "ready")).then(|| self.pids())
        })
    }

    pub(crate) fn lost(&self) -> Vec<(u64, String)> {
        let view = self.view().unwrap_or_default();
        let lost = view["lost"].as_array().cloned().unwrap_or_default();
        lost.iter().map(|end| (end[0].as_u64().unwrap(), end[2].as_str().unwrap().to_owned())).collect()
    }

    /// Lines of the children's log: slot, incarnation, what.
    pub(crate) fn log(&self) -> Vec<(u32, u64, String)> {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.splitn(4, ' ');
            let (slot, life) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some((slot, life, words.nth(1)?.to_owned()))
        };
        text.lines().filter_map(line).collect()
    }

    pub(crate) fn logged(&self, what: &str) -> usize {
        self.log().iter().filter(|(_, _, word)| word == what).count()
    }

    /// Direct children in the kernel's eyes, zombies included.
    pub(crate) fn kernel_children(&self) -> Vec<i32> {
        let pid = self.pid();
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        text.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    pub(crate) fn reload(&self) -> Response {
        control::call(&self.socket(), &Request::Reload, PATIENCE).unwrap()
    }

    pub(crate) fn exit(&mut self) -> ExitStatus {
        eventually("the primary ends", || self.process.try_wait().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended as the test wanted it to.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
