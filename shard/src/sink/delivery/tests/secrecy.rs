//! No secret and no URL leaves by a log line, an error or a metric.

use std::io;

use prometheus::{Encoder, TextEncoder};

use super::{server::say, *};

use Destination::{Endpoint, Handler};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Contract: E1. Field report R22.
#[tokio::test]
async fn secrets_urls_and_texts_are_in_no_log_error_or_metric() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let server = Server::start(|request| match request.path.as_str() {
        "/hidden-path-works" => say(204, ""),
        "/hidden-path-nonsense" => say(200, "hidden-answer"),
        _ => say(410, "hidden-answer"),
    })
    .await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let dead = closed.local_addr().expect("an address");
    drop(closed);
    let with_user =
        |address: &str, path: &str| format!("http://hidden-user:hidden-password@{address}{path}?hidden-query=1");
    let secret = || Some(Secret::new("hidden-secret"));
    let mut settings = Vec::new();
    let mut rig = Rig::new();
    for (of, url) in [
        (1, with_user(&dead.to_string(), "/hidden-path")),
        (2, with_user(&server.address, "/hidden-path-works")),
        (3, with_user(&server.address, "/hidden-path-nonsense")),
        (4, with_user("hidden-host.invalid", "/hidden-path")),
        (5, with_user("", "/hidden-path")),
    ] {
        settings.push(format!("{:?}", HandlerSettings::agent(&url, secret())));
        rig = rig.handler(of, HandlerSettings::agent(&url, secret()));
    }
    rig = rig.endpoint(&with_user(&server.address, "/hidden-path-gone"));
    settings.push(format!("{:?}", rig.config).replace("hidden-host.invalid", ""));
    let delivery = rig.start();
    for of in 1..=5 {
        for chat in ["a", "b", "c", "d"] {
            rig.store(&delivery, vec![text(of, chat, &format!("hidden-text {of} {chat}"))], &[Endpoint, Handler]).await;
        }
    }
    until("each has failed", || rig.count(Endpoint, "buried") == 20 && rig.count(Handler, "failed") > 20).await;
    until("nonsense is buried", || rig.count(Handler, "buried") == 4).await;
    until("what works has worked", || rig.count(Handler, "delivered") == 4).await;
    delivery.stop().await;

    // They were sent, of course: as what they are.
    let sent = server.received();
    assert!(sent.iter().all(|request| request.header("authorization").starts_with("Basic ")));

    let mut metrics = Vec::new();
    TextEncoder::new().encode(&rig.metrics.gather(), &mut metrics).expect("encoded");
    let reasons: Vec<_> = rig.outbox.dead.lock().expect("dead").iter().map(|letter| letter.reason.clone()).collect();
    let said = [
        String::from_utf8(log.0.lock().expect("log").clone()).expect("text"),
        rig.outbox.errors.lock().expect("errors").join("\n"),
        reasons.join("\n"),
        String::from_utf8(metrics).expect("text"),
        settings.join("\n").replace("hidden-host.invalid", ""),
    ];
    assert!(
        said[0].contains("deliveries fail") && said[0].contains("dead letters"),
        "nothing was logged:\n{}",
        said[0]
    );
    for (n, said) in said.iter().enumerate() {
        for line in said.lines().filter(|line| line.contains(" shard::") || n > 0) {
            assert!(!line.contains("hidden"), "{line}");
        }
    }
    let ours = |line: &&str| {
        line.contains("hidden-secret") || line.contains("hidden-password") || line.contains("hidden-text")
    };
    assert_eq!(said[0].lines().find(ours), None);
}
