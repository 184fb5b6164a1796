//! One daemon at a time, and what a running daemon does with what it can't work with.

mod support;

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use simulators::telegram::Telegram;
use support::{Home, children, signal, wait_for};

/// What a `run` that can't start says, and how it ends.
fn refused(home: &Home, code: i32) -> String {
    let output = home.run(&["run"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

fn complaint(said: &str) -> &str {
    let complaints: Vec<_> = said.lines().filter(|line| line.starts_with("shardvisor:")).collect();
    assert_eq!(complaints.len(), 1, "one clear line: {said}");
    complaints[0]
}

/// Contract: P4. Field report R50.
#[test]
fn a_second_daemon_on_the_same_directory_or_port_is_refused_and_told_who_holds_it() {
    for shards in [1, 2] {
        let home = Home::new().with("SHARD_COUNT", shards);
        let mut daemon = home.start();
        daemon.wait_ready();
        let pid = daemon.pid().to_string();
        let said = refused(&home, 69);
        assert!(complaint(&said).contains(&pid), "{said}");

        let elsewhere = Home::new().with("SHARD_COUNT", shards).with("HEALTH_PORT", daemon.port());
        let said = refused(&elsewhere, 78);
        let holders: Vec<String> =
            children(daemon.pid()).iter().chain([&daemon.pid()]).map(ToString::to_string).collect();
        assert!(holders.iter().any(|pid| complaint(&said).contains(pid)), "{said}");
        assert!(daemon.ready(), "the first one is not disturbed");
        assert!(daemon.terminate().success());
    }
}

/// Bad input: a port in use by somebody else.
#[test]
fn a_port_in_use_is_one_clear_line() {
    let taken = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    for shards in [1, 2] {
        let home = Home::new().with("SHARD_COUNT", shards).with("HEALTH_PORT", port);
        let said = refused(&home, 78);
        assert!(complaint(&said).contains(&port.to_string()), "{said}");
    }
}

/// Bad input: the key file can't be trusted or read, the directory is none. Nothing is lost, and nothing loops.
#[test]
fn what_only_a_person_can_mend_ends_with_78_and_one_clear_line() {
    let home = Home::new();
    home.add_telegram("1:abc", "echo");
    let key = home.data_dir().join("secret.key");
    let content = std::fs::read(&key).expect("the key");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).expect("loosened");
    assert!(complaint(&refused(&home, 78)).contains("secret.key"));
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("tightened");
    std::fs::write(&key, "garbage").expect("written");
    assert!(complaint(&refused(&home, 78)).contains("secret.key"));
    // With two shards each says it once, and the primary ends instead of trying again.
    let home = home.with("SHARD_COUNT", 2);
    let said = refused(&home, 78);
    assert!(said.contains("secret.key"), "{said}");
    std::fs::write(&key, content).expect("written");
    assert!(home.ok(&["channel", "list"]).contains("telegram"), "nothing was lost");

    let file = Home::new();
    std::fs::write(file.data_dir(), "no directory").expect("written");
    assert!(complaint(&refused(&file, 78)).contains("data"));
}

/// Contract: I5. An empty directory with no channels becomes ready; SIGHUP without a primary drops no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_daemon_is_ready_and_a_reload_without_a_primary_drops_nothing() {
    let telegram = Telegram::start().await.expect("a simulator");
    let home = Home::new().with("SHARDVISOR_TELEGRAM_API_URL", telegram.url());
    let mut daemon = home.start();
    daemon.wait_ready();
    let bot = telegram.add_bot();
    home.add_telegram(bot.token(), "echo");
    bot.wait_for_poll(Duration::from_secs(10)).await.expect("it polls");
    let polls = bot.stats().polls;
    // By the command, which signals a shard that has no primary.
    home.ok(&["reload"]);
    wait_for("the reload", Duration::from_secs(5), || {
        daemon.log().contains("looking for changed channels").then_some(())
    });
    bot.user(3).say("still there?");
    bot.user(3).wait_for_answers(1, Duration::from_secs(5)).await.expect("an echo");
    assert!(bot.stats().polls <= polls + 2, "the poll went on");
    assert!(daemon.terminate().success());
}

/// Contract: P1. Field report R42. A rolling restart after an upgrade brings the new program in; one that speaks another link to
/// its primary becomes the primary's own again.
#[test]
fn an_upgraded_program_comes_in_by_a_rolling_restart_if_it_speaks_the_primarys_link() {
    let home = Home::new().with("SHARD_COUNT", 2);
    let program = home.dir.path().join("shardvisor");
    let put = |from: &Path| {
        let fresh = home.dir.path().join("fresh");
        fs::copy(from, &fresh).expect("copied");
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).expect("set");
        fs::rename(&fresh, &program).expect("renamed, as a package manager does");
        fs::metadata(&program).expect("there").ino()
    };
    let runs = |pid: u32| fs::metadata(format!("/proc/{pid}/exe")).expect("it runs").ino();
    let first = put(Path::new(support::BIN));
    let mut daemon = home.start_from(&program);
    daemon.wait_ready();
    assert_eq!((runs(daemon.pid()), runs(daemon.shard_pid(0))), (first, first));
    let second = put(Path::new(support::BIN));
    home.ok(&["reload"]);
    assert_eq!((runs(daemon.shard_pid(0)), runs(daemon.shard_pid(1))), (second, second));
    assert_eq!(runs(daemon.pid()), first, "the primary goes on");
    let other = home.dir.path().join("other");
    fs::rename(&program, &other).expect("moved");
    let script = home.dir.path().join("script");
    fs::write(&script, format!("#!/bin/sh\nSHARDVISOR_LINK=99 exec {} \"$@\"\n", other.display())).expect("written");
    put(&script);
    home.ok(&["reload"]);
    assert_eq!((runs(daemon.shard_pid(0)), runs(daemon.shard_pid(1))), (first, first));
    // Nothing at its place: what the primary was started from serves as well.
    fs::remove_file(&program).expect("removed");
    home.ok(&["reload"]);
    assert_eq!((runs(daemon.shard_pid(0)), runs(daemon.shard_pid(1))), (first, first));
    assert!(daemon.terminate().success());
}

/// Contract: P5, H2. Field report R52: counters never go back, a dead shard shows within two seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_shard_shows_within_two_seconds_and_counters_never_go_back() {
    let telegram = Telegram::start().await.expect("a simulator");
    let home = Home::new().with("SHARD_COUNT", 2).with("SHARDVISOR_TELEGRAM_API_URL", telegram.url());
    let bots: Vec<_> = (0..8).map(|_| telegram.add_bot()).collect();
    for bot in &bots {
        home.add_telegram(bot.token(), "echo");
    }
    let mut daemon = home.start();
    daemon.wait_ready();
    for bot in &bots {
        bot.user(1).say("count me");
        bot.user(1).wait_for_answers(1, Duration::from_secs(10)).await.expect("an echo");
    }
    let total = || {
        let all = daemon.metric("shardvisor_events_stored_total");
        all.iter().map(|(_, value)| *value).sum::<f64>()
    };
    let before = wait_for("the counters", Duration::from_secs(5), || Some(total()).filter(|sum| *sum >= 8.0));
    let pid = daemon.shard_pid(0);
    signal(pid, 19);
    let stopped = std::time::Instant::now();
    let up = |shard: &str| {
        let samples = daemon.metric("shardvisor_shard_up");
        samples.iter().find(|(labels, _)| labels.contains(shard)).map(|(_, value)| *value)
    };
    wait_for("shard 0 to be shown down", Duration::from_secs(5), || (up("shard=\"0\"") == Some(0.0)).then_some(()));
    // Two seconds, and a request that hung in the first of them.
    assert!(stopped.elapsed() < Duration::from_millis(3500), "{:?}", stopped.elapsed());
    assert!(!daemon.ready(), "not ready while a shard is down");
    let mut last = before;
    wait_for("shard 0 to be back", Duration::from_secs(20), || {
        let now = total();
        assert!(now >= last, "counters went back from {last} to {now}");
        last = now;
        (up("shard=\"0\"") == Some(1.0) && daemon.ready()).then_some(())
    });
    signal(pid, 9);
    assert!(daemon.terminate().success());
}
