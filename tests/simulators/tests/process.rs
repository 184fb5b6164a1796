//! The simulator as a process of its own.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
};

const BIN: &str = env!("CARGO_BIN_EXE_telegram-simulator");

#[tokio::test]
async fn it_says_where_it_is_serves_its_tokens_and_ends_with_its_input() {
    let mut child =
        Command::new(BIN).arg("5:five").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut url = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut url).expect("a line");
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let answer = client.get(format!("{}/bot5:five/getMe", url.trim())).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    drop(child.stdin.take());
    assert!(child.wait().expect("waited").success());
}

#[test]
fn arguments_that_it_does_not_know_and_addresses_beyond_loopback_are_refused() {
    let run = |arguments: &[&str]| -> Output {
        Command::new(BIN).args(arguments).stdin(Stdio::null()).output().expect("it starts")
    };
    for wrong in [&["--port"][..], &["no token"], &["x:y"], &["--listen"], &["--listen", "nowhere"]] {
        assert_eq!(run(wrong).status.code(), Some(64), "{wrong:?}");
    }
    let beyond = run(&["--listen", "0.0.0.0:0"]);
    assert_eq!(beyond.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&beyond.stderr).contains("loopback only"));
}
