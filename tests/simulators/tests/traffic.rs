//! The traffic against a small bot over HTTP, honest or not.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Client;
use serde_json::{Value, json};
use simulators::{
    telegram::{BotHandle, Telegram},
    traffic::{Outcome, Plan, Summary, TelegramBots, Traffic},
};

const SOON: Duration = Duration::from_secs(20);

/// Polls and answers each text as often as `times` says for the count of messages so far.
async fn echo(telegram: Telegram, bot: BotHandle, client: Client, times: fn(u64) -> u64, count: Arc<AtomicU64>) {
    let call = |method: &str, body: Value| {
        let request = client.post(format!("{}/bot{}/{method}", telegram.url(), bot.token())).json(&body);
        async move { request.send().await.expect("an answer").json::<Value>().await.expect("JSON") }
    };
    let mut offset = 0;
    loop {
        let updates = call("getUpdates", json!({"timeout": 30, "offset": offset})).await;
        for update in updates["result"].as_array().expect("an array") {
            offset = update["update_id"].as_i64().expect("an id") + 1;
            let message = &update["message"];
            for _ in 0..times(count.fetch_add(1, Ordering::Relaxed) + 1) {
                call("sendMessage", json!({"chat_id": message["chat"]["id"], "text": message["text"]})).await;
            }
        }
    }
}

async fn run(bots: usize, plan: Plan, chat: Duration, times: fn(u64) -> u64) -> (Summary, Vec<Outcome>) {
    let telegram = Telegram::start().await.expect("a free port");
    let client = Client::builder().no_proxy().build().expect("a client");
    let count = Arc::new(AtomicU64::new(0));
    let bots: Vec<_> = (0..bots).map(|_| telegram.add_bot()).collect();
    let mut clients = tokio::task::JoinSet::new();
    for bot in &bots {
        clients.spawn(echo(telegram.clone(), bot.clone(), client.clone(), times, Arc::clone(&count)));
    }
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&outcomes);
    telegram.wait_for_polls(bots.len(), SOON).await.expect("all bots poll");
    let traffic = Traffic::start(vec![Box::new(TelegramBots::new(&telegram, &bots))], plan, move |one| {
        told.lock().expect("no panic").push(one.outcome);
    });
    tokio::time::sleep(chat).await;
    let summary = traffic.stop().await;
    let outcomes = outcomes.lock().expect("no panic").clone();
    (summary, outcomes)
}

#[tokio::test]
async fn an_honest_echo_answers_each_message_once_in_order_at_the_rate_asked_for() {
    let plan = Plan { in_flight: 3, ..Plan::at_rate(4, 200.0) };
    let began = Instant::now();
    let (summary, outcomes) = run(5, plan, Duration::from_secs(2), |_| 1).await;
    let at_most = (began.elapsed().as_secs_f64() * 200.0) as u64 + 5;
    assert!(summary.is_clean(), "{summary:?}");
    assert_eq!(summary.received, summary.answered);
    assert!((100..=at_most).contains(&summary.received), "{summary:?}");
    assert_eq!(outcomes.len() as u64, summary.answered, "each answer is told");
    assert!(0.0 < summary.p50_ms && summary.p50_ms <= summary.p99_ms && summary.p99_ms <= summary.max_ms);
}

#[tokio::test]
async fn people_who_think_wait_for_their_answer_and_then_their_time() {
    let think = Duration::from_millis(200);
    let plan = Plan { users_per_bot: 2, think: think..=think, ..Plan::default() };
    let (summary, _) = run(3, plan, Duration::from_millis(1500), |_| 1).await;
    assert!(summary.is_clean(), "{summary:?}");
    assert!((6..=7 * 6).contains(&summary.received), "{summary:?}");
}

#[tokio::test]
async fn a_bot_that_forgets_and_repeats_is_found_out() {
    let plan = Plan { grace: Duration::from_secs(3), in_flight: 50, ..Plan::at_rate(1, 100.0) };
    let times = |count| match count {
        5 => 0,
        9 => 3,
        _ => 1,
    };
    let (summary, outcomes) = run(1, plan, Duration::from_millis(500), times).await;
    assert_eq!((summary.lost, summary.duplicated), (1, 1), "{summary:?}");
    assert_eq!(summary.answered, summary.received - 2);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Again).count(), 2);
}
