//! The first command of README.

mod support;

use serde_json::Value;
use support::Home;

fn summary(args: &[&str]) -> Value {
    let output = Home::new().run(&[&["demo", "--json", "--for", "5s"], args].concat());
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    serde_json::from_str(said.lines().last().expect("a line")).expect("JSON")
}

fn is_clean(told: &Value) {
    assert!(told["received"].as_u64() > Some(0), "{told}");
    assert_eq!(told["answered"], told["received"], "{told}");
    for none in ["lost", "duplicated", "out_of_order"] {
        assert_eq!(told[none], 0, "{told}");
    }
    assert!(told["p50_ms"].is_number() && told["p99_ms"].is_number(), "{told}");
}

/// Contract: Q2, Q3.
#[test]
fn two_hundred_channels_on_two_shards_answer_every_message_once() {
    let told = summary(&["--channels", "200"]);
    assert_eq!((&told["channels"], &told["shards"]), (&200.into(), &2.into()));
    is_clean(&told);
}

#[test]
fn both_platforms_are_shown_together() {
    is_clean(&summary(&["--platforms", "telegram,slack", "--channels", "8"]));
}

/// Devices are linked first: their phones scan the codes.
#[cfg(feature = "loopback")]
#[test]
fn a_loopback_build_shows_linked_devices_beside_the_others() {
    is_clean(&summary(&["--platforms", "whatsapp", "--channels", "6"]));
    is_clean(&summary(&["--platforms", "telegram,slack,whatsapp", "--channels", "9"]));
}

/// Contract: I5.
#[test]
fn what_can_not_be_shown_is_refused_in_one_line() {
    for args in [&["--platforms", "telegram,slack", "--channels", "1"][..], &["--platforms", "pigeon"][..]] {
        let output = Home::new().run(&[&["demo"], args].concat());
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{output:?}");
    }
}

/// Asked to end, it takes its daemon and its files along.
#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let tmp = tempfile::tempdir().expect("a directory");
    let mut command = Home::new().command(&["demo", "--for", "60s"]);
    let log = std::fs::File::create(tmp.path().join("said")).expect("a file");
    std::fs::create_dir(tmp.path().join("tmp")).expect("a directory");
    let mut child = command.env("TMPDIR", tmp.path().join("tmp")).stdout(log).spawn().expect("started");
    let said = || std::fs::read_to_string(tmp.path().join("said")).unwrap_or_default();
    let soon = std::time::Duration::from_secs(30);
    support::wait_for("the demo", soon, || said().contains("all connected").then_some(()));
    let daemons = support::children(child.id());
    let shards: Vec<u32> = daemons.iter().flat_map(|pid| support::children(*pid)).collect();
    assert_eq!((daemons.len(), shards.len()), (1, 2));
    support::signal(child.id(), 2);
    support::wait_for("its end", soon, || child.try_wait().expect("looked"));
    assert!(daemons.into_iter().chain(shards).all(|pid| !support::alive(pid)));
    assert_eq!(std::fs::read_dir(tmp.path().join("tmp")).expect("read").count(), 0);
}
