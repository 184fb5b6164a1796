//! The daemon while the broker or the registry is away, and a process that wakes after its lease has ended.

use std::{collections::BTreeSet, time::Duration};

use simulators::telegram::{BotHandle, Telegram};

use crate::{
    SOON,
    stage::Stage,
    support::{self, Daemon, Home, signal, wait_for},
};

/// A registry that lost its memory, or a lease that has to end, takes ten seconds of its own.
const LATER: Duration = Duration::from_secs(60);

fn on_telegram(home: Home, telegram: &Telegram, shards: u32) -> Home {
    home.with("SHARD_COUNT", shards)
        .with("SHARDVISOR_TELEGRAM_API_URL", telegram.url())
        .with("SHARDVISOR_TELEGRAM_CHAT_MESSAGES_PER_SECOND", 100)
}

fn texts(bot: &BotHandle, chat: i64) -> Vec<String> {
    bot.user(chat).answers().iter().filter_map(|entry| entry.text.clone()).collect()
}

/// The same, without what was shown twice: each where it was shown first.
fn first_shown(bot: &BotHandle, chat: i64) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    texts(bot, chat).into_iter().filter(|text| seen.insert(text.clone())).collect()
}

fn job(channel: &str, chat: i64, n: usize) -> String {
    let data = serde_json::json!({"chat_id": chat.to_string(), "text": format!("job {n}")});
    format!("{}\n", serde_json::json!({"name": "send", "id": format!("job-{n}"), "channel_id": channel, "data": data}))
}

/// The sum of a metric over the box.
fn sum(daemon: &Daemon, name: &str) -> f64 {
    daemon.metric(name).iter().map(|(_, value)| value).sum()
}

/// Waits until the box is not ready, for a reason that holds these words.
fn wait_unready(daemon: &Daemon, words: &str, limit: Duration) {
    wait_for(words, limit, || {
        let (code, body) = daemon.get("/readyz")?;
        (code == 503 && body.contains(words)).then_some(())
    });
}

/// Contract: H1, P1. Field report R25: a connection that went quiet shows, and comes back by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_away_shows_in_readiness_and_costs_no_process() {
    let (telegram, stage) = (Telegram::start().await.expect("a simulator"), Stage::alone());
    let home = on_telegram(stage.home(), &telegram, 2);
    let bots: Vec<_> = (0..4).map(|_| telegram.add_bot()).collect();
    let channels: Vec<_> = bots.iter().map(|bot| home.add_telegram(bot.token(), "none")).collect();
    bots.iter().for_each(|bot| {
        bot.user(1).say("hi");
    });
    let mut daemon = home.start();
    daemon.wait_ready();
    let shards = support::children(daemon.pid());
    assert_eq!(sum(&daemon, "shardvisor_queue_subscribed"), 6.0, "three queues of each shard");

    stage.ctl(&["stop_app"]);
    wait_unready(&daemon, "queue whatsapp", SOON);
    wait_for("no subscription", SOON, || (sum(&daemon, "shardvisor_queue_subscribed") == 0.0).then_some(()));
    assert_eq!(sum(&daemon, "shardvisor_shard_up"), 2.0, "they live");
    stage.ctl(&["start_app"]);
    daemon.wait_ready();
    wait_for("every subscription", SOON, || (sum(&daemon, "shardvisor_queue_subscribed") == 6.0).then_some(()));
    for (at, channel) in channels.iter().enumerate() {
        home.ok(&["send", channel, "1", "after", "--id", &format!("after-{at}")]);
    }
    for bot in &bots {
        bot.user(1).wait_for_answers(1, SOON).await.expect("an answer");
        assert_eq!(texts(bot, 1), ["after"]);
    }
    assert_eq!(support::children(daemon.pid()), shards, "nobody was replaced");
    assert!(daemon.terminate().success());
}

/// Contract: C1, H1, P3. Leases that can't be renewed end, and with them the shards; they are not given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_is_away_for_longer_than_a_lease_stops_the_work_and_nothing_else() {
    let (telegram, stage) = (Telegram::start().await.expect("a simulator"), Stage::set());
    let home = on_telegram(stage.home(), &telegram, 2);
    let bots: Vec<_> = (0..4).map(|_| telegram.add_bot()).collect();
    bots.iter().for_each(|bot| {
        home.add_telegram(bot.token(), "echo");
    });
    let mut daemon = home.start();
    daemon.wait_ready();
    let before: BTreeSet<u32> = support::children(daemon.pid()).into_iter().collect();

    stage.redis().down();
    wait_unready(&daemon, "shard 0", SOON);
    wait_for("nobody to hold a connection without a lease", LATER, || (telegram.polls_open() == 0).then_some(()));
    for bot in &bots {
        bot.user(1).say("meanwhile");
    }
    wait_for("both shards to be others", LATER, || {
        support::children(daemon.pid()).iter().all(|pid| !before.contains(pid)).then_some(())
    });
    stage.redis().up();
    wait_for("readiness", LATER, || daemon.ready().then_some(()));
    for bot in &bots {
        bot.user(1).wait_for_answers(1, SOON).await.expect("an answer");
        assert_eq!(texts(bot, 1), ["meanwhile"]);
    }
    assert_eq!(sum(&daemon, "shardvisor_registry_reachable"), 2.0);
    assert!(daemon.terminate().success());
}

/// Contract: C1, Q8. A process that slept past its lease does nothing more, whatever it had in hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_wakes_after_its_lease_ended_neither_polls_nor_sends() {
    let (telegram, stage) = (Telegram::start().await.expect("a simulator"), Stage::set());
    let bot = telegram.add_bot();
    let named = |name: &str| on_telegram(stage.home(), &telegram, 1).with("WORKER_ID", name);
    let (first, second) = (named("first"), named("second"));
    let channel = first.add_telegram(bot.token(), "echo");
    let add = ["channel", "add", "telegram", "--token-file", "-", "--handler", "echo", "--id", &channel];
    assert!(second.with_input(&add, bot.token()).status.success());
    let mut sleeper = first.start();
    sleeper.wait_ready();
    let mut heir = second.start();
    wait_unready(&heir, "held by first", SOON);

    bot.user(2).say("hi");
    bot.user(2).wait_for_answers(1, SOON).await.expect("an answer");
    // Asleep with work under way: what is said and queued now is in its hands, or on the way there.
    let jobs: String = (0..20).map(|n| job(&channel, 2, n)).collect();
    assert!(first.with_input(&["send", "--json"], &jobs).status.success());
    for n in 0..20 {
        bot.user(1).say(&format!("before {n}"));
    }
    signal(sleeper.pid(), 19);
    wait_for("the heir", LATER, || heir.ready().then_some(()));
    let all = |chat, count| {
        wait_for("all of a chat", SOON, || (first_shown(&bot, chat).len() == count).then_some(()));
    };
    all(1, 20);
    all(2, 21);
    signal(sleeper.pid(), 18);
    bot.user(1).say("after");
    all(1, 21);
    // It learns that it holds nothing: it ends for somebody to start it anew, or waits behind the heir.
    wait_for("the sleeper to know", LATER, || {
        let ended = sleeper.child.try_wait().expect("looked").is_some();
        let waits =
            || sleeper.get("/readyz").is_some_and(|(code, body)| code == 503 && body.contains("held by second"));
        (ended || waits()).then_some(())
    });
    bot.user(1).say("last");
    all(1, 22);

    let said: Vec<String> = (0..20).map(|n| format!("before {n}")).chain(["after".into(), "last".into()]).collect();
    let sent: Vec<String> = ["hi".to_owned()].into_iter().chain((0..20).map(|n| format!("job {n}"))).collect();
    assert_eq!((first_shown(&bot, 1), first_shown(&bot, 2)), (said, sent), "in order");
    // What was between check and write at the instant it fell asleep, one send of each chat at most, is noted before it is sent
    // again; the sleeper's own may come before that, or only when it wakes.
    let doubled = texts(&bot, 1).len() + texts(&bot, 2).len() - 22 - 21;
    let uncertain = sum(&heir, "shardvisor_sends_uncertain_total");
    assert!(doubled <= 2 && doubled as f64 <= uncertain, "{doubled} shown twice, {uncertain} on record");
    assert!(heir.terminate().success());
}
