//! A tenant moves over from Baileys: what that client kept of a device is imported, and nobody scans again.

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use simulators::whatsapp::WhatsApp;
use support::Home;

/// How long anything may take.
const SOON: Duration = Duration::from_secs(60);

fn installed_in() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").join("foreign")
}

/// Whether Baileys is there; where `FOREIGN_CLIENTS=required` its absence is a failure.
fn installed() -> bool {
    let modules = installed_in().join("node_modules/baileys");
    let required = std::env::var("FOREIGN_CLIENTS").is_ok_and(|value| value == "required");
    assert!(modules.exists() || !required, "{} is missing: run tests/foreign/install", modules.display());
    if !modules.exists() {
        eprintln!("SKIPPED: {} is missing; tests/foreign/install installs it", modules.display());
    }
    modules.exists()
}

/// A device on Baileys.
struct Baileys {
    child: Child,
    stdin: Option<ChildStdin>,
    told: Receiver<Value>,
}

impl Baileys {
    fn start(server: &WhatsApp, auth: &Path) -> Self {
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

    fn wait_for<T>(&self, what: &str, mut seen: impl FnMut(&Value) -> Option<T>) -> T {
        let until = Instant::now() + SOON;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let event = self.told.recv_timeout(left).unwrap_or_else(|_| panic!("waited in vain for {what}"));
            if let Some(found) = seen(&event) {
                return found;
            }
        }
    }

    fn say(&mut self, to: &str, text: &str) {
        let command = json!({"do": "text", "to": to, "text": text, "ask": 1});
        writeln!(self.stdin.as_mut().expect("open"), "{command}").expect("written");
        self.wait_for("an answer", |event| (event["event"] == "answer").then_some(()));
    }

    /// Ends it in good order: its state is on the disk.
    fn leave(mut self) {
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

/// Contract: C4, W6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_of_baileys_goes_on_here_without_a_scan_and_without_a_lost_ratchet() {
    if !installed() {
        return;
    }
    let server = WhatsApp::start().await.expect("a simulator");
    let (owner, peer) = (server.phone("4915100000001"), server.phone("4915100000002"));
    let auth = tempfile::tempdir().expect("a directory");
    let mut before = Baileys::start(&server, auth.path());
    let code = before
        .wait_for("a code", |event| event["code"].as_str().filter(|_| event["event"] == "code").map(str::to_owned));
    owner.scan(&code).expect("scanned");
    before.wait_for("open", |event| (event["event"] == "open").then_some(()));
    for n in 0..3 {
        let text = format!("to baileys {n}");
        peer.say(owner.number(), &text).await.expect("sent");
        before.wait_for(&text, |event| (event["text"] == *text).then_some(()));
        before.say(&peer.jid(), &format!("from baileys {n}"));
    }
    peer.wait_for_text("from baileys 2", SOON).await.expect("shown");
    before.leave();
    // It comes while nobody is there: the ratchet that opens it is the imported one.
    peer.say(owner.number(), "between the two").await.expect("sent");

    let home = Home::new().with("SHARDVISOR_WHATSAPP_ENDPOINT", server.url()).with("SHARDVISOR_WHATSAPP_PRE_KEYS", 20);
    let channel = home.ok(&["channel", "add", "whatsapp", "--handler", "echo"]).trim().to_owned();
    home.ok(&["channel", "disable", &channel]);
    home.ok(&["session", "import", &channel, "--baileys", auth.path().to_str().expect("UTF-8")]);
    home.ok(&["channel", "enable", &channel]);
    let mut daemon = home.start();
    daemon.wait_ready();
    peer.wait_for_text("between the two", SOON).await.expect("an echo of what came meanwhile");
    peer.say(owner.number(), "hello there").await.expect("sent");
    peer.wait_for_text("hello there", SOON).await.expect("an echo");
    assert_eq!(owner.devices().len(), 1, "it is the same device");
    assert!(peer.unreadable().is_empty(), "{:?}", peer.unreadable());
    assert!(daemon.terminate().success());
}
