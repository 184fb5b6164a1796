//! Baileys on Node, a client that nobody here wrote: what it refuses is a fault of the simulator.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU64, Ordering},
};

use base64::Engine as _;
use serde_json::{Value, json};
use simulators::whatsapp::{Address, Attachment, End, History, Kind, Phone, WhatsApp};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Mutex,
};
use whatsapp_rust::{media, prelude::*, upload::UploadOptions, wacore::download::MediaType};

use crate::device::{Device, SOON};

/// Where `tests/foreign/install` puts the foreign clients.
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

/// A directory of its own, gone with the test.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("baileys-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&home).expect("a directory");
        Self(home)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Pipes {
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    /// What was told and not asked for yet.
    told: Vec<Value>,
    asked: u64,
}

/// A device on Baileys.
struct Baileys {
    pipes: Mutex<Pipes>,
    child: Child,
}

impl Baileys {
    fn start(whatsapp: &WhatsApp, home: &Home) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreign/whatsapp/device.mjs");
        let root = whatsapp.root_key().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut child = Command::new("node")
            .arg(script)
            .env("WHATSAPP_URL", whatsapp.url())
            .env("WHATSAPP_MEDIA_URL", whatsapp.media_url())
            .env("WHATSAPP_ROOT_KEY", root)
            .env("AUTH_DIR", &home.0)
            .env("FOREIGN_DIR", installed_in())
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node starts");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { pipes: Mutex::new(Pipes { stdin, stdout, told: Vec::new(), asked: 0 }), child }
    }

    /// A device of this phone, linked by a scanned code and logged in.
    async fn of(whatsapp: &WhatsApp, phone: &Phone, home: &Home) -> (Self, Address) {
        let device = Self::start(whatsapp, home);
        let code = device.wait_for("a code", |event| (event["event"] == "code").then(|| event["code"].clone())).await;
        let address = phone.scan(code.as_str().expect("a code")).expect("linked");
        assert_eq!(device.closed().await, 515, "linking ends with a restart");
        device.open().await;
        (device, address)
    }

    /// Waits for the end of its connection. The code that it has for that.
    async fn closed(&self) -> Value {
        self.wait_for("the end", |event| (event["event"] == "close").then(|| event["code"].clone())).await
    }

    async fn open(&self) {
        self.wait_for("an open connection", |event| (event["event"] == "open").then_some(())).await;
    }

    /// Waits for an event, and takes it.
    async fn wait_for<T>(&self, what: &str, mut seen: impl FnMut(&Value) -> Option<T>) -> T {
        let mut pipes = self.pipes.lock().await;
        let mut place = 0;
        let wait = async {
            loop {
                while let Some(event) = pipes.told.get(place) {
                    if let Some(found) = seen(event) {
                        pipes.told.remove(place);
                        return found;
                    }
                    place += 1;
                }
                let line = pipes.stdout.next_line().await.expect("readable");
                let line = line.unwrap_or_else(|| panic!("node ended before {what}"));
                pipes.told.push(serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}")));
            }
        };
        let found = tokio::time::timeout(SOON, wait).await.ok();
        found.unwrap_or_else(|| panic!("waited in vain for {what}; there was {:#?}", pipes.told))
    }

    /// Lets it do something. What came of it.
    async fn ask(&self, command: Value) -> Value {
        let ask = {
            let mut pipes = self.pipes.lock().await;
            pipes.asked += 1;
            let mut asked = command.clone();
            asked["ask"] = json!(pipes.asked);
            pipes.stdin.write_all(format!("{asked}\n").as_bytes()).await.expect("written");
            pipes.asked
        };
        let answer = |event: &Value| (event["event"] == "answer" && event["ask"] == ask).then(|| event.clone());
        let answer = self.wait_for(&format!("the answer to {command}"), answer).await;
        assert_eq!(answer["failed"], Value::Null, "{command}");
        answer["value"].clone()
    }

    async fn say(&self, to: &str, text: &str) -> String {
        self.ask(json!({"do": "text", "to": to, "text": text})).await.as_str().expect("an id").to_owned()
    }

    /// Waits for a message with this text that it could read.
    async fn text(&self, text: &str) -> Value {
        self.wait_for(&format!("the text {text:?}"), |event| {
            let failed = event["event"] == "message" && event["failed"] != Value::Null;
            assert!(!failed, "unreadable: {event}");
            (event["event"] == "message" && event["text"] == text).then(|| event.clone())
        })
        .await
    }

    async fn end(mut self) {
        // The end of its input is its sign to leave; what it still tells has to go somewhere.
        let Pipes { stdin, stdout: _told, .. } = self.pipes.into_inner();
        drop(stdin);
        let ended = tokio::time::timeout(SOON, self.child.wait()).await.expect("it ends in time").expect("waited");
        assert!(ended.success(), "{ended}");
    }
}

fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|place| u8::try_from(place * 11 % 253).unwrap_or_default()).collect()
}

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn baileys_links_logs_in_again_and_talks_with_a_phone() {
    if !installed() {
        return;
    }
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let home = Home::new();
    let (device, address) = Baileys::of(&whatsapp, &alice, &home).await;
    bob.say(alice.number(), "hello baileys").await.expect("written");
    device.text("hello baileys").await;
    let id = device.say(&bob.jid(), "hello phone").await;
    let read = bob.wait_for_text("hello phone", SOON).await.expect("read");
    assert_eq!((read.id, &read.from), (id, &address));
    alice.wait_for_text("hello phone", SOON).await.expect("a copy on its own phone");
    // Before that, it would wait for its history after the next login.
    device.wait_for("the first sync", |event| (event["event"] == "synced").then_some(())).await;
    // Nor does it read twice what it could not acknowledge.
    let acknowledged = || (whatsapp.waiting_for(&address) == 0).then_some(());
    whatsapp.wait_for("an empty mailbox", SOON, acknowledged).await.expect("empty");
    device.end().await;

    bob.say(alice.number(), "while you were away").await.expect("written");
    let device = Baileys::start(&whatsapp, &home);
    device.open().await;
    device.text("while you were away").await;
    device.say(&bob.jid(), "back again").await;
    bob.wait_for_text("back again", SOON).await.expect("read");
    assert_eq!(bob.unreadable(), []);
    assert_eq!(alice.unreadable(), []);
    device.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn baileys_and_a_device_on_rust_talk_in_private_in_groups_and_with_files() {
    if !installed() {
        return;
    }
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let home = Home::new();
    let (node, _) = Baileys::of(&whatsapp, &alice, &home).await;
    let (rust, _) = Device::of(&whatsapp, &bob).await;

    for turn in 1..=3 {
        let text = format!("to rust {turn}");
        node.say(&bob.jid(), &text).await;
        rust.text(&text).await;
        let text = format!("to node {turn}");
        rust.say(&alice.jid(), &text).await;
        node.text(&text).await;
    }

    let group = node.ask(json!({"do": "create", "subject": "both", "members": [bob.jid()]})).await;
    let group = group.as_str().expect("a group");
    for turn in 1..=3 {
        let text = format!("to the group from node {turn}");
        node.say(group, &text).await;
        rust.text(&text).await;
        bob.wait_for_text(&text, SOON).await.expect("read");
        let text = format!("to the group from rust {turn}");
        rust.say(group, &text).await;
        let heard = node.text(&text).await;
        assert_eq!(heard["chat"], group);
        alice.wait_for_text(&text, SOON).await.expect("read");
    }
    assert_eq!(node.ask(json!({"do": "groups"})).await, json!(["both"]));

    let picture = noise(150_000);
    node.ask(json!({"do": "image", "to": bob.jid(), "bytes": base64(&picture), "caption": "from node"})).await;
    let image = rust.message().await.message.image_message.as_option().expect("an image").clone();
    assert_eq!(rust.client().download(&image).await.expect("fetched"), picture);
    let uploaded = rust.client().upload(noise(90_000), MediaType::Image, UploadOptions::new()).await.expect("uploaded");
    let options = media::ImageOptions { caption: Some("from rust".to_owned()), ..Default::default() };
    let to: Jid = alice.jid().parse().expect("an address");
    rust.client().send_message(to, media::image_message(uploaded, options)).await.expect("sent");
    assert_eq!(node.text("from rust").await["bytes"], base64(&noise(90_000)));

    assert_eq!(whatsapp.unknown_queries(), Vec::<String>::new());
    rust.shut_down().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn baileys_takes_history_files_pictures_and_receipts_of_phones() {
    if !installed() {
        return;
    }
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    alice.remember(vec![History::of(&bob.jid(), "Bob", 25)]);
    let home = Home::new();
    let (node, _) = Baileys::of(&whatsapp, &alice, &home).await;
    let history = |event: &Value| (event["event"] == "history" && event["messages"] != 0).then(|| event.clone());
    let history = node.wait_for("the history", history).await;
    assert_eq!((&history["chats"], &history["messages"]), (&json!([bob.jid()]), &json!(25)));

    bob.attach(alice.number(), &Attachment::new(Kind::Document, noise(9000)).with_caption("a file"))
        .await
        .expect("sent");
    assert_eq!(node.text("a file").await["bytes"], base64(&noise(9000)));
    node.ask(json!({"do": "document", "to": bob.jid(), "bytes": base64(&noise(4000)), "name": "note.txt"})).await;
    let received =
        bob.wait_for("a document", SOON, |message| message.message.document_message.is_set().then(|| message.clone()));
    assert_eq!(bob.open(&received.await.expect("shown")).expect("opened"), noise(4000));

    // A file that is gone from the host is uploaded again by the phone, unasked by the person.
    let attachment = Attachment::new(Kind::Document, noise(7000)).with_caption("an old file");
    let fault = whatsapp.fault(simulators::whatsapp::On::to_device("message"), simulators::whatsapp::Fault::Lost, 1);
    bob.attach(alice.number(), &attachment).await.expect("sent");
    whatsapp.wait_for("the loss", SOON, || (whatsapp.fired(fault) == 1).then_some(())).await.expect("lost");
    whatsapp.expire_all_media();
    node.ask(json!({"do": "known", "numbers": [bob.number()]})).await;
    whatsapp.end(&alice.devices()[0], End::Closed);
    assert_eq!(node.closed().await, 428);
    node.ask(json!({"do": "reconnect"})).await;
    node.open().await;
    assert_eq!(node.text("an old file").await["bytes"], base64(&noise(7000)));

    let asked = json!({"do": "picture", "of": bob.jid()});
    bob.set_picture(b"a face");
    let url = node.ask(asked).await;
    assert!(url.as_str().is_some_and(|url| url.contains("/v/pps/")), "{url}");
    let known = node.ask(json!({"do": "known", "numbers": [bob.number(), "15559999999"]})).await;
    assert_eq!(known, json!([bob.jid()]));

    let id = bob.say(alice.number(), "read me").await.expect("written");
    node.text("read me").await;
    bob.wait_for_receipt(&id, None, SOON).await.expect("delivered");
    node.ask(json!({"do": "read", "chat": bob.jid(), "id": id})).await;
    bob.wait_for_receipt(&id, Some("read"), SOON).await.expect("read");
    let id = node.say(&bob.jid(), "and you").await;
    let shown = bob.wait_for_text("and you", SOON).await.expect("shown");
    bob.read(&shown);
    node.wait_for("reading", |event| (event["id"] == id.as_str() && event["status"] == 4).then_some(())).await;
    node.ask(json!({"do": "react", "to": bob.jid(), "id": shown.id, "emoji": "👍"})).await;
    bob.wait_for("a reaction", SOON, |message| message.message.reaction_message.is_set().then_some(()))
        .await
        .expect("shown");
    assert_eq!(whatsapp.unknown_queries(), Vec::<String>::new());
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn baileys_links_by_digits() {
    if !installed() {
        return;
    }
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let home = Home::new();
    let node = Baileys::start(&whatsapp, &home);
    node.wait_for("a code", |event| (event["event"] == "code").then_some(())).await;
    node.ask(json!({"do": "digits", "number": alice.number(), "digits": "ABCD2345"})).await;
    whatsapp.wait_for("it asks", SOON, || alice.is_asked_for_digits().then_some(())).await.expect("asked");
    alice.link("ABCD2345", SOON).await.expect("linked");
    node.open().await;
    node.say(&bob.jid(), "linked by digits").await;
    bob.wait_for_text("linked by digits", SOON).await.expect("read");
    node.end().await;
}

/// Every end that the simulator knows has the code that Baileys' users write their handlers for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn baileys_names_each_end_by_its_code() {
    if !installed() {
        return;
    }
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let alice = whatsapp.phone("15550000001");
    let home = Home::new();
    let (node, address) = Baileys::of(&whatsapp, &alice, &home).await;
    let ends = [
        (End::Closed, 428),
        (End::Replaced, 440),
        (End::Error(503), 503),
        (End::Unnamed, 500),
        (End::Failure(403), 403),
        (End::Removed, 401),
    ];
    for (end, code) in ends {
        whatsapp.wait_for_device(&address, SOON).await.expect("online");
        whatsapp.end(&address, end);
        assert_eq!(node.closed().await, code, "{end:?}");
        if end != End::Removed {
            node.ask(json!({"do": "reconnect"})).await;
            node.open().await;
        }
    }
    node.end().await;
}
