//! The endpoint for everything: what it is sent, and how its moods are borne.

use std::{process::Command, time::Instant};

use axum::response::IntoResponse;

use super::{
    server::{Answer, say},
    *,
};

use Destination::Endpoint;

/// Contract: E1. The request as documented, verified by the program that the documentation prints.
#[tokio::test]
async fn a_request_is_signed_so_that_the_documented_program_accepts_it() {
    let server = Server::start(|_| say(200, "thanks")).await;
    let rig = Rig::new().endpoint(&server.url("/hook?key=1"));
    let delivery = rig.start();
    rig.store(&delivery, vec![text(1, "chat", "schön \u{1F44D}"), job_done(1, "j1")], &[Endpoint]).await;
    rig.drained().await;

    let received = server.received();
    let request = received.iter().find(|request| request.path == "/hook").expect("a request");
    let event = request.event();
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!(request.header("shardvisor-event-id"), event.id.to_string());
    assert_eq!(request.header("shardvisor-event-type"), event.kind.name());
    assert_eq!(request.header("user-agent"), concat!("shardvisor/", env!("CARGO_PKG_VERSION")));
    assert_eq!(received.iter().map(|request| request.event().seq).sum::<u64>(), 1 + 2);

    let document = include_str!("../../../../../docs/events.md");
    let program = document.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program");
    let verdict = |secret: &str, header: &str, body: &[u8]| {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("body"), body).expect("written");
        let script = format!(
            "{program}\nimport sys\nbody = open('body', 'rb').read()\nprint(verify(sys.argv[1], sys.argv[2], body))\n"
        );
        let mut python = Command::new("python3");
        let output =
            python.args(["-c", &script, secret, header]).current_dir(directory.path()).output().expect("python3");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    let header = request.header("shardvisor-signature");
    assert_eq!(verdict("whsec_new", header, &request.body), "True");
    assert_eq!(verdict("whsec_old", header, &request.body), "True");
    assert_eq!(verdict("whsec_other", header, &request.body), "False");
    assert_eq!(verdict("whsec_new", header, b"{}"), "False");
    assert_eq!(verdict("whsec_new", "", &request.body), "False");
    let earlier = header.replacen("t=", "t=1", 1);
    assert_eq!(verdict("whsec_new", &earlier, &request.body), "False");
    delivery.stop().await;
}

/// Contract: E1. In order for each conversation; a failing one waits alone.
#[tokio::test]
async fn a_failing_conversation_is_retried_in_its_order_while_others_go_on() {
    let failures = AtomicUsize::new(3);
    let server = Server::start(move |request| {
        let unlucky = request.text().starts_with('a') && !used_up(&failures);
        say(if unlucky { 500 } else { 204 }, "")
    })
    .await;
    let rig = Rig::new().endpoint(&server.url("/"));
    let delivery = rig.start();
    let events = ["a1", "b1", "a2", "b2", "a3", "b3"].map(|name| text(1, &name[..1], name));
    rig.store(&delivery, events.to_vec(), &[Endpoint]).await;
    rig.drained().await;
    let texts = server.texts();
    let of = |chat: char| texts.iter().filter(|text| text.starts_with(chat)).cloned().collect::<Vec<_>>();
    assert_eq!(of('a'), ["a1", "a1", "a1", "a1", "a2", "a3"]);
    assert_eq!(of('b'), ["b1", "b2", "b3"]);
    assert_eq!((rig.count(Endpoint, "failed"), rig.count(Endpoint, "delivered")), (3, 6));
    assert_eq!(*rig.outbox.errors.lock().expect("errors"), ["answered 500"; 3]);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let server = Server::start(|request| match request.path.as_str() {
        "/" => Answer::Say((axum::http::StatusCode::TEMPORARY_REDIRECT, [("location", "/elsewhere")]).into_response()),
        _ => say(200, ""),
    })
    .await;
    let rig = Rig::new().endpoint(&server.url("/"));
    let delivery = rig.start();
    rig.store(&delivery, vec![text(1, "chat", "hi")], &[Endpoint]).await;
    until("two attempts", || server.count() >= 2).await;
    assert!(server.received().iter().all(|request| request.path == "/"));
    assert_eq!(rig.outbox.errors.lock().expect("errors")[0], "answered 307");
}

#[tokio::test]
async fn gone_and_too_large_are_buried_at_once() {
    let server = Server::start(|request| say(if request.text() == "first" { 410 } else { 413 }, "")).await;
    let rig = Rig::new().endpoint(&server.url("/"));
    let delivery = rig.start();
    rig.store(&delivery, vec![text(1, "chat", "first"), text(1, "chat", "second")], &[Endpoint]).await;
    rig.drained().await;
    assert_eq!(server.count(), 2);
    let dead = rig.outbox.dead(10).await.expect("dead");
    let told: Vec<_> = dead.iter().map(|letter| (letter.reason.as_str(), letter.attempts)).collect();
    assert_eq!(told, [("answered 410", 1), ("answered 413", 1)]);
    assert_eq!(rig.count(Endpoint, "buried"), 2);
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let first = AtomicUsize::new(1);
    let server = Server::start(move |_| {
        if used_up(&first) {
            return say(204, "");
        }
        Answer::Say((axum::http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response())
    })
    .await;
    let rig = Rig::new().endpoint(&server.url("/"));
    let delivery = rig.start();
    let started = Instant::now();
    rig.store(&delivery, vec![text(1, "chat", "hi")], &[Endpoint]).await;
    rig.drained().await;
    assert!(started.elapsed() >= Duration::from_millis(1000), "{:?}", started.elapsed());
    assert_eq!(server.count(), 2);
}

/// Nobody listens, nothing answers, and what answers is not HTTP: each is told for what it is.
#[tokio::test]
async fn a_dead_endpoint_is_told_from_a_silent_and_a_nonsensical_one() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed_address = closed.local_addr().expect("an address");
    drop(closed);
    let silent = Server::start(|_| Answer::Hang).await;
    let nonsense = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let nonsense_address = nonsense.local_addr().expect("an address");
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut stream, _)) = nonsense.accept().await {
            let mut seen = [0; 64];
            let _ = stream.read(&mut seen).await;
            let _ = stream.write_all(b"SSH-2.0-nonsense\r\n").await;
        }
    });
    let cases = [
        (format!("http://{closed_address}/"), "no connection: Connection refused"),
        (silent.url("/"), "no answer within 100ms"),
        (format!("http://{nonsense_address}/"), "request failed: "),
    ];
    for (url, expected) in cases {
        let mut rig = Rig::new().endpoint(&url);
        rig.config.endpoint_timeout = Duration::from_millis(100);
        let delivery = rig.start();
        rig.store(&delivery, vec![text(1, "chat", "hi")], &[Endpoint]).await;
        until("a failure", || !rig.outbox.errors.lock().expect("errors").is_empty()).await;
        let error = rig.outbox.errors.lock().expect("errors")[0].clone();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[tokio::test]
async fn events_for_an_endpoint_that_is_no_longer_configured_become_dead_letters() {
    let rig = Rig::new();
    let delivery = rig.start();
    rig.store(&delivery, vec![text(1, "chat", "hi")], &[Endpoint]).await;
    rig.drained().await;
    assert_eq!(rig.outbox.dead(10).await.expect("dead")[0].reason, "no endpoint is configured");
}
