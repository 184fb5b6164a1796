//! Slack from outside: the real binary against the simulator.

mod support;

use std::time::Duration;

use serde_json::json;
use simulators::{
    slack::{AppHandle, Greeting, Retries, Slack},
    traffic::{Plan, SlackApps, Traffic},
};
use support::{Daemon, Home, alive, signal, wait_for};

const SOON: Duration = Duration::from_secs(30);

struct Stage {
    slack: Slack,
    apps: Vec<AppHandle>,
    home: Home,
}

async fn stage(apps: usize, shards: u32) -> Stage {
    let slack = Slack::start().await.expect("a simulator");
    // The platform's minutes as tenths of seconds.
    let after = [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(500)];
    slack.retries(Retries { ack_within: Duration::from_secs(3), after });
    let home = Home::new()
        .with("SHARD_COUNT", shards)
        .with("SHARDVISOR_SLACK_API_URL", slack.api_url())
        .with("SHARDVISOR_SLACK_CHANNEL_MESSAGES_PER_SECOND", 100)
        .with("BOT_WORKER_STARTUP_JITTER_MAX", "0s");
    let apps: Vec<_> = (0..apps).map(|_| slack.add_app()).collect();
    for app in &apps {
        home.add_slack(app.app_token(), app.bot_token(), "echo");
    }
    Stage { slack, apps, home }
}

impl Stage {
    async fn start(&self) -> Daemon {
        let mut daemon = self.home.start();
        daemon.wait_ready();
        self.all_connected().await;
        daemon
    }

    async fn all_connected(&self) {
        self.slack.wait_for_apps(self.apps.len(), SOON).await.expect("all apps connect");
    }

    /// Returns when so many more messages were sent by the bots.
    async fn chat(&self, messages: u64) {
        let sent = || self.apps.iter().map(|app| app.stats().messages_out).sum::<u64>();
        let goal = sent() + messages;
        let reached = self.slack.wait_for("messages", SOON, || (sent() >= goal).then_some(()));
        reached.await.expect("the conversations go on");
    }
}

/// Contract: P5, Q8, E1. Killed between "stored" and "acknowledged", between the answer and the send, anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_shards_lose_no_event_of_slack_and_answer_twice_only_what_they_recorded() {
    let stage = stage(12, 2).await;
    let mut daemon = stage.start().await;
    let plan = Plan { grace: Duration::from_secs(30), ..Plan::at_rate(3, 100.0) };
    let traffic = Traffic::start(vec![Box::new(SlackApps::new(&stage.slack, &stage.apps))], plan, |_| {});
    stage.chat(60).await;
    for round in 0..4 {
        let pid = daemon.shard_pid(round % 2);
        signal(pid, 9);
        wait_for("the shard's death", Duration::from_secs(5), || (!alive(pid)).then_some(()));
        stage.all_connected().await;
        stage.chat(60).await;
    }
    let summary = traffic.stop().await;
    assert!(daemon.terminate().success());
    let uncertain = stage.home.uncertain_records();
    println!("{summary:?}, uncertain: {uncertain}");
    assert!(summary.received > 100, "hardly any traffic: {summary:?}");
    assert_eq!((summary.lost, summary.out_of_order), (0, 0), "{summary:?}");
    assert!(summary.duplicated <= uncertain, "answered twice, but only {uncertain} recorded: {summary:?}");
}

/// Field report R15: the platform tells it again long after, to another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_told_again_after_a_restart_is_answered_once() {
    let stage = stage(1, 1).await;
    let (app, person) = (&stage.apps[0], stage.apps[0].dm("U7"));
    let event = json!({
        "type": "event_callback", "event_id": "Ev0REPLAYED", "api_app_id": app.id(),
        "event": {"type": "message", "channel": "D7", "channel_type": "im", "user": "U7", "ts": "1700000000.000100",
            "event_ts": "1700000000.000100", "text": "once"},
    });
    for life in 0..3 {
        let mut daemon = stage.start().await;
        app.push("events_api", event.clone());
        app.push("events_api", event.clone());
        app.wait_for_acks(SOON).await.expect("acknowledged each time");
        person.say(&format!("life {life}"));
        // Its answer comes after all that was told before it.
        person.wait_for_answers(life + 2, SOON).await.expect("an answer");
        assert!(daemon.terminate().success());
    }
    let texts: Vec<_> = person.answers().iter().map(|answer| answer.text.clone()).collect();
    assert_eq!(texts, ["once", "life 0", "life 1", "life 2"]);
}

/// Field report R13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_with_too_many_sockets_is_told_of_and_tried_seldom() {
    let stage = stage(2, 1).await;
    let app = &stage.apps[0];
    app.greet(Greeting::HelloAndGone("too_many_websockets".into()));
    let daemon = stage.home.start();
    let state = |state: &str| {
        let of = |(labels, value): (String, f64)| {
            (labels.contains(&format!("state=\"{state}\"")) && labels.contains("platform=\"slack\"")).then_some(value)
        };
        daemon.metric("shardvisor_channels").into_iter().filter_map(of).sum::<f64>()
    };
    wait_for("the state of both", SOON, || (state("replaced") == 1.0 && state("connected") == 1.0).then_some(()));
    let opens = app.stats().opens.len();
    assert_eq!(opens, 2, "the second time it is no accident, and the third try is half a minute away");
}

/// Contract: W6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_gets_its_events_by_http_is_left_alone() {
    let stage = stage(1, 1).await;
    let by_http = stage.slack.add_app();
    let added = stage.home.with_input(&["channel", "add", "slack", "--token-file", "-"], by_http.bot_token());
    assert!(added.status.success());
    let mut daemon = stage.start().await;
    wait_for("the word about it", SOON, || daemon.log().contains("channel is not held").then_some(()));
    assert!(by_http.stats().requests.is_empty(), "nothing is asked in its name");
    // One that is held becomes one that is not, and the other way round.
    let app = &stage.apps[0];
    let id = stage.home.add_slack(app.app_token(), app.bot_token(), "none");
    let replace = ["channel", "add", "slack", "--token-file", "-", "--id", &id, "--replace"];
    app.wait_for_sockets(2, SOON).await.expect("a second channel on the same app");
    assert!(stage.home.with_input(&replace, app.bot_token()).status.success());
    app.wait_for_sockets(1, SOON).await.expect("its socket is closed");
    let both = format!("{}\n{}", app.app_token(), app.bot_token());
    assert!(stage.home.with_input(&replace, &both).status.success());
    app.wait_for_sockets(2, SOON).await.expect("its socket is there again");
    assert!(daemon.terminate().success());
}

/// Field report R23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_tickets_are_in_no_log_and_on_no_page() {
    let mut stage = stage(1, 1).await;
    stage.home = stage.home.with("SHARDVISOR_LOG_LEVEL", "trace");
    let app = &stage.apps[0];
    let mut daemon = stage.start().await;
    app.dm("U7").say("hello");
    app.dm("U7").wait_for_answers(1, SOON).await.expect("an answer");
    let hellos = app.stats().hellos;
    app.reset_sockets();
    stage
        .slack
        .wait_for("another socket", SOON, || (app.stats().hellos > hellos).then_some(()))
        .await
        .expect("greeted");
    app.refuse(Some("invalid_auth"));
    wait_for("the end of it", SOON, || daemon.log().contains("logged_out").then_some(()));
    let mut told = String::new();
    for page in ["/status", "/metrics", "/readyz"] {
        told += &daemon.get(page).expect("an answer").1;
    }
    assert!(daemon.terminate().success());
    told += &daemon.log();
    for secret in [app.app_token(), app.bot_token(), "ticket="] {
        assert!(!told.contains(secret), "{told}");
    }
}
