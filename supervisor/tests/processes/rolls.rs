//! Rolling restarts.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use supervisor::control::Response;

use crate::daemon::{Daemon, Setup, eventually, signal};

fn rolled(daemon: &Daemon) {
    let answer = daemon.reload();
    assert!(matches!(answer, Response::Done), "{answer:?}");
}

/// From the log: no two slots are between "drain" and the next "ready" at the same time.
fn one_at_a_time(log: &[(u32, u64, String)]) {
    let mut down = BTreeMap::new();
    for (slot, life, what) in log {
        match what.as_str() {
            "drain" => {
                down.insert(*slot, *life);
                assert_eq!(down.len(), 1, "down together: {down:?}");
            }
            "ready" => {
                down.remove(slot);
            }
            _ => {}
        }
    }
}

/// Contract: P1, P5.
#[test]
fn a_roll_replaces_one_shard_after_the_other_and_its_caller_waits_for_the_end() {
    let daemon = Setup::new().start(3);
    let before = daemon.all_ready();
    for round in 1..=5 {
        rolled(&daemon);
        assert_eq!(daemon.logged("ready"), 3 + 3 * round);
    }
    let after = daemon.pids();
    assert!(after.iter().all(|pid| !before.contains(pid)));
    one_at_a_time(&daemon.log());
    assert!(daemon.lost().iter().all(|(_, reason)| reason == "roll"));
}

/// Contract: P4.
#[test]
fn connections_are_steered_to_the_others_before_a_shard_is_told_to_leave() {
    let daemon = Setup::new().start(2);
    daemon.all_ready();
    eventually("both listen", || (daemon.logged("listening") == 2).then_some(()));
    rolled(&daemon);
    let log: Vec<(u32, String)> = daemon.log().into_iter().map(|(slot, _, what)| (slot, what)).collect();
    let drains = log.iter().enumerate().filter(|(_, (_, what))| what == "drain");
    let mut seen = 0;
    for (at, (slot, _)) in drains {
        let steered = log[..at].iter().rev().find(|(other, what)| other != slot && what.contains("steer"));
        let (_, what) = steered.expect("somebody steers");
        assert!(what.starts_with("steer 2 ["), "{what} before the drain of {slot}");
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[test]
fn a_hangup_during_a_roll_is_one_more_roll() {
    let daemon = Setup::new().start(2);
    daemon.all_ready();
    for _ in 0..3 {
        signal(daemon.pid(), Signal::SIGHUP);
    }
    eventually("the first roll has begun", || (daemon.logged("drain") > 0).then_some(()));
    rolled(&daemon);
    let rolls = daemon.logged("drain") / 2;
    assert!((2..=3).contains(&rolls), "{rolls} rolls");
    one_at_a_time(&daemon.log());
}

#[test]
fn a_roll_into_a_bad_configuration_stops_at_the_first_shard_and_the_next_one_mends_it() {
    let daemon = Setup::new().start(2);
    let before = daemon.all_ready();
    daemon.set_mode(0, "exit 78");
    daemon.set_mode(1, "exit 78");
    let answer = daemon.reload();
    assert!(matches!(&answer, Response::Failed { reason } if reason.contains("shard 0") && reason.contains("config")));
    assert_eq!(daemon.phases(), ["config", "ready"]);
    assert_eq!(daemon.slot(1)["pid"], before[1]);
    // Slots that are down come first: with the configuration still bad, nothing else is touched.
    assert!(matches!(daemon.reload(), Response::Failed { .. }));
    assert_eq!(daemon.slot(1)["pid"], before[1]);
    daemon.set_mode(0, "");
    daemon.set_mode(1, "");
    rolled(&daemon);
    daemon.all_ready();
}

#[test]
fn a_hangup_during_the_end_is_refused() {
    let mut daemon = Setup::new().mode(0, "stays").env("DRAIN_MS", 3000).start(1);
    daemon.all_ready();
    signal(daemon.pid(), Signal::SIGTERM);
    eventually("it is asked", || (daemon.logged("drain ignored") == 1).then_some(()));
    assert!(matches!(daemon.reload(), Response::Failed { reason } if reason.contains("stopping")));
    daemon.exit();
    assert_eq!(daemon.logged("start"), 1);
}
