//! Children that die or hang, and the primary that dies.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::daemon::{Setup, alive, eventually, signal};

/// Contract: P5. Field report R44.
#[test]
fn shards_killed_in_the_same_millisecond_are_all_reaped_and_restarted_twenty_times() {
    let daemon = Setup::new().env("RESTARTS", 1000).env("STABLE_MS", 0).start(4);
    let mut pids = daemon.all_ready();
    for round in 1..=20u64 {
        for pid in &pids {
            signal(*pid, Signal::SIGKILL);
        }
        eventually("four new lives", || {
            let view = daemon.view()?;
            let restarted = |slot: &serde_json::Value| slot["restarts_total"] == round;
            view["slots"].as_array()?.iter().all(restarted).then_some(())
        });
        let fresh = daemon.all_ready();
        assert!(fresh.iter().all(|pid| !pids.contains(pid)), "{pids:?} became {fresh:?}");
        let mut kernel = daemon.kernel_children();
        kernel.sort_unstable();
        let mut known = fresh.clone();
        known.sort_unstable();
        assert_eq!(kernel, known, "a zombie or a stranger among the children");
        pids = fresh;
    }
    assert_eq!(daemon.lost().iter().filter(|(_, reason)| reason == "signal").count(), 80);
}

/// Contract: P5. Field report R42.
#[test]
fn no_shard_outlives_a_killed_primary_and_the_next_one_starts() {
    let mut daemon = Setup::new().start(3);
    let pids = daemon.all_ready();
    let at = Instant::now();
    daemon.process.kill().unwrap();
    eventually("all shards are gone", || pids.iter().all(|pid| !alive(*pid)).then_some(()));
    assert!(at.elapsed() < Duration::from_secs(2), "it took {:?}", at.elapsed());
    let dir = daemon.dir().to_owned();
    daemon.exit();
    supervisor::SlotLock::acquire(&dir, 0, Duration::from_secs(20)).unwrap();
}

/// Contract: P4, P5.
#[test]
fn a_stopped_shard_is_shown_steered_around_ended_and_replaced() {
    let setup = Setup::new().env("SILENT_MS", 300).env("HANG_MS", 1000);
    let daemon = setup.start(2);
    let pids = daemon.all_ready();
    signal(pids[1], Signal::SIGSTOP);
    eventually("it is shown silent", || (daemon.slot(1)["phase"]["name"] == "silent").then_some(()));
    assert_eq!(daemon.slot(1)["up"], false);
    eventually("the other one steers connections to itself alone", || {
        daemon.log().iter().any(|(slot, _, what)| *slot == 0 && what.starts_with("steer 2 [")).then_some(())
    });
    let fresh = eventually("it is replaced", || {
        let slot = daemon.slot(1);
        (slot["phase"]["name"] == "ready" && slot["pid"] != pids[1]).then_some(slot)
    });
    assert_eq!(fresh["last_exit"]["reason"], "hang");
    assert_eq!((daemon.logged("life 1"), daemon.logged("life 2")), (2, 1), "it knows that it replaces another");
    assert_eq!(fresh["index"], 1);
    assert!(!alive(pids[1]));
    assert_eq!(daemon.slot(0)["pid"], pids[0], "the healthy one is untouched");
    eventually("the steering ends", || (daemon.logged("unsteer") > 0).then_some(()));
}

/// Contract: P5. Field report R41.
#[test]
fn a_shard_whose_loop_is_wedged_is_replaced_though_it_checks_in() {
    let daemon = Setup::new().mode(0, "stall").env("HANG_MS", 800).start(1);
    eventually("it is ended", || daemon.lost().contains(&(0, "hang".to_owned())).then_some(()));
    daemon.set_mode(0, "");
    eventually("its next life is well", || {
        let slot = daemon.slot(0);
        (slot["phase"]["name"] == "ready" && slot["restarts_total"].as_u64() > Some(0)).then_some(())
    });
}

#[test]
fn a_shard_that_is_never_ready_is_ended_at_its_boot_deadline() {
    let daemon = Setup::new().mode(1, "never-ready").env("BOOT_MS", 500).start(2);
    eventually("it is ended", || daemon.lost().contains(&(1, "boot_timeout".to_owned())).then_some(()));
    assert_eq!(daemon.phases()[0], "ready");
}

/// Contract: P1.
#[test]
fn leaving_unasked_with_status_zero_is_a_death_and_the_index_stays() {
    let daemon = Setup::new().start(2);
    daemon.all_ready();
    daemon.set_mode(1, "exit 0");
    signal(daemon.pids()[1], Signal::SIGKILL);
    eventually("it is written off", || (daemon.slot(1)["gave_up"] == true).then_some(()));
    let slot = daemon.slot(1);
    assert_eq!((&slot["index"], &slot["phase"]["name"]), (&1.into(), &"slow".into()));
    assert_eq!(slot["last_exit"]["reason"], "exit");
    let lives: Vec<u64> = daemon.log().iter().filter(|(s, _, w)| *s == 1 && w == "start").map(|(_, l, _)| *l).collect();
    assert!(lives.is_sorted_by(|a, b| a < b), "{lives:?}");
    assert_eq!(daemon.slot(0)["restarts_total"], 0);
}

#[test]
fn a_shard_above_its_memory_limit_is_replaced_in_good_order() {
    let setup = Setup::new().mode(1, "grow").env("MEMORY_LIMIT", 64 << 20).env("STABLE_MS", 100);
    let daemon = setup.start(2);
    eventually("it is replaced", || daemon.lost().contains(&(1, "memory".to_owned())).then_some(()));
    assert_eq!(daemon.logged("drain"), daemon.lost().len());
    assert!(daemon.lost().iter().all(|(slot, _)| *slot == 1));
}
