//! The device on Baileys: one Node process, its state in files with a cache before the keys, as its documentation has it.

use std::{
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use serde_json::{Value, json};
use simulators::whatsapp::{Address, Phone, WhatsApp};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Device, SOON, other};

/// The device's state, and its process when it runs.
pub(super) struct Baileys {
    installed: PathBuf,
    state: TempDir,
    running: Option<Running>,
}

struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    told: UnboundedReceiver<Value>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    async fn wait_for<T>(&mut self, what: &str, mut seen: impl FnMut(&Value) -> Option<T>) -> io::Result<T> {
        let looking = async {
            while let Some(event) = self.told.recv().await {
                if let Some(found) = seen(&event) {
                    return Ok(found);
                }
            }
            Err(io::Error::other(format!("Baileys ended before {what}")))
        };
        tokio::time::timeout(SOON, looking).await.map_err(|_| io::Error::other(format!("no {what} from Baileys")))?
    }
}

impl Baileys {
    pub(super) fn new(installed: PathBuf) -> io::Result<Self> {
        Ok(Self { installed, state: tempfile::tempdir()?, running: None })
    }

    fn running(&mut self) -> io::Result<&mut Running> {
        self.running.as_mut().ok_or_else(|| io::Error::other("it does not run"))
    }
}

impl Device for Baileys {
    async fn start(&mut self, server: &WhatsApp) -> io::Result<u32> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/foreign/whatsapp/device.mjs");
        let root: String = server.root_key().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut child = Command::new("node")
            .arg(script)
            .env("WHATSAPP_URL", server.url())
            .env("WHATSAPP_MEDIA_URL", server.media_url())
            .env("WHATSAPP_ROOT_KEY", root)
            .env("AUTH_DIR", self.state.path())
            .env("CACHED_KEYS", "1")
            .env("FOREIGN_DIR", &self.installed)
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (tell, told) = unbounded_channel();
        std::thread::spawn(move || {
            let lines = stdout.map(|stdout| BufReader::new(stdout).lines().map_while(Result::ok));
            for line in lines.into_iter().flatten() {
                // Nobody listens any more once it is stopped.
                let _ = tell.send(serde_json::from_str(&line).unwrap_or_default());
            }
        });
        Ok(self.running.insert(Running { child, stdin, told }).child.id())
    }

    async fn stop(&mut self) -> io::Result<()> {
        if let Some(mut running) = self.running.take() {
            drop(running.stdin.take());
            running.child.wait()?;
        }
        Ok(())
    }

    async fn link(&mut self, server: &WhatsApp, owner: &Phone) -> io::Result<Address> {
        self.start(server).await?;
        let running = self.running()?;
        let code = |event: &Value| event["code"].as_str().filter(|_| event["event"] == "code").map(str::to_owned);
        let code = running.wait_for("code", code).await?;
        let device = owner.scan(&code).map_err(|error| other(&error))?;
        running.wait_for("open", |event| (event["event"] == "open").then_some(())).await?;
        server.wait_for_device(&device, SOON).await.map_err(|error| other(&error))?;
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        self.stop().await?;
        Ok(device)
    }

    async fn answer(&mut self, server: &WhatsApp, _: &Phone, people: &[Phone]) -> io::Result<()> {
        self.start(server).await?;
        let running = self.running()?;
        running.wait_for("open", |event| (event["event"] == "open").then_some(())).await?;
        for person in people {
            let command = json!({"do": "text", "to": person.jid(), "text": "hello?", "ask": 1});
            let Some(stdin) = running.stdin.as_mut() else { break };
            writeln!(stdin, "{command}")?;
            running.wait_for("answer", |event| (event["event"] == "answer").then_some(())).await?;
            person.wait_for_text("hello?", SOON).await.map_err(|error| other(&error))?;
        }
        self.stop().await
    }
}
