//! What a child may do to its link without harm to anybody else.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::daemon::{Daemon, Setup, eventually, signal};

fn answers_soon(daemon: &Daemon) {
    let at = Instant::now();
    assert!(daemon.view().is_some());
    assert!(at.elapsed() < Duration::from_secs(2), "the primary needs {:?} for an answer", at.elapsed());
}

fn resident_megabytes(daemon: &Daemon) -> u64 {
    supervisor::memory::resident(daemon.pid()).unwrap() >> 20
}

/// Contract: P5.
#[test]
fn a_flood_of_reports_neither_starves_the_others_nor_bloats_the_primary() {
    let mut daemon = Setup::new().mode(0, "flood").start(2);
    daemon.all_ready();
    eventually("a thousand reports", || {
        let view = daemon.view()?;
        (view["reports"]["0"]["beats"].as_u64()? > 1000).then_some(())
    });
    answers_soon(&daemon);
    assert!(resident_megabytes(&daemon) < 100, "{} MB", resident_megabytes(&daemon));
    let before = daemon.slot(1)["pid"].clone();
    signal(daemon.pids()[1], Signal::SIGKILL);
    eventually("the other is replaced", || {
        let slot = daemon.slot(1);
        (slot["phase"]["name"] == "ready" && slot["pid"] != before).then_some(())
    });
    signal(daemon.pid(), Signal::SIGTERM);
    assert_eq!(daemon.exit().code(), Some(0));
}

/// Contract: P5.
#[test]
fn a_shard_that_asks_and_never_reads_neither_blocks_nor_bloats_the_primary() {
    let mut daemon = Setup::new().mode(0, "deaf").env("DRAIN_MS", 500).start(2);
    daemon.all_ready();
    let at = Instant::now();
    eventually("it has asked for long enough", || {
        answers_soon(&daemon);
        (at.elapsed() > Duration::from_secs(2)).then_some(())
    });
    assert!(resident_megabytes(&daemon) < 100, "{} MB", resident_megabytes(&daemon));
    assert_eq!(daemon.phases()[1], "ready");
    signal(daemon.pid(), Signal::SIGTERM);
    assert_eq!(daemon.exit().code(), Some(0));
}
