//! A device on Baileys, for the simulator's other side.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Instant,
};

use serde_json::{Value, json};
use simulators::whatsapp::{Phone, WhatsApp};

use crate::world::SOON;

fn installed_in() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").join("foreign")
}

/// Whether Baileys is there; where `FOREIGN_CLIENTS=required` its absence is a failure.
pub(crate) fn installed() -> bool {
    let modules = installed_in().join("node_modules/baileys");
    let required = std::env::var("FOREIGN_CLIENTS").is_ok_and(|value| value == "required");
    assert!(modules.exists() || !required, "{} is missing: run tests/foreign/install", modules.display());
    if !modules.exists() {
        eprintln!("SKIPPED: {} is missing; tests/foreign/install installs it", modules.display());
    }
    modules.exists()
}

/// A device on Baileys.
pub(crate) struct Baileys {
    child: Child,
    stdin: Option<ChildStdin>,
    told: Receiver<Value>,
}

impl Baileys {
    pub(crate) fn start(server: &WhatsApp, auth: &Path) -> Self {
        let root = server.root_key().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut child = Command::new("node")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/whatsapp/device.mjs"))
            .env("WHATSAPP_URL", server.url())
            .env("WHATSAPP_MEDIA_URL", server.media_url())
            .env("WHATSAPP_ROOT_KEY", root)
            .env("AUTH_DIR", auth)
            .env("FOREIGN_DIR", installed_in())
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let (tell, told) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if tell.send(serde_json::from_str(&line).unwrap_or_default()).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, told }
    }

    pub(crate) fn wait_for<T>(&self, what: &str, mut seen: impl FnMut(&Value) -> Option<T>) -> T {
        let until = Instant::now() + SOON;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let event = self.told.recv_timeout(left).unwrap_or_else(|_| panic!("waited in vain for {what}"));
            if let Some(found) = seen(&event) {
                return found;
            }
        }
    }

    /// Links it to a phone, by the code that it shows.
    pub(crate) fn link(&self, phone: &Phone) {
        let code = |event: &Value| event["code"].as_str().filter(|_| event["event"] == "code").map(str::to_owned);
        phone.scan(&self.wait_for("a code", code)).expect("scanned");
        self.wait_for("open", |event| (event["event"] == "open").then_some(()));
    }

    /// Does what `device.mjs` knows by this name, and waits until it is done.
    pub(crate) fn command(&mut self, mut command: Value) -> Value {
        command["ask"] = 1.into();
        writeln!(self.stdin.as_mut().expect("open"), "{command}").expect("written");
        let answer = self.wait_for("an answer", |event| (event["event"] == "answer").then(|| event.clone()));
        assert!(answer["failed"].is_null(), "{command}: {answer}");
        answer["value"].clone()
    }

    pub(crate) fn say(&mut self, to: &str, text: &str) {
        self.command(json!({"do": "text", "to": to, "text": text}));
    }

    /// Waits for a message of somebody else that it can read.
    pub(crate) fn hears(&self, text: &str) -> Value {
        self.wait_for(text, |event| {
            let other = event["event"] == "message" && event["mine"] != true;
            assert!(!other || event["failed"].is_null(), "Baileys can't read a message: {event}");
            (other && event["text"] == text).then(|| event.clone())
        })
    }

    /// Ends it in good order: its state is on the disk.
    pub(crate) fn leave(mut self) {
        drop(self.stdin.take());
        self.child.wait().expect("ended");
    }
}

impl Drop for Baileys {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
