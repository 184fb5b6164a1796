//! A box is lost: its linked device goes on elsewhere from the bucket. The bucket is kept by moto's S3, the leases by a Redis.

#[path = "support/endpoint.rs"]
mod endpoint;
mod support;

#[path = "support/servers.rs"]
mod servers;
#[path = "support/stage.rs"]
mod stage;

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use endpoint::{Events, endpoint};
use simulators::whatsapp::WhatsApp;
use stage::Redis;
use support::{Home, signal, wait_for};

/// How long anything may take.
const SOON: Duration = Duration::from_secs(60);

fn codes(events: &Events) -> Vec<String> {
    let all = events.lock().expect("events");
    let codes = all.iter().filter(|event| event["type"] == "channel.pairing_code");
    codes.filter_map(|event| event["data"]["code"].as_str().map(str::to_owned)).collect()
}

/// A server that speaks S3.
struct S3 {
    child: Child,
    url: String,
}

impl S3 {
    /// `None`, said aloud, where it is not installed.
    async fn start() -> Option<Self> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target");
        let python = target.join("foreign/venv/bin/python");
        let mut imports = Command::new(&python);
        let there = imports.args(["-c", "import moto.server"]).output().is_ok_and(|output| output.status.success());
        let required = std::env::var("FOREIGN_CLIENTS").is_ok_and(|value| value == "required");
        assert!(there || !required, "{} has no moto: run tests/foreign/install", python.display());
        if !there {
            eprintln!("SKIPPED: {} has no moto; tests/foreign/install installs it", python.display());
            return None;
        }
        let mut child = Command::new(python)
            .args(["-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        let url = lines.find_map(|line| Some(line.split_once("Running on ")?.1.trim().to_owned())).expect("a port");
        std::thread::spawn(move || lines.for_each(drop));
        let made = reqwest::Client::new().put(format!("{url}/snapshots")).send().await.expect("answered");
        assert!(made.status().is_success(), "{made:?}");
        Some(Self { child, url })
    }

    /// The names of what lies in the bucket.
    async fn names(&self) -> Vec<String> {
        let url = format!("{}/snapshots?list-type=2", self.url);
        let listed = reqwest::get(url).await.expect("answered").text().await.expect("text");
        let names = listed.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>"));
        names.map(|(name, _)| name.to_owned()).collect()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A box of the fleet.
fn a_box(name: &str, server: &WhatsApp, s3: &S3, redis: &Redis, events: &str) -> Home {
    let home = Home::new();
    let secret: PathBuf = home.dir.path().join("s3-secret");
    std::fs::write(&secret, "anything").expect("written");
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).expect("set");
    home.with("SHARD_COUNT", 1)
        .with("BOT_WORKER_WORKER_ID", name)
        .with("SHARDVISOR_REGISTRY_URL", redis.url())
        .with("SHARDVISOR_WHATSAPP_ENDPOINT", server.url())
        .with("SHARDVISOR_WHATSAPP_PRE_KEYS", 20)
        .with("SHARDVISOR_EVENTS_URL", events)
        .with("SHARDVISOR_SESSIONS_SNAPSHOTS", "s3://snapshots/fleet")
        .with("SHARDVISOR_SESSIONS_SNAPSHOT_LAG", "1s")
        .with("SHARDVISOR_SESSIONS_S3_ENDPOINT", &s3.url)
        .with("SHARDVISOR_SESSIONS_S3_ACCESS_KEY_ID", "fleet")
        .with("SHARDVISOR_SESSIONS_S3_SECRET_FILE", secret.display())
}

/// Contract: C1, C4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_of_a_lost_box_goes_on_elsewhere_from_the_bucket_and_nobody_moves_it_meanwhile() {
    let Some(s3) = S3::start().await else { return };
    let (redis, server) = (Redis::start(), WhatsApp::start().await.expect("a simulator"));
    let (url, events) = endpoint().await;
    let (owner, peer) = (server.phone("4915100000001"), server.phone("4915100000002"));

    let first = a_box("first", &server, &s3, &redis, &url);
    let channel = first.ok(&["channel", "add", "whatsapp", "--handler", "echo"]).trim().to_owned();
    let mut daemon = first.start();
    daemon.wait_ready();
    let code = wait_for("a code", SOON, || codes(&events).pop());
    owner.scan(&code).expect("scanned");
    wait_for("connected", SOON, || {
        let all = events.lock().expect("events");
        all.iter().any(|event| event["data"]["state"] == "connected").then_some(())
    });
    peer.say(owner.number(), "good morning").await.expect("sent");
    peer.wait_for_text("good morning", SOON).await.expect("an echo");
    let prefix = format!("fleet/{channel}/");
    let began = std::time::Instant::now();
    loop {
        let names = s3.names().await;
        assert!(names.iter().all(|name| name.starts_with(&prefix)), "{names:?}");
        if !names.is_empty() {
            break;
        }
        assert!(began.elapsed() < SOON, "no snapshot came");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let shown = codes(&events).len();
    signal(daemon.pid(), 9);
    daemon.wait_exit(SOON);

    let second = a_box("second", &server, &s3, &redis, &url);
    std::fs::create_dir_all(second.data_dir()).expect("made");
    std::fs::set_permissions(second.data_dir(), PermissionsExt::from_mode(0o700)).expect("set");
    std::fs::copy(first.data_dir().join("secret.key"), second.data_dir().join("secret.key")).expect("copied");
    second.ok(&["channel", "add", "whatsapp", "--handler", "echo", "--id", &channel]);
    let mut daemon = second.start();
    daemon.wait_ready();
    wait_for("the news that it was rolled back", SOON, || {
        let all = events.lock().expect("events");
        all.iter().any(|event| event["data"]["update"] == "session_rolled_back").then_some(())
    });
    peer.say(owner.number(), "good evening").await.expect("sent");
    peer.wait_for_text("good evening", SOON).await.expect("an echo");
    assert_eq!((codes(&events).len(), owner.devices().len()), (shown, 1), "nobody had to scan");

    // What is left of the first box must not touch the session while the second one holds it.
    first.ok(&["channel", "disable", &channel]);
    let refused = first.run(&["session", "delete", &channel]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("still held by second"), "{said}");
    assert!(!s3.names().await.is_empty(), "the snapshots are still there");
    assert!(daemon.terminate().success());
}
