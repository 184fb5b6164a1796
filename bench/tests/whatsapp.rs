//! A small version of `just bench-whatsapp` of each run of the suite: everybody is linked and logs in, and nothing that is said is
//! lost or told twice.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The daemon that the same build made.
fn daemon(beside: &Path) -> Option<PathBuf> {
    let path = beside.with_file_name("shardvisor");
    let required = std::env::var("SERVERS").is_ok_and(|value| value == "required");
    assert!(path.exists() || !required, "{} is missing: build the whole workspace", path.display());
    if !path.exists() {
        eprintln!("SKIPPED: {} is missing; a build of the whole workspace makes it", path.display());
    }
    path.exists().then_some(path)
}

/// Contract: Q1, C1, E1.
#[test]
fn forty_linked_channels_log_in_and_answer_while_histories_come() {
    let bench = Path::new(env!("CARGO_BIN_EXE_bench-whatsapp"));
    let Some(daemon) = daemon(bench) else { return };
    let mut command = Command::new(bench);
    command.arg("--daemon").arg(daemon);
    command.args("--channels 40 --pre-keys 20 --idle 3 --load 4 --rate 20 --storm 4 --chats 10".split(' '));
    let output = command.output().expect("it runs");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let row = |name: &str| {
        let row = said.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name:?} in {said}"));
        let seen = row.split('|').nth(2).expect("a figure").trim().to_owned();
        eprintln!("{row}");
        seen
    };
    let seconds = |seen: &str| seen.strip_suffix(" s").and_then(|seen| seen.parse::<f64>().ok()).expect("seconds");
    assert!(seconds(&row("from start to all logged in")) < 20.0);
    let counted = row("answered once / lost / doubled");
    let counted: Vec<u32> = counted.split('/').map(|part| part.trim().parse().expect("a number")).collect();
    assert!(counted[0] > 40, "{counted:?}");
    assert_eq!(counted[1..], [0, 0], "lost or doubled");
}
