//! Channels that come from elsewhere, with the real binary: the platform's API, and a PostgreSQL.

#[path = "support/postgres.rs"]
mod postgres;
mod support;

use std::{
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use postgres::Postgres;
use serde_json::{Value, json};
use simulators::telegram::{BotHandle as Bot, Telegram};
use support::{Daemon, Home, wait_for};

const BEARER: &str = "b3arer-hunter2";
const MOMENT: Duration = Duration::from_secs(15);

/// What the API answers: a list, or nothing but a failure.
type Answer = Arc<Mutex<Option<Value>>>;

async fn api() -> (Answer, String) {
    async fn answer(State(answer): State<Answer>, uri: Uri, headers: HeaderMap) -> Response {
        let bearer =
            headers.get(header::AUTHORIZATION).is_some_and(|value| value == format!("Bearer {BEARER}").as_str());
        if uri.path() != "/internal/v1/channels/active" || !bearer {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        match &*answer.lock().expect("answer") {
            Some(list) => axum::Json(list.clone()).into_response(),
            None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }
    let state = Answer::default();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("bound");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let app = Router::new().fallback(answer).with_state(state.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (state, url)
}

fn secret_file(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = home.dir.path().join(name);
    std::fs::write(&path, text).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("set");
    path
}

/// The id of the bot of a number; the first bits place it on a shard.
fn id(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

fn list(bots: &[(usize, &Bot)]) -> Value {
    let entry = |(number, bot): &(usize, &Bot)| json!({"id": id(*number), "platform": "telegram", "token": bot.token(), "handler": "echo", "label": "shop"});
    bots.iter().map(entry).collect()
}

fn stops(bot: &Bot) {
    wait_for("the bot to stop", MOMENT, || (!bot.is_polling()).then_some(()));
}

async fn answers(bot: &Bot, chat: i64) {
    let user = bot.user(chat);
    user.say("good morning");
    user.wait_for_answers(1, MOMENT).await.expect("an echo");
}

/// What nobody may read anywhere: in no log, metric, status, list, process or file.
fn nowhere(daemon: &Daemon, home: &Home, secrets: &[&str]) {
    let mut seen = vec![
        daemon.log(),
        daemon.get("/metrics").expect("metrics").1,
        daemon.get("/status").expect("status").1,
        home.ok(&["channel", "list", "--json"]),
        home.ok(&["check-config", "--show"]),
    ];
    for pid in support::children(daemon.pid()).into_iter().chain([daemon.pid()]) {
        for file in ["cmdline", "environ"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            seen.push(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    for file in support::files_below(&home.data_dir()) {
        seen.push(String::from_utf8_lossy(&std::fs::read(&file).unwrap_or_default()).into_owned());
    }
    for secret in secrets {
        assert!(!seen.iter().any(|text| text.contains(secret)), "{secret} can be read");
    }
}

/// Contract: C2, I5. Field report R23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bots_of_the_platforms_api_come_go_and_outlive_its_outages() {
    let telegram = Telegram::start().await.expect("a simulator");
    let (answer, url) = api().await;
    let home = Home::new().with("SHARD_COUNT", 2).with("SHARDVISOR_TELEGRAM_API_URL", telegram.url());
    let token = secret_file(&home, "token", BEARER);
    let home = home
        .with("SHARDVISOR_API_URL", url)
        .with("SHARDVISOR_DIRECTORY_TOKEN_FILE", token.display())
        .with("SHARDVISOR_CHANNELS_RECONCILE_INTERVAL", "1s");
    let bots: Vec<Bot> = (0..3).map(|_| telegram.add_bot()).collect();
    let all = list(&[(0, &bots[0]), (1, &bots[1]), (2, &bots[2])]);
    let say = |said: Option<Value>| *answer.lock().expect("answer") = said;
    say(Some(list(&[(0, &bots[0]), (1, &bots[1])])));
    let mut daemon = home.start();
    daemon.wait_ready();
    answers(&bots[0], 1).await;
    answers(&bots[1], 1).await;
    say(Some(all.clone()));
    answers(&bots[2], 1).await;
    say(Some(list(&[(0, &bots[0]), (1, &bots[1])])));
    stops(&bots[2]);
    assert!(bots[0].is_polling() && bots[1].is_polling(), "the others are not touched");

    // All at once is a mistake, until somebody says that it is none.
    say(Some(json!([])));
    wait_for("the removal to be held back", MOMENT, || {
        let held = daemon.metric("shardvisor_directory_removals_held");
        (held.iter().map(|(_, value)| value).sum::<f64>() >= 4.0).then_some(())
    });
    assert!(bots[0].is_polling() && bots[1].is_polling());
    assert!(home.ok(&["directory", "confirm"]).starts_with("2 channels"));
    stops(&bots[0]);
    stops(&bots[1]);
    say(Some(all));
    telegram.wait_for_polls(3, MOMENT).await.expect("all poll");

    // It goes away: nothing stops, jobs are obeyed, and a new life starts from what it said last.
    say(None);
    wait_for("the outage to be noticed", MOMENT, || daemon.log().contains("answered 503").then_some(()));
    let job =
        |name: &str| json!({"name": name, "id": format!("{name}-1"), "channel_id": id(1), "data": {}}).to_string();
    assert!(home.with_input(&["send", "--json"], &job("disconnect")).status.success());
    stops(&bots[1]);
    assert!(bots[0].is_polling() && bots[2].is_polling());
    assert!(daemon.terminate().success());
    let mut daemon = home.start();
    daemon.wait_ready();
    bots[0].user(2).say("still there?");
    bots[0].user(2).wait_for_answers(1, MOMENT).await.expect("an echo");
    assert!(!bots[1].is_polling(), "it was disconnected");
    assert!(home.with_input(&["send", "--json"], &job("connect")).status.success());
    bots[1].wait_for_poll(MOMENT).await.expect("it was connected again");
    let source = daemon.metric("shardvisor_directory_source");
    assert!(source.iter().any(|(labels, value)| labels.contains("source=\"api\"") && *value == 1.0), "{source:?}");
    let age = daemon.metric("shardvisor_directory_answer_age_seconds");
    assert_eq!(age.len(), 2, "one of each shard: {age:?}");

    say(Some(list(&[(0, &bots[0]), (1, &bots[1])])));
    assert!(home.ok(&["channel", "list"]).contains(&format!("{} telegram shard 1 enabled echo \"shop\"", id(1))));
    let secrets: Vec<&str> = bots.iter().filter_map(|bot| bot.token().split_once(':').map(|(_, key)| key)).collect();
    nowhere(&daemon, &home, &[&secrets[..], &[BEARER]].concat());
    assert!(daemon.terminate().success());
}

/// Contract: C2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_starts_a_bot_at_once_and_a_database_that_stops_stops_none() {
    let Some(database) = Postgres::start() else { return };
    let telegram = Telegram::start().await.expect("a simulator");
    let bots: Vec<Bot> = (0..2).map(|_| telegram.add_bot()).collect();
    database.sql(
        "CREATE TABLE shardvisor_channels (id uuid PRIMARY KEY, platform text, token text, handler text, enabled bool)",
    );
    let add = |number: usize, token: &str| {
        let row = format!("('{}', 'telegram', '{token}', 'echo', true)", id(number));
        database.sql(&format!("INSERT INTO shardvisor_channels VALUES {row}; NOTIFY shardvisor_channels"));
    };
    add(0, bots[0].token());
    let home = Home::new().with("SHARD_COUNT", 2).with("SHARDVISOR_TELEGRAM_API_URL", telegram.url());
    let url = secret_file(&home, "url", &database.url);
    let home =
        home.with("SHARDVISOR_DIRECTORY_URL_FILE", url.display()).with("SHARDVISOR_CHANNELS_RECONCILE_INTERVAL", "1h");
    let mut daemon = home.start();
    daemon.wait_ready();
    answers(&bots[0], 1).await;
    // The second bot's token lies sealed in the database.
    let sealed = home.with_input(&["directory", "seal", &id(1), "--token-file", "-"], bots[1].token());
    assert!(sealed.status.success(), "{sealed:?}");
    let sealed = String::from_utf8(sealed.stdout).expect("UTF-8");
    assert!(sealed.starts_with("\\x") && !sealed.contains(bots[1].token()), "{sealed}");
    add(1, sealed.trim());
    // Nobody looks for an hour: it was heard.
    answers(&bots[1], 1).await;
    database.down();
    wait_for("the outage to be noticed", MOMENT, || daemon.log().contains("are not heard").then_some(()));
    home.ok(&["channel", "disable", &id(0)]);
    stops(&bots[0]);
    assert!(bots[1].is_polling());
    let said = home.run(&["channel", "list"]);
    assert_eq!(said.status.code(), Some(69), "{said:?}");
    database.up();
    database.sql(&format!("DELETE FROM shardvisor_channels WHERE id = '{}'; NOTIFY shardvisor_channels", id(1)));
    stops(&bots[1]);
    home.ok(&["channel", "enable", &id(0)]);
    bots[0].wait_for_poll(MOMENT).await.expect("it runs again");
    let secrets: Vec<&str> = bots.iter().filter_map(|bot| bot.token().split_once(':').map(|(_, key)| key)).collect();
    nowhere(&daemon, &home, &[&secrets[..], &[postgres::PASSWORD]].concat());
    assert!(daemon.terminate().success());
}

/// Contract: C2.
#[test]
fn a_directory_that_lies_elsewhere_is_only_read_by_the_commands() {
    let home = Home::new().with("SHARDVISOR_API_URL", "http://127.0.0.1:1");
    for command in [&["channel", "add", "telegram", "--token-file", "-"][..], &["channel", "remove", &id(1)]] {
        let output = home.with_input(command, "4711:s3cret");
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("http://127.0.0.1:1/ (directory.url), which is only read"), "{said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
    assert_eq!(home.run(&["channel", "list"]).status.code(), Some(69));
    assert_eq!(home.run(&["channel", "enable", &id(1)]).status.code(), Some(69));
    assert_eq!(home.ok(&["directory", "confirm"]), "nothing is held back");
    assert!(!home.data_dir().exists(), "looking makes nothing");
    assert_eq!(Home::new().run(&["directory", "confirm"]).status.code(), Some(64));
}
