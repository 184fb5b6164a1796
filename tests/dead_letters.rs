//! Dead letters as an operator meets them: listed, replayed and dropped from the command line, on a store that a shard
//! has filled.

mod support;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use shard::{
    clock::SystemClock,
    event::{Event, EventKind, JobDone},
    identity::{ChannelId, QueueBase, QueueName, ShardId},
    platform::PlatformKind,
    queue::{EmbeddedQueue, Headers, Message, Queue},
    registry::{Fence, Holder},
    sink::{Batch, Destination, Outbox, outbox::EmbeddedOutbox},
    store::SlotStore,
};
use support::Home;

const CHANNEL: &str = "6f9619ff-8b86-4011-b42d-00c04fc964ff";

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn slot(home: &Home, index: u32, count: u32) -> Arc<SlotStore> {
    let holder = Holder { worker: "box".to_owned(), incarnation: 1 };
    SlotStore::open(&home.data_dir(), ShardId::new(index, count), &holder, Arc::new(SystemClock)).expect("the slot")
}

/// Buries bodies in a queue, as a shard does.
fn bury(home: &Home, name: QueueName, count: u32, bodies: &[String]) {
    runtime().block_on(async {
        let queue = EmbeddedQueue::new(slot(home, name.index.unwrap_or(0), count));
        queue.declare(name).await.expect("declared");
        let mut consumer = queue.consume(name, 100).await.expect("subscribed");
        for body in bodies {
            queue.publish(name, Message::new(body.clone())).await.expect("published");
            let delivery = consumer.next().await.expect("a delivery").expect("readable");
            let headers = Headers {
                attempts: 8,
                last_error: Some("chat not found".to_owned()),
                reason: Some("bad_recipient".to_owned()),
                ..Headers::default()
            };
            let dead = Message { headers, ..delivery.message };
            queue.bury(delivery.receipt, dead).await.expect("buried");
        }
    });
}

fn job(id: &str) -> String {
    json!({"name": "send", "id": id, "channel_id": CHANNEL, "data": {"chat_id": "7", "text": "private"}}).to_string()
}

fn waiting(home: &Home, name: QueueName) -> (u64, u64) {
    runtime().block_on(async {
        let depth = EmbeddedQueue::producer(&home.data_dir()).depth(name).await.expect("a depth");
        (depth.ready, depth.dead)
    })
}

/// Contract: Q4. The list for people shows no message text; JSON shows all.
#[test]
fn dead_jobs_are_listed_replayed_and_dropped() {
    let home = Home::new();
    let name = QueueName::bare(QueueBase::Main);
    bury(&home, name, 1, &[job("a"), job("b"), "no job".to_owned(), job("d")]);

    let listed = home.ok(&["dead", "list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 4, "{listed}");
    assert!(
        lines[0].ends_with(&format!("send \"a\" of {CHANNEL}: bad_recipient after 8 attempts: chat not found")),
        "{listed}"
    );
    assert!(lines[2].contains("no job: bad_recipient") && !listed.contains("private"), "{listed}");
    let objects: Vec<Value> =
        home.ok(&["dead", "list", "--json"]).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects[0]["body"], job("a"));
    let number = |at: usize| objects[at]["number"].to_string();

    assert_eq!(home.ok(&["dead", "replay", "--queue", "whatsapp", &number(0), &number(1)]), "2 replayed");
    assert_eq!(waiting(&home, name), (2, 2));
    let refused = home.run(&["dead", "replay", "--queue", "whatsapp", &number(2)]);
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is no job and can only be dropped"), "{refused:?}");
    let gone = home.run(&["dead", "drop", "--queue", "whatsapp", &number(0)]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("there is no number"), "{gone:?}");
    assert_eq!(home.ok(&["dead", "drop", "--queue", "whatsapp", &number(2)]), "1 dropped");
    assert_eq!(home.ok(&["dead", "drop", "--all"]), "1 dropped");
    assert_eq!(waiting(&home, name), (2, 0));
}

/// Contract: Q7. What died under another shard count is replayed to where its channel's work is done now.
#[test]
fn a_dead_job_of_a_former_layout_goes_to_the_queue_of_today() {
    let home = Home::new().with("SHARD_COUNT", "4");
    bury(&home, QueueName::bare(QueueBase::Main), 1, &[job("a")]);
    assert_eq!(home.ok(&["dead", "replay", "--all"]), "1 replayed");
    let today: QueueName = "whatsapp-3".parse().expect("a queue");
    assert_eq!(waiting(&home, today), (1, 0));
}

/// Contract: E1.
#[test]
fn dead_events_are_listed_replayed_and_dropped_by_destination() {
    let home = Home::new();
    let channel: ChannelId = CHANNEL.parse().expect("a channel");
    let event = |key: &str| {
        let kind =
            EventKind::JobDone(JobDone { job_id: key.to_owned(), name: "send".to_owned(), ..JobDone::default() });
        Event::new(channel, PlatformKind::Telegram, None, Timestamp::UNIX_EPOCH, key, kind)
    };
    let ids = runtime().block_on(async {
        let slot = slot(&home, 0, 1);
        EmbeddedQueue::new(slot.clone()).declare(QueueName::bare(QueueBase::Main)).await.expect("declared");
        let outbox = EmbeddedOutbox::new(slot);
        let batch = Batch { fence: Fence { channel, token: 1 }, events: vec![event("a"), event("b")], offset: None };
        let stored = outbox.append(batch, &[Destination::Handler, Destination::Endpoint]).await.expect("stored");
        for event in &stored {
            outbox.bury(event.position, Destination::Endpoint, "gone: HTTP 410").await.expect("buried");
        }
        stored.iter().map(|stored| stored.event.id.to_string()).collect::<Vec<_>>()
    });
    let listed = home.ok(&["dead", "list", "--events"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let first = format!("{}/endpoint", ids[0]);
    assert!(listed.starts_with(&format!("{first} job.done of {CHANNEL}: gone: HTTP 410")), "{listed}");
    let object: Value =
        serde_json::from_str(home.ok(&["dead", "list", "--events", "--json"]).lines().next().expect("one"))
            .expect("JSON");
    assert_eq!((&object["name"], &object["event"]["data"]["job_id"]), (&json!(first), &json!("a")));

    assert_eq!(home.ok(&["dead", "replay", "--events", &first]), "1 replayed");
    let again = home.run(&["dead", "replay", "--events", &first]);
    assert_eq!(again.status.code(), Some(69), "{again:?}");
    assert_eq!(home.ok(&["dead", "drop", "--events", "--all"]), "1 dropped");
    assert_eq!(home.ok(&["dead", "list", "--events"]), "");
}
