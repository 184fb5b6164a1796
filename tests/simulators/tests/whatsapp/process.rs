//! The simulator as a process of its own, driven by lines.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
};

use crate::device::SOON;

#[tokio::test]
async fn phones_of_a_simulator_that_runs_by_itself_chat_and_it_ends_with_its_input() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_whatsapp-simulator"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let conversation = async {
        for word in ["url ws://127.0.0.1:", "media http://127.0.0.1:", "root "] {
            let line = output.next_line().await.expect("readable").expect("a line");
            assert!(line.starts_with(word), "{line}");
        }
        input.write_all(b"devices 15550000002\nsay 15550000001 15550000002 hello\n").await.expect("written");
        loop {
            let line = output.next_line().await.expect("readable").expect("a line");
            if line == "shown to 15550000002 in 15550000001@s.whatsapp.net by 15550000001:0: hello" {
                break;
            }
        }
        drop(input);
        assert!(child.wait().await.expect("waited").success());
    };
    tokio::time::timeout(SOON, conversation).await.expect("in time");
}
