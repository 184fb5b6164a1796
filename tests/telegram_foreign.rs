//! Clients that nobody here wrote accept the Telegram simulator; echo bots on them and on the daemon leave the same
//! conversation.

mod support;

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use serde_json::json;
use simulators::{
    script,
    telegram::{ALWAYS, BotHandle, Fault, On, Telegram},
};

const SOON: Duration = Duration::from_secs(30);

/// A foreign client's script, ready to run.
struct Foreign {
    program: PathBuf,
    script: &'static str,
}

impl Foreign {
    /// On python-telegram-bot.
    fn python(script: &'static str) -> Option<Self> {
        Self::installed(installed_in().join("venv/bin/python"), script)
    }

    /// On telegraf.
    fn node(script: &'static str) -> Option<Self> {
        let modules = installed_in().join("node_modules/telegraf");
        modules.exists().then(|| Self { program: "node".into(), script }).or_else(|| missing(&modules))
    }

    fn installed(program: PathBuf, script: &'static str) -> Option<Self> {
        if program.exists() { Some(Self { program, script }) } else { missing(&program) }
    }

    fn spawn(&self, telegram: &Telegram, bot: &BotHandle) -> Running {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign").join(self.script);
        let child = Command::new(&self.program)
            .arg(script)
            .env("TELEGRAM_API_URL", telegram.url())
            .env("TELEGRAM_TOKEN", bot.token())
            .env("FOREIGN_DIR", installed_in())
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::null())
            .spawn()
            .expect("the client starts");
        Running(child)
    }
}

fn installed_in() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").join("foreign")
}

/// Says aloud that a client is missing; where `FOREIGN_CLIENTS=required` that is a failure.
fn missing(what: &Path) -> Option<Foreign> {
    let required = std::env::var("FOREIGN_CLIENTS").is_ok_and(|value| value == "required");
    assert!(!required, "{} is missing: run tests/foreign/install", what.display());
    eprintln!("SKIPPED: {} is missing; tests/foreign/install installs it", what.display());
    None
}

/// A client that runs; it ends with the test.
struct Running(Child);

impl Running {
    async fn end(mut self) -> ExitStatus {
        tokio::task::spawn_blocking(move || self.0.wait().expect("waited")).await.expect("no panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn start() -> (Telegram, BotHandle) {
    let telegram = Telegram::start().await.expect("a free port");
    let bot = telegram.add_bot();
    (telegram, bot)
}

async fn conversation_of(foreign: &Foreign) -> Vec<String> {
    let (telegram, bot) = start().await;
    let _running = foreign.spawn(&telegram, &bot);
    let record = script::play(&bot, 7, SOON).await.expect("the bot echoes");
    assert_eq!(bot.repeats(7), [], "nothing is answered twice");
    record
}

/// The same conversation with `shardvisor run`.
async fn conversation_of_the_daemon() -> Vec<String> {
    let (telegram, bot) = start().await;
    let home = support::Home::new()
        .with("SHARDVISOR_TELEGRAM_API_URL", telegram.url())
        .with("SHARDVISOR_TELEGRAM_CHAT_MESSAGES_PER_SECOND", 100);
    home.add_telegram(bot.token(), "echo");
    let mut daemon = home.start();
    let record = script::play(&bot, 7, SOON).await.expect("the daemon echoes");
    assert_eq!(bot.repeats(7), [], "nothing is answered twice");
    assert!(daemon.terminate().success());
    record
}

/// Contract: E2. The daemon's echo is the echo of bots that others wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_leaves_the_same_conversation_as_foreign_echo_bots() {
    let daemon = conversation_of_the_daemon().await;
    assert_eq!(daemon.iter().filter(|line| line.starts_with("bot message")).count(), 7, "{daemon:#?}");
    for foreign in [Foreign::python("telegram_echo_ptb.py"), Foreign::node("telegram_echo_telegraf.mjs")] {
        let Some(foreign) = foreign else { continue };
        assert_eq!(daemon, conversation_of(&foreign).await);
    }
}

#[tokio::test]
async fn two_foreign_echo_bots_leave_the_same_conversation() {
    let (Some(python), Some(node)) =
        (Foreign::python("telegram_echo_ptb.py"), Foreign::node("telegram_echo_telegraf.mjs"))
    else {
        return;
    };
    let (python, node) = tokio::join!(conversation_of(&python), conversation_of(&node));
    assert_eq!(python, node);
    assert_eq!(python.iter().filter(|line| line.starts_with("bot message")).count(), 7, "{python:#?}");
}

/// What the scripts of the methods expect to find.
fn furnish(telegram: &Telegram, bot: &BotHandle) {
    bot.user(7).say("hello");
    bot.user(8).block();
    bot.user(9);
    bot.migrate(-5, -1_000_000_000_005);
    telegram.fault(On::bot(bot).and_method("sendMessage").and_chat(9), Fault::too_many(3), ALWAYS);
    bot.push_update("quantum_message", &json!({"spin": 0.5}));
}

#[tokio::test]
async fn python_telegram_bot_reads_every_answer_and_refusal() {
    let Some(python) = Foreign::python("telegram_methods_ptb.py") else { return };
    let (telegram, bot) = start().await;
    furnish(&telegram, &bot);
    assert!(python.spawn(&telegram, &bot).end().await.success());
}

#[tokio::test]
async fn telegraf_reads_every_answer_and_refusal() {
    let Some(node) = Foreign::node("telegram_methods_telegraf.mjs") else { return };
    let (telegram, bot) = start().await;
    furnish(&telegram, &bot);
    assert!(node.spawn(&telegram, &bot).end().await.success());
}
