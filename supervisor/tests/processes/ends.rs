//! How the primary itself ends, and what keeps a second one from starting.

use std::{
    fs,
    io::Read,
    os::unix::net::UnixDatagram,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use supervisor::{SlotLock, lock::LockError};

use crate::daemon::{Setup, alive, eventually, signal};

/// Contract: P5.
#[test]
fn a_first_sigterm_drains_all_shards_and_the_status_is_zero() {
    let mut daemon = Setup::new().start(3);
    let pids = daemon.all_ready();
    signal(daemon.pid(), Signal::SIGTERM);
    assert_eq!(daemon.exit().code(), Some(0));
    assert_eq!(daemon.logged("drain"), 3);
    assert!(pids.iter().all(|pid| !alive(*pid)));
    assert!(!daemon.socket().exists());
}

#[test]
fn an_interrupt_of_the_whole_group_lets_the_shards_drain_like_any_other_end() {
    let mut daemon = Setup::new().start(2);
    daemon.all_ready();
    kill(Pid::from_raw(-daemon.pid()), Signal::SIGINT).unwrap();
    assert_eq!(daemon.exit().code(), Some(0));
    assert_eq!(daemon.logged("drain"), 2);
}

#[test]
fn a_second_sigterm_ends_all_at_once() {
    let mut daemon = Setup::new().mode(0, "stays").mode(1, "stays").env("DRAIN_MS", 600_000).start(2);
    let pids = daemon.all_ready();
    signal(daemon.pid(), Signal::SIGTERM);
    eventually("both are asked", || (daemon.logged("drain ignored") == 2).then_some(()));
    assert!(pids.iter().all(|pid| alive(*pid)));
    signal(daemon.pid(), Signal::SIGTERM);
    daemon.exit();
    assert!(pids.iter().all(|pid| !alive(*pid)));
}

#[test]
fn a_shard_that_does_not_leave_is_killed_at_the_deadline() {
    let mut daemon = Setup::new().mode(1, "stays").env("DRAIN_MS", 500).start(2);
    daemon.all_ready();
    let at = Instant::now();
    signal(daemon.pid(), Signal::SIGTERM);
    assert_eq!(daemon.exit().code(), Some(0));
    assert!(at.elapsed() >= Duration::from_millis(500));
    assert_eq!(daemon.logged("drain"), 1);
}

#[test]
fn a_configuration_that_a_shard_refuses_at_first_boot_ends_all_with_78() {
    let mut daemon = Setup::new().mode(0, "never-ready").mode(1, "exit 78").start(2);
    assert_eq!(daemon.exit().code(), Some(78));
    let starts = daemon.log().iter().filter(|(slot, _, what)| *slot == 1 && what == "start").count();
    assert_eq!(starts, 1, "no second try");
}

/// Field report R45.
#[test]
fn when_no_shard_comes_up_at_first_boot_the_primary_gives_up_with_69() {
    let mut daemon = Setup::new().mode(0, "exit 1").mode(1, "exit 1").start(2);
    assert_eq!(daemon.exit().code(), Some(69));
    assert_eq!(daemon.logged("start"), 12);
}

/// Contract: P2, P4.
#[test]
fn a_second_primary_on_the_same_directory_names_the_first() {
    let daemon = Setup::new().start(1);
    daemon.all_ready();
    let error = SlotLock::acquire(daemon.dir(), 0, Duration::ZERO).unwrap_err();
    assert!(matches!(error, LockError::Held { pid: Some(pid), .. } if pid == daemon.pid()), "{error}");
}

/// Contract: P2. Field report R42.
#[test]
fn the_lock_lasts_as_long_as_a_shard_lives_also_without_its_primary() {
    let mut daemon = Setup::new().mode(0, "survivor").start(1);
    let shard = daemon.all_ready()[0];
    daemon.process.kill().unwrap();
    eventually("the shard has seen the end of the primary", || (daemon.logged("lost") == 1).then_some(()));
    assert!(alive(shard));
    let error = SlotLock::acquire(daemon.dir(), 0, Duration::ZERO).unwrap_err();
    assert!(matches!(error, LockError::Held { .. }), "{error}");
    signal(shard, Signal::SIGKILL);
    SlotLock::acquire(daemon.dir(), 0, Duration::from_secs(20)).unwrap();
}

#[test]
fn the_service_manager_hears_from_the_primary_alone() {
    let setup = Setup::new();
    let path = setup.dir().join("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let setup = setup.env("NOTIFY_SOCKET", path.display()).env("WATCHDOG_USEC", 300_000);
    let mut daemon = setup.mode(1, "never-ready").start(2);
    let hear = || {
        let mut buffer = [0; 4096];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let hear_until = |wanted: &str| {
        let mut heard = Vec::new();
        while !heard.last().is_some_and(|last: &String| last.contains(wanted)) {
            heard.push(hear());
        }
        heard
    };
    let early = hear_until("STATUS=1 of 2 shards ready");
    assert!(!early.iter().any(|word| word.contains("READY=1")), "{early:?}");
    daemon.set_mode(1, "");
    signal(daemon.pids()[1], Signal::SIGKILL);
    hear_until("READY=1");
    hear_until("WATCHDOG=1");
    signal(daemon.pid(), Signal::SIGHUP);
    hear_until("RELOADING=1");
    hear_until("READY=1");
    signal(daemon.pid(), Signal::SIGTERM);
    hear_until("STOPPING=1");
    daemon.exit();
    assert_eq!(daemon.logged("sees the service manager"), 0);
}

/// Contract: P4.
#[test]
fn a_shard_inherits_its_link_and_its_lock_and_no_other_descriptor() {
    let setup = Setup::new().wrapped("exec 7</dev/null 9</dev/null; exec \"$@\"");
    let daemon = setup.start(2);
    daemon.all_ready();
    signal(daemon.pids()[0], Signal::SIGKILL);
    eventually("a third life", || (daemon.logged("ready") == 3).then_some(()));
    assert_eq!(daemon.logged("descriptors=5"), 3, "{:?}", daemon.log());
}

#[test]
fn a_lock_that_cannot_be_had_is_one_line() {
    let setup = Setup::new().env("LOCK_WAIT_MS", 0);
    fs::create_dir(setup.dir().join("slot-0.lock")).unwrap();
    let mut daemon = setup.start(1);
    assert_eq!(daemon.exit().code(), Some(70));
    let mut said = String::new();
    daemon.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.starts_with("cannot use the lock file") && said.lines().count() == 1, "{said}");
}
