//! Agents behind URLs: asked with a signature, and what they answer is shown, whatever dies meanwhile.

mod support;

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use simulators::telegram::{BotHandle, Telegram};
use support::{Home, signal, wait_for};

const SOON: Duration = Duration::from_secs(30);
const SECRET: &str = "4gent-hunter2";

/// An agent written in Python, as a user would.
struct Agent {
    child: Child,
    url: String,
}

impl Agent {
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/agent.py");
        let mut command = Command::new("python3");
        let mut child = command.arg(script).env("SECRET", SECRET).stdout(Stdio::piped()).spawn().expect("python3");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut port = String::new();
        lines.read_line(&mut port).expect("a port");
        // Nobody reads on: whoever fills a pipe waits.
        std::thread::spawn(move || lines.lines().count());
        Self { child, url: format!("http://127.0.0.1:{}/agent", port.trim()) }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn home(telegram: &Telegram) -> Home {
    let home = Home::new();
    std::fs::write(home.dir.path().join("agent-secret"), SECRET).expect("written");
    home.with("SHARD_COUNT", 2)
        .with("SHARDVISOR_TELEGRAM_API_URL", telegram.url())
        .with("SHARDVISOR_TELEGRAM_CHAT_MESSAGES_PER_SECOND", 100)
        .with("SHARDVISOR_TELEGRAM_BOT_MESSAGES_PER_SECOND", 1000)
}

fn add(home: &Home, bot: &BotHandle, handler: &str, more: &[&str]) -> String {
    let secret = home.dir.path().join("agent-secret");
    let mut args = vec!["channel", "add", "telegram", "--token-file", "-", "--handler", handler];
    if handler.starts_with("http") {
        args.extend(["--handler-secret-file", secret.to_str().expect("a path")]);
    }
    args.extend(more);
    let output = home.with_input(&args, bot.token());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

fn shown(bot: &BotHandle, chat: i64) -> Vec<String> {
    bot.user(chat).answers().iter().filter_map(|entry| entry.text.clone()).collect()
}

async fn wait_shown(bot: &BotHandle, chat: i64, expected: &[&str]) {
    let user = bot.user(chat);
    user.wait_for_answers(expected.len(), SOON).await.unwrap_or_else(|_| panic!("{:?}", shown(bot, chat)));
    assert_eq!(shown(bot, chat), expected);
}

/// Contract: E2. One answer, several, none; and another handler takes over at once, not when a cache grows old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_answers_once_several_times_or_not_at_all() {
    let (telegram, agent) = (Telegram::start().await.expect("a simulator"), Agent::start());
    let (home, bot) = (home(&telegram), telegram.add_bot());
    let channel = add(&home, &bot, &agent.url, &[]);
    let mut daemon = home.start();
    daemon.wait_ready();
    for text in ["hello", "nothing", "more", "bye"] {
        bot.user(1).say(text);
    }
    let answers = ["you said hello", "1 of 3", "2 of 3", "3 of 3", "you said bye"];
    wait_shown(&bot, 1, &answers).await;
    add(&home, &bot, "echo", &["--id", &channel, "--replace"]);
    let mut said = 0;
    let changed = wait_for("the other handler", Duration::from_secs(10), || {
        said += 1;
        bot.user(2).say("who");
        (wait_for("an answer", SOON, || shown(&bot, 2).get(said - 1).cloned()) == "who").then_some(said)
    });
    assert!(changed >= 1);
    assert!(!daemon.log().contains(SECRET) && !daemon.log().contains("you said"), "{}", daemon.log());
    assert!(daemon.terminate().success());
}

/// Contract: E1, E2, Q8. Killed at any moment between a question, its answer and the send, each is answered, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_question_is_answered_though_shards_are_killed_while_agents_think() {
    let (telegram, agent) = (Telegram::start().await.expect("a simulator"), Agent::start());
    let home = home(&telegram);
    let bots: Vec<_> = (0..4).map(|_| telegram.add_bot()).collect();
    bots.iter().for_each(|bot| {
        add(&home, bot, &agent.url, &[]);
    });
    let mut daemon = home.start();
    daemon.wait_ready();
    for round in 0..6 {
        for bot in &bots {
            for chat in [1, 2, 3] {
                for part in ["a", "b"] {
                    bot.user(chat).say(&format!("{round}{part}"));
                }
            }
        }
        // In the middle of it: some are answered by now, others not.
        wait_for("some answers", SOON, || {
            (bots.iter().map(|bot| shown(bot, 1).len()).sum::<usize>() > round * 2 * bots.len()).then_some(())
        });
        let before = daemon.shard_pid(round % 2);
        signal(before, 9);
        wait_for("its successor", SOON, || (daemon.shard_pid(round % 2) != before).then_some(()));
    }
    let expected: Vec<String> =
        (0..6).flat_map(|round| ["a", "b"].map(|part| format!("you said {round}{part}"))).collect();
    let mut doubled = 0;
    for bot in &bots {
        for chat in [1, 2, 3] {
            let distinct = || {
                let mut texts = shown(bot, chat);
                texts.dedup();
                texts
            };
            wait_for("all answers", SOON, || (distinct().len() >= expected.len()).then_some(()));
            assert_eq!(distinct(), expected, "in order");
            doubled += shown(bot, chat).len() - expected.len();
        }
    }
    // Telegram knows no idempotency key: a send on the wire at the kill may be shown again, and is on record before it is.
    assert!(doubled as u64 <= home.uncertain_records(), "{doubled} shown twice");
    assert!(daemon.terminate().success());
}
