//! What happens to conversations when processes die, stop or are replaced: the real binary, under traffic.

mod support;

use std::time::{Duration, Instant};

use simulators::{
    telegram::{BotHandle, Telegram},
    traffic::{Plan, Summary, TelegramBots, Traffic},
};
use support::{Daemon, Home, alive, children, signal, wait_for};

const BOTS: usize = 24;

struct Stage {
    telegram: Telegram,
    bots: Vec<BotHandle>,
    home: Home,
}

async fn stage(shards: u32) -> Stage {
    let telegram = Telegram::start().await.expect("a simulator");
    let home = Home::new().with("SHARD_COUNT", shards).with("SHARDVISOR_TELEGRAM_API_URL", telegram.url());
    let bots: Vec<_> = (0..BOTS).map(|_| telegram.add_bot()).collect();
    for bot in &bots {
        home.add_telegram(bot.token(), "echo");
    }
    Stage { telegram, bots, home }
}

impl Stage {
    async fn start(&self) -> Daemon {
        let mut daemon = self.home.start();
        daemon.wait_ready();
        self.all_polling(Duration::from_secs(20)).await;
        daemon
    }

    async fn all_polling(&self, within: Duration) {
        self.telegram.wait_for_polls(self.bots.len(), within).await.expect("all bots poll");
    }

    fn traffic(&self) -> Traffic {
        // Answers that a death delays (a retry that waits, an uncertain send) must still come.
        let plan = Plan { grace: Duration::from_secs(30), in_flight: 3, ..Plan::at_rate(2, 150.0) };
        Traffic::start(vec![Box::new(TelegramBots::new(&self.telegram, &self.bots))], plan, |_| {})
    }

    /// Returns when so many more messages were sent by the bots.
    async fn chat(&self, messages: u64) {
        let sent = || self.telegram.stats().sum.requests_of("sendMessage");
        let goal = sent() + messages;
        let reached = self.telegram.wait_for("messages", Duration::from_secs(30), || (sent() >= goal).then_some(()));
        reached.await.expect("the conversations go on");
    }
}

fn nothing_lost(summary: &Summary, uncertain: u64) {
    println!("{summary:?}, uncertain: {uncertain}");
    assert!(summary.received > 100, "hardly any traffic: {summary:?}");
    assert_eq!(summary.lost, 0, "{summary:?}");
    assert_eq!(summary.out_of_order, 0, "{summary:?}");
    assert!(
        summary.duplicated <= uncertain,
        "{} answered twice, but only {uncertain} recorded as uncertain",
        summary.duplicated
    );
}

/// Contract: P5, Q8, E1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_shard_is_back_and_polling_in_a_second_and_loses_nothing() {
    let stage = stage(2).await;
    let mut daemon = stage.start().await;
    let traffic = stage.traffic();
    stage.chat(120).await;
    let mut back = Vec::new();
    for round in 0..6 {
        let pid = daemon.shard_pid(round % 2);
        let polled_before = stage.telegram.polls_open();
        assert!(polled_before > 0);
        signal(pid, 9);
        let killed = Instant::now();
        wait_for("the shard's death", Duration::from_secs(2), || (!alive(pid)).then_some(()));
        stage.all_polling(Duration::from_secs(10)).await;
        back.push(killed.elapsed());
        stage.chat(80).await;
    }
    let summary = traffic.stop().await;
    assert!(daemon.terminate().success());
    nothing_lost(&summary, stage.home.uncertain_records());
    back.sort();
    println!("back and polling after {back:?}");
    assert!(back[back.len() / 2] < Duration::from_secs(1), "{back:?}");
}

/// Contract: P5, Q9. Field report R42.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_leaves_no_shard_and_a_restart_picks_all_work_up() {
    let stage = stage(2).await;
    let mut daemon = stage.start().await;
    let traffic = stage.traffic();
    stage.chat(120).await;
    let shards = children(daemon.pid());
    assert_eq!(shards.len(), 2, "the primary's children are the shards and nothing else");
    signal(daemon.pid(), 9);
    daemon.wait_exit(Duration::from_secs(2));
    wait_for("the shards' death", Duration::from_secs(2), || (!shards.iter().any(|pid| alive(*pid))).then_some(()));
    drop(daemon);
    let mut daemon = stage.start().await;
    stage.chat(120).await;
    let summary = traffic.stop().await;
    assert!(daemon.terminate().success());
    nothing_lost(&summary, stage.home.uncertain_records());
}

/// Contract: C1, P5. A stopped shard is replaced, and answers nothing twice when it wakes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_shard_is_replaced_and_its_waking_doubles_nothing() {
    let stage = stage(2).await;
    let mut daemon = stage.start().await;
    let traffic = stage.traffic();
    stage.chat(120).await;
    let pid = daemon.shard_pid(0);
    signal(pid, 19);
    let stopped = Instant::now();
    wait_for("another process in slot 0", Duration::from_secs(10), || (daemon.shard_pid(0) != pid).then_some(()));
    assert!(stopped.elapsed() < Duration::from_secs(8), "after {:?}: the lease could have ended", stopped.elapsed());
    signal(pid, 18);
    stage.all_polling(Duration::from_secs(10)).await;
    stage.chat(120).await;
    let summary = traffic.stop().await;
    assert!(daemon.terminate().success());
    nothing_lost(&summary, stage.home.uncertain_records());
}

/// Contract: P5, Q10, H1, P4. The whole promise of a rolling restart: no probe refused, no message lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_under_load_refuse_no_probe_and_lose_nothing() {
    let rolls: usize = std::env::var("ROLLS").ok().and_then(|rolls| rolls.parse().ok()).unwrap_or(5);
    let stage = stage(2).await;
    let mut daemon = stage.start().await;
    let traffic = stage.traffic();
    let port = daemon.port();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let probes: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let (mut answered, mut failed) = (0u64, Vec::new());
                let pace = Duration::from_micros(4_000);
                let mut next = Instant::now();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    match support::http_get(port, "/healthz", Duration::from_secs(5)) {
                        Ok((200, _)) => answered += 1,
                        other => failed.push(format!("{other:?}")),
                    }
                    next += pace;
                    std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
                }
                (answered, failed)
            })
        })
        .collect();
    let began = Instant::now();
    for roll in 0..rolls {
        let before = [daemon.shard_pid(0), daemon.shard_pid(1)];
        signal(daemon.pid(), 1);
        wait_for(&format!("roll {roll}"), Duration::from_secs(30), || {
            let now = [daemon.shard_pid(0), daemon.shard_pid(1)];
            (now[0] != before[0] && now[1] != before[1] && daemon.ready()).then_some(())
        });
    }
    let took = began.elapsed();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let (mut answered, mut failed) = (0, Vec::new());
    for probe in probes {
        let (of_one, failures) = probe.join().expect("a prober");
        answered += of_one;
        failed.extend(failures);
    }
    let summary = traffic.stop().await;
    assert!(daemon.terminate().success());
    println!("{rolls} rolls in {took:?}; {answered} probes answered, {:.0}/s", answered as f64 / took.as_secs_f64());
    assert_eq!(failed, Vec::<String>::new());
    nothing_lost(&summary, stage.home.uncertain_records());
    assert_eq!(summary.duplicated, 0, "nothing died: nothing may be shown twice");
}
