//! Slack's own clients accept the Slack simulator; an echo bot on Bolt and the daemon leave the same conversation.

mod support;

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use simulators::slack::{ALWAYS, AppHandle, Fault, On, Slack, script};

const SOON: Duration = Duration::from_secs(30);

fn installed_in() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").join("foreign")
}

/// Whether Bolt is there. Its absence is said aloud; where `FOREIGN_CLIENTS=required` it is a failure.
fn installed() -> bool {
    let modules = installed_in().join("node_modules/@slack/bolt");
    let required = std::env::var("FOREIGN_CLIENTS").is_ok_and(|value| value == "required");
    assert!(modules.exists() || !required, "{} is missing: run tests/foreign/install", modules.display());
    if !modules.exists() {
        eprintln!("SKIPPED: {} is missing; tests/foreign/install installs it", modules.display());
    }
    modules.exists()
}

/// A client that runs; it ends with the test.
struct Running(Child);

fn spawn(script: &str, app: &AppHandle, env: &[(&str, &str)]) -> Running {
    let child = Command::new("node")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign").join(script))
        .env("SLACK_API_URL", app.slack().api_url())
        .env("SLACK_APP_TOKEN", app.app_token())
        .env("SLACK_BOT_TOKEN", app.bot_token())
        .env("FOREIGN_DIR", installed_in())
        .env("NO_PROXY", "127.0.0.1")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .spawn()
        .expect("the client starts");
    Running(child)
}

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

async fn conversation_with_bolt() -> Vec<String> {
    let slack = Slack::start().await.expect("a free port");
    let app = slack.add_app();
    let _running = spawn("slack_echo_bolt.mjs", &app, &[]);
    let record = script::play(&app, "U7", SOON).await.expect("the bot echoes");
    assert_eq!(app.repeats("D7"), [], "nothing is answered twice");
    record
}

/// The same conversation with `shardvisor run`.
async fn conversation_with_the_daemon() -> Vec<String> {
    let slack = Slack::start().await.expect("a free port");
    let app = slack.add_app();
    let home = support::Home::new()
        .with("SHARDVISOR_SLACK_API_URL", slack.api_url())
        .with("SHARDVISOR_SLACK_CHANNEL_MESSAGES_PER_SECOND", 100);
    home.add_slack(app.app_token(), app.bot_token(), "echo");
    let mut daemon = home.start();
    let record = script::play(&app, "U7", SOON).await.expect("the daemon echoes");
    assert_eq!(app.repeats("D7"), [], "nothing is answered twice");
    assert!(daemon.terminate().success());
    record
}

/// Contract: E2. The daemon's echo is the echo of a bot that others wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_leaves_the_same_conversation_as_an_echo_bot_on_bolt() {
    let daemon = conversation_with_the_daemon().await;
    assert_eq!(daemon.iter().filter(|line| line.starts_with("bot message")).count(), 8, "{daemon:#?}");
    if installed() {
        assert_eq!(daemon, conversation_with_bolt().await);
    }
}

/// Bolt's retries of its own are off: each refusal is told once.
#[tokio::test]
async fn slacks_web_client_reads_every_answer_and_refusal() {
    if !installed() {
        return;
    }
    let slack = Slack::start().await.expect("a free port");
    let app = slack.add_app();
    let said = app.dm("U7").say("hello");
    app.dm("U8").refuse(Some("is_archived"));
    app.dm("U9");
    slack.fault(On::app(&app).and_method("chat.postMessage").and_channel("D9"), Fault::TooMany(3), ALWAYS);
    assert!(spawn("slack_methods_web_api.mjs", &app, &[("DM_TS", &said)]).end().await.success());
}

/// Bolt stays connected through what a socket of the platform goes through.
#[tokio::test]
async fn bolt_comes_back_after_each_end_of_a_socket() {
    if !installed() {
        return;
    }
    let slack = Slack::start().await.expect("a free port");
    let app = slack.add_app();
    let _running = spawn("slack_echo_bolt.mjs", &app, &[]);
    let person = app.dm("U7");
    for (n, end) in [
        (|app: &AppHandle| app.disconnect("refresh_requested")) as fn(&AppHandle),
        AppHandle::close_sockets,
        AppHandle::reset_sockets,
    ]
    .into_iter()
    .enumerate()
    {
        app.wait_for_sockets(1, SOON).await.expect("a socket");
        let hellos = app.stats().hellos;
        end(&app);
        slack.wait_for("another socket", SOON, || (app.stats().hellos > hellos).then_some(())).await.expect("greeted");
        person.say(&format!("are you there after {n}?"));
        person.wait_for_answers(n + 1, SOON).await.expect("an answer");
    }
}
