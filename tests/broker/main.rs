//! The daemon on RabbitMQ and Redis: from a producer to people and endpoints, through changes of the layout, beside a standby.

mod outage;
#[path = "../support/servers.rs"]
mod servers;
#[path = "../support/stage.rs"]
mod stage;
#[path = "../support/mod.rs"]
mod support;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use simulators::telegram::{BotHandle, Telegram};
use stage::{AMQP_PASSWORD, REDIS_PASSWORD, Stage};
use support::{Daemon, Home, signal, wait_for};

const SOON: Duration = Duration::from_secs(30);
const SECRET: &str = "s1gn-hunter2";

fn on_telegram(home: Home, telegram: &Telegram, shards: u32) -> Home {
    home.with("SHARD_COUNT", shards)
        .with("SHARDVISOR_TELEGRAM_API_URL", telegram.url())
        .with("SHARDVISOR_TELEGRAM_CHAT_MESSAGES_PER_SECOND", 100)
        .with("SHARDVISOR_TELEGRAM_BOT_MESSAGES_PER_SECOND", 1000)
}

fn send(channel: &str, chat: i64, text: impl ToString, id: &str) -> String {
    let job = json!({"name": "send", "id": id, "channel_id": channel,
        "data": {"chat_id": chat.to_string(), "text": text.to_string()}});
    format!("{job}\n")
}

/// What a chat was shown, in order.
fn shown(bot: &BotHandle, chat: i64) -> Vec<String> {
    bot.user(chat).answers().iter().filter_map(|entry| entry.text.clone()).collect()
}

/// The interpreter with the libraries that producers stand on.
fn python() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").join("foreign/venv/bin/python");
    if path.exists() {
        return Some(path);
    }
    let required = std::env::var("FOREIGN_CLIENTS").is_ok_and(|value| value == "required");
    assert!(!required, "{} is missing: run tests/foreign/install", path.display());
    eprintln!("SKIPPED: {} is missing; tests/foreign/install installs it", path.display());
    None
}

fn script(python: &Path, name: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python);
    command.arg(root.join("tests/foreign").join(name)).env("PYTHONPATH", root.join("clients/python/src"));
    command.env("SECRET", SECRET).stdout(Stdio::piped());
    command
}

/// An endpoint written in Python, as a user would.
struct Endpoint {
    child: Child,
    lines: BufReader<ChildStdout>,
    port: u16,
}

impl Endpoint {
    fn start(python: &Path) -> Self {
        let mut child = script(python, "endpoint.py").spawn().expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut port = String::new();
        lines.read_line(&mut port).expect("a port");
        Self { child, lines, port: port.trim().parse().expect("a port") }
    }

    /// What has come until `enough` says so.
    fn read(&mut self, enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        while !enough(&seen) {
            let mut line = String::new();
            self.lines.read_line(&mut line).expect("a line");
            seen.push(serde_json::from_str(&line).expect("JSON"));
        }
        seen
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Contract: Q1, Q2, E1, I3b, I4. Field report R23: no password is shown anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_producer_reaches_people_and_a_signed_endpoint_exactly_once() {
    let Some(python) = python() else { return };
    let (telegram, stage) = (Telegram::start().await.expect("a simulator"), Stage::set());
    let mut endpoint = Endpoint::start(&python);
    let home = on_telegram(stage.home(), &telegram, 2);
    let secret = home.dir.path().join("events-secret");
    std::fs::write(&secret, SECRET).expect("written");
    let home = home
        .with("SHARDVISOR_EVENTS_URL", format!("http://127.0.0.1:{}/events", endpoint.port))
        .with("SHARDVISOR_EVENTS_SECRET_FILE", secret.display());
    let bots: Vec<_> = (0..6).map(|_| telegram.add_bot()).collect();
    let channels: Vec<_> = bots.iter().map(|bot| home.add_telegram(bot.token(), "none")).collect();
    for bot in &bots {
        for chat in [1, 2] {
            bot.user(chat).say("hi");
        }
    }
    let mut daemon = home.start();
    daemon.wait_ready();

    let mut jobs = String::new();
    for n in 0..50 {
        for (at, channel) in channels.iter().enumerate() {
            jobs.push_str(&format!("{channel} {} {n} job-{at}-{n}\n", n % 2 + 1));
        }
    }
    let mut producer = script(&python, "produce.py")
        .env("AMQP_URL", stage.amqp_url())
        .env("REDIS_URL", stage.redis_url())
        .env("SHARD_COUNT", "2")
        .stdin(Stdio::piped())
        .spawn()
        .expect("started");
    producer.stdin.take().expect("piped").write_all(jobs.as_bytes()).expect("written");
    let produced = producer.wait_with_output().expect("ended");
    assert_eq!(String::from_utf8_lossy(&produced.stdout).trim(), "300");
    for bot in &bots {
        bot.user(1).say("hello");
    }
    let kind = |line: &Value| line["event"]["type"].as_str().unwrap_or_default().to_owned();
    // At least once: an event that comes again has the id by which it is known.
    let count =
        |lines: &[Value], wanted: &str| lines.iter().filter(|line| line["new"] == true && kind(line) == wanted).count();
    let mut lines =
        endpoint.read(|lines| count(lines, "job.done") >= 300 && count(lines, "message.received") >= 3 * bots.len());
    assert!(lines.iter().all(|line| line["signed"] == true), "{lines:#?}");
    lines.retain(|line| line["new"] == true);
    assert_eq!((count(&lines, "job.done"), count(&lines, "message.received")), (300, 3 * bots.len()));
    let done: BTreeSet<&str> = lines.iter().filter_map(|line| line["event"]["data"]["job_id"].as_str()).collect();
    assert_eq!(done.len(), 300, "each job is told of once");
    let mut seqs: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in &lines {
        let event = &line["event"];
        seqs.entry(event["channel_id"].as_str().expect("a channel"))
            .or_default()
            .push(event["seq"].as_u64().expect("a seq"));
    }
    for (channel, mut seqs) in seqs {
        seqs.sort_unstable();
        assert!(seqs.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{channel}: {seqs:?}");
    }
    for bot in &bots {
        for chat in [1, 2] {
            let expected: Vec<String> = (0..50).filter(|n| n % 2 + 1 == chat).map(|n: i64| n.to_string()).collect();
            assert_eq!(shown(bot, chat), expected);
        }
    }
    assert_eq!(home.ok(&["dead", "list"]), "");
    silent_about_passwords(&daemon, &home);
    assert!(daemon.terminate().success());
}

fn silent_about_passwords(daemon: &Daemon, home: &Home) {
    let mut seen = vec![
        ("the log".to_owned(), daemon.log()),
        ("/metrics".to_owned(), daemon.get("/metrics").expect("metrics").1),
        ("/status".to_owned(), daemon.get("/status").expect("status").1),
        ("check-config".to_owned(), home.ok(&["check-config", "--show"])),
    ];
    for pid in support::children(daemon.pid()).into_iter().chain([daemon.pid()]) {
        for file in ["cmdline", "environ"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            seen.push((file.to_owned(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    for file in support::files_below(&home.data_dir()) {
        let bytes = std::fs::read(&file).unwrap_or_default();
        seen.push((file.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    for (place, text) in seen {
        for secret in [AMQP_PASSWORD, REDIS_PASSWORD, SECRET] {
            assert!(!text.contains(secret), "{place} shows {secret}");
        }
    }
    assert!(daemon.log().contains("queue amqp://127.0.0.1:"), "the layout names the broker: {}", daemon.log());
}

/// Contract: Q6, Q7. Field report R34. Jobs that lie in the queues of the layout before are done before those of the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_stranded_or_overtaken_when_the_shard_count_changes_in_either_direction() {
    let (telegram, stage) = (Telegram::start().await.expect("a simulator"), Stage::set());
    let home = on_telegram(stage.home(), &telegram, 1);
    let bots: Vec<_> = (0..8).map(|_| telegram.add_bot()).collect();
    let channels: Vec<_> = bots.iter().map(|bot| home.add_telegram(bot.token(), "none")).collect();
    // Nobody can be written to who has not written first.
    bots.iter().for_each(|bot| {
        bot.user(1).say("hi");
    });
    let Some(python) = python() else { return };
    let others = OtherQueues::make(&python, &stage);
    let mut told: HashMap<usize, Vec<String>> = HashMap::new();
    let mut forwarded = 0.0;
    // The queues are there from the first layout on.
    let mut daemon = home.start();
    daemon.wait_ready();
    assert!(daemon.terminate().success());
    for (round, pair) in [1_u32, 2, 3, 2, 1].windows(2).enumerate() {
        let (before, after) = (pair[0].to_string(), pair[1].to_string());
        let mut publish = |part: &str, count: &str| {
            let mut jobs = String::new();
            for n in 0..12 {
                for (at, channel) in channels.iter().enumerate() {
                    let text = format!("{round} {part} {n}");
                    jobs.push_str(&send(channel, 1, &text, &format!("{round}-{part}-{at}-{n}")));
                    told.entry(at).or_default().push(text);
                }
            }
            home.with_input(&["send", "--json", "--shard-count", count], &jobs)
        };
        let output = publish("old", &before);
        assert!(output.status.success(), "{output:?}");
        let mut command = home.command(&["run", "--shard-count", &after]);
        let log = std::fs::File::create(home.dir.path().join(format!("round-{round}"))).expect("a log");
        let _ = std::fs::remove_file(home.data_dir().join("health.port"));
        let child = command.stdout(log.try_clone().expect("a handle")).stderr(log).spawn().expect("started");
        let daemon = Running { child, home: &home, log: home.dir.path().join(format!("round-{round}")) };
        // Producers are refused until the new layout is published, and write by it from then on.
        wait_for("the new layout", SOON, || {
            stage.redis().ask("GET shardvisor:layout").contains(&format!("\"shard_count\":{after},")).then_some(())
        });
        wait_for("all shards of it", SOON, || (daemon.shards_that_counted() == pair[1]).then_some(()));
        let output = publish("new", &after);
        assert!(output.status.success(), "{output:?}");
        for (at, bot) in bots.iter().enumerate() {
            let all = bot.user(1).wait_for_answers(told[&at].len(), SOON).await;
            all.unwrap_or_else(|_| {
                panic!("round {round}: {:?} of {}\n{}", shown(bot, 1).len(), told[&at].len(), daemon.log())
            });
            assert_eq!(shown(bot, 1), told[&at], "round {round}: {}", daemon.log());
        }
        forwarded += daemon.forwarded();
        daemon.end();
    }
    assert!(forwarded > 0.0, "what moved is counted");
    others.are_as_they_were();
}

/// Queues of the same broker that are none of ours, however much their names look like it.
struct OtherQueues<'a> {
    stage: &'a Stage,
    before: BTreeSet<String>,
}

impl<'a> OtherQueues<'a> {
    const NAMES: [&'static str; 6] =
        ["whatsapp_events", "whatsapp-x", "whatsapp-01", "whatsapp-7.backup", "whatsapp_media-", "orders-3"];

    fn make(python: &Path, stage: &'a Stage) -> Self {
        let mut made = script(python, "queues.py");
        made.env("AMQP_URL", stage.amqp_url()).args(Self::NAMES);
        assert!(made.status().expect("ran").success());
        let this = Self { stage, before: BTreeSet::new() };
        let before = this.lines();
        assert_eq!(before.len(), Self::NAMES.len());
        Self { before, ..this }
    }

    /// Their lines in the broker's list: messages, consumers, arguments.
    fn lines(&self) -> BTreeSet<String> {
        let list = self.stage.asked(&["list_queues", "name", "messages", "consumers", "type", "arguments"]);
        let ours = |line: &&str| Self::NAMES.iter().any(|name| line.split_whitespace().next() == Some(name));
        list.lines().filter(ours).map(str::to_owned).collect()
    }

    fn are_as_they_were(&self) {
        assert_eq!(self.lines(), self.before);
    }
}

/// A daemon that was started by hand.
struct Running<'a> {
    child: Child,
    home: &'a Home,
    log: PathBuf,
}

impl Running<'_> {
    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn forwarded(&self) -> f64 {
        let port = std::fs::read_to_string(self.home.data_dir().join("health.port")).expect("a port");
        let port = port.trim().parse().expect("a port");
        let (_, body) = support::http_get(port, "/metrics", Duration::from_secs(5)).expect("metrics");
        let samples = body.lines().filter(|line| line.starts_with("shardvisor_jobs_forwarded_total{"));
        samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Shards that have counted what lay in their queues: they claim their channels afterwards.
    fn shards_that_counted(&self) -> u32 {
        self.log().lines().filter(|line| line.contains(" the first claim pass is done")).count() as u32
    }

    fn end(mut self) {
        signal(self.child.id(), 15);
        assert!(self.child.wait().expect("ended").success(), "{}", self.log());
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Contract: C0, C1, Q9. The same slot on a second box waits, and takes over when the first box is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_box_is_a_warm_standby_and_takes_over_when_the_first_dies() {
    let (telegram, stage) = (Telegram::start().await.expect("a simulator"), Stage::set());
    let bot = telegram.add_bot();
    bot.user(7).say("hi");
    let first = on_telegram(stage.home(), &telegram, 1).with("WORKER_ID", "first");
    let second = on_telegram(stage.home(), &telegram, 1).with("WORKER_ID", "second");
    let channel = first.add_telegram(bot.token(), "none");
    let add = ["channel", "add", "telegram", "--token-file", "-", "--handler", "none", "--id", &channel];
    assert!(second.with_input(&add, bot.token()).status.success());

    let mut owner = first.start();
    owner.wait_ready();
    let mut standby = second.start();
    wait_for("the standby to wait", SOON, || {
        let (code, body) = standby.get("/readyz")?;
        (code == 503 && body.contains("held by first")).then_some(())
    });
    first.ok(&["send", &channel, "7", "one", "--id", "one"]);
    // Shown, and noted as shown: else it would rightly be sent again.
    wait_for("the job to be done", SOON, || {
        owner
            .metric("shardvisor_jobs_total")
            .iter()
            .any(|(labels, count)| labels.contains("done") && *count == 1.0)
            .then_some(())
    });
    assert_eq!(shown(&bot, 7), ["one"]);

    signal(owner.pid(), 9);
    let _ = owner.child.wait();
    second.ok(&["send", &channel, "7", "two", "--id", "two"]);
    // What was done is known here too.
    second.ok(&["send", &channel, "7", "one", "--id", "one"]);
    standby.wait_ready();
    second.ok(&["send", &channel, "7", "three", "--id", "three"]);
    bot.user(7).wait_for_answers(3, SOON).await.expect("all three");
    assert_eq!(shown(&bot, 7), ["one", "two", "three"]);
    assert!(standby.terminate().success());
}
