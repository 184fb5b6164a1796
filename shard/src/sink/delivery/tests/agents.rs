//! Handlers: echo, agents, and what goes wrong between an answer and its jobs.

use std::time::Instant;

use super::{
    server::{Answer, say},
    *,
};
use crate::sink::MAX_ANSWER_BYTES;

use Destination::Handler;

fn agent(server: &Server, path: &str) -> HandlerSettings {
    HandlerSettings::agent(&server.url(path), Some(Secret::new("agent-secret")))
}

/// Contract: E2.
#[tokio::test]
async fn echo_answers_without_a_request_or_a_read() {
    let rig = Rig::new().handler(1, HandlerSettings::Echo);
    let delivery = rig.start();
    until("the outbox was looked through", || rig.outbox.reads.load(Ordering::SeqCst) == 2).await;
    rig.store(&delivery, vec![text(1, "chat", "the first of its channel is read")], &[Handler]).await;
    rig.drained().await;
    let reads = rig.outbox.reads.load(Ordering::SeqCst);
    let events: Vec<_> = (0..100).map(|n| text(1, &format!("chat-{}", n % 10), &n.to_string())).collect();
    let ids: Vec<_> = events.iter().map(|event| format!("reply:{}:0", event.id)).collect();
    for some in events.chunks(20) {
        for event in some {
            rig.store(&delivery, vec![event.clone()], &[Handler]).await;
        }
        rig.drained().await;
    }
    assert_eq!(rig.outbox.reads.load(Ordering::SeqCst), reads);
    let mut answered = rig.replies.ids().split_off(1);
    let mut expected = ids;
    answered.sort();
    expected.sort();
    assert_eq!(answered, expected);
}

/// Contract: E2. The request is signed with the channel's own secret, and its answer is queued before it is marked.
#[tokio::test]
async fn an_agents_answer_is_queued_before_the_event_is_marked() {
    let server = Server::start(|request| match request.text().as_str() {
        "silence" => say(204, ""),
        _ => say(200, r#"{"replies":[{"text":"one"},{"text":"two"}]}"#),
    })
    .await;
    let rig = Rig::new().handler(1, agent(&server, "/agent"));
    *rig.replies.outbox.lock().expect("outbox") = Some(rig.outbox.clone());
    let delivery = rig.start();
    let events = vec![text(1, "chat", "question"), text(1, "chat", "silence"), text(1, "chat", "again")];
    let ids: Vec<_> = events.iter().map(|event| event.id).collect();
    rig.store(&delivery, events, &[Handler]).await;
    rig.drained().await;
    let expected = [ids[0], ids[2]].map(|id| [0, 1].map(|n| format!("reply:{id}:{n}"))).concat();
    assert_eq!(rig.replies.ids(), expected);
    let marked_before = rig.replies.marked_before.lock().expect("marks").clone();
    assert!(marked_before[0] == 0 && marked_before[1] <= 2, "{marked_before:?}");
    let request = &server.received()[0];
    let seconds: i64 = request.header("shardvisor-signature")[2..12].parse().expect("seconds");
    let signature = crate::sink::sign(&[Secret::new("agent-secret")], seconds, &request.body).expect("signed");
    assert_eq!(request.header("shardvisor-signature"), signature);
}

#[tokio::test]
async fn what_no_handler_waits_for_is_not_asked_about() {
    let server = Server::start(|_| say(204, "")).await;
    let rig = Rig::new().handler(1, agent(&server, "/")).handler(2, HandlerSettings::None);
    let delivery = rig.start();
    rig.store(&delivery, vec![job_done(1, "j"), text(1, "chat", "hi")], &[Handler]).await;
    rig.store(&delivery, vec![text(2, "chat", "to nobody")], &[Handler]).await;
    rig.drained().await;
    assert_eq!(server.texts(), ["hi"]);
    assert_eq!(rig.count(Handler, "skipped"), 2);
}

/// Contract: E2, Q8. A crash between an answer and its mark: the agent is asked again, and the jobs have the same ids.
#[tokio::test]
async fn an_answer_given_twice_has_the_same_job_ids() {
    let server = Server::start(|_| say(200, r#"{"reply":"yes"}"#)).await;
    let rig = Rig::new().handler(1, agent(&server, "/"));
    let delivery = rig.start();
    rig.outbox.away.store(true, Ordering::SeqCst);
    rig.store(&delivery, vec![text(1, "chat", "question")], &[Handler]).await;
    until("an answer that could not be marked", || rig.outbox.missed.load(Ordering::SeqCst) > 0).await;
    drop(delivery);
    rig.outbox.away.store(false, Ordering::SeqCst);
    assert_eq!(rig.outbox.open_count(), 1);

    let _delivery = rig.start();
    rig.drained().await;
    let ids = rig.replies.ids();
    assert_eq!((ids.len(), server.count()), (2, 2));
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn answers_that_make_no_sense_are_retried_a_few_times_and_then_buried() {
    let server = Server::start(|request| match request.text().as_str() {
        "nonsense" => say(200, "<html>PRIVATE</html>"),
        "endless" => say(200, &"x".repeat(MAX_ANSWER_BYTES + 1)),
        _ => say(200, r#"{"reply":"fine"}"#),
    })
    .await;
    let rig = Rig::new().handler(1, agent(&server, "/"));
    let delivery = rig.start();
    let events = ["nonsense", "endless", "sense"].map(|name| text(1, "chat", name));
    rig.store(&delivery, events.to_vec(), &[Handler]).await;
    rig.drained().await;
    assert_eq!(
        server.texts(),
        [["nonsense"; 5], ["endless"; 5]].concat().into_iter().chain(["sense"]).collect::<Vec<_>>()
    );
    let dead = rig.outbox.dead(10).await.expect("dead");
    let reasons: Vec<_> = dead.iter().map(|letter| (letter.reason.as_str(), letter.attempts)).collect();
    let expected = [
        ("given up after 5 attempts: the answer is not JSON: line 1 column 1", 5),
        ("given up after 5 attempts: the answer is over 262144 bytes", 5),
    ];
    assert_eq!(reasons, expected);
    assert_eq!(rig.count(Handler, "malformed"), 10);
}

/// Contract: E1.
#[tokio::test]
async fn a_hanging_agent_holds_no_other_channel_back() {
    let slow = Server::start(|_| Answer::Hang).await;
    let quick = Server::start(|_| say(200, r#"{"reply":"here"}"#)).await;
    let mut rig =
        Rig::new().handler(1, agent(&slow, "/")).handler(2, agent(&quick, "/")).handler(3, HandlerSettings::Echo);
    rig.config.stop_grace = Duration::from_millis(50);
    let delivery = rig.start();
    for n in 0..200 {
        rig.store(&delivery, vec![text(1, &format!("chat-{n}"), &n.to_string())], &[Handler]).await;
    }
    until("the slow one is busy", || slow.count() == 8).await;
    for n in 0..50 {
        rig.store(&delivery, vec![text(2, "chat", &n.to_string())], &[Handler]).await;
        rig.store(&delivery, vec![text(3, "chat", &n.to_string())], &[Handler]).await;
    }
    until("the others are answered", || rig.replies.ids().len() == 100).await;
    assert_eq!((slow.count(), quick.count()), (8, 50));
    in_time("stop gives up what hangs", delivery.stop()).await;
    assert_eq!(rig.outbox.open_count(), 200);
}

/// An agent that has answered is not asked again for a queue that hiccups; one that panics inside is a failure.
#[tokio::test]
async fn replies_are_handed_over_again_without_asking_again() {
    let server = Server::start(|_| say(200, r#"{"reply":"yes"}"#)).await;
    let rig = Rig::new().handler(1, agent(&server, "/"));
    let delivery = rig.start();
    rig.replies.failing.store(2, Ordering::SeqCst);
    rig.store(&delivery, vec![text(1, "chat", "question")], &[Handler]).await;
    rig.drained().await;
    assert_eq!((server.count(), rig.replies.ids().len()), (1, 1));

    rig.replies.panicking.store(1, Ordering::SeqCst);
    rig.store(&delivery, vec![text(1, "chat", "another")], &[Handler]).await;
    rig.drained().await;
    assert_eq!((server.count(), rig.replies.ids().len()), (3, 2));
    assert_eq!(*rig.outbox.errors.lock().expect("errors"), ["the delivery panicked"]);
}

#[tokio::test]
async fn a_channel_that_becomes_known_is_served_at_once() {
    let mut rig = Rig::new();
    rig.config.backoff = Backoff::default();
    let delivery = rig.start();
    rig.store(&delivery, vec![text(1, "chat", "early")], &[Handler]).await;
    until("it was looked at", || rig.count(Handler, "unknown") == 1).await;
    let started = Instant::now();
    let rig = rig.handler(1, HandlerSettings::Echo);
    delivery.handler_changed(channel(1));
    rig.drained().await;
    assert!(started.elapsed() < Duration::from_millis(700), "{:?}", started.elapsed());
    assert_eq!(rig.replies.ids().len(), 1);
}

#[tokio::test]
async fn a_handler_whose_settings_are_broken_says_so_and_waits_for_better_ones() {
    let rig = Rig::new().handler(1, HandlerSettings::agent("htp:/agent", None));
    let delivery = rig.start();
    rig.store(&delivery, vec![text(1, "chat", "hi")], &[Handler]).await;
    until("a failure", || !rig.outbox.errors.lock().expect("errors").is_empty()).await;
    let expected = "the handler's URL: expected an http: or https: URL with a host";
    assert_eq!(rig.outbox.errors.lock().expect("errors")[0], expected);
    let rig = rig.handler(1, HandlerSettings::Echo);
    delivery.handler_changed(channel(1));
    rig.drained().await;
    assert_eq!(rig.replies.ids().len(), 1);
}
