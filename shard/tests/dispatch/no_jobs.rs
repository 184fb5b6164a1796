//! What is no job goes to the dead letters at once, with the reason, and the shard goes on.

use std::time::{Duration, Instant};

use shard::identity::{QueueBase, QueueName};

use crate::support::{Kind, Options, World, channel, eventually, send};

fn with(field: &str, value: &str) -> Vec<u8> {
    let job = send("x", channel(0, 1), "7").to_json();
    let mut job: serde_json::Value = serde_json::from_slice(&job).expect("JSON");
    job[field] = serde_json::from_str(value).expect("JSON");
    job.to_string().into_bytes()
}

/// Contract: Q5. Field report R28.
#[tokio::test]
async fn what_is_no_job_is_a_dead_letter_with_the_field_and_the_next_job_is_done_at_once() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let bodies: Vec<(Vec<u8>, &str)> = vec![
        (br#"{"type":"send""#.to_vec(), "not JSON"),
        (Vec::new(), "not JSON"),
        (b"null".to_vec(), "found null"),
        (b"[]".to_vec(), "found an array"),
        (vec![0xff, 0xfe], "not UTF-8"),
        (vec![b' '; 40 << 20], "over the limit"),
        (format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)).into_bytes(), "not JSON"),
        (with("name", r#""sned""#), "`name`"),
        (with("id", "7"), "`id`"),
        (with("channel_id", r#""urn:uuid:1""#), "`channel_id`"),
        (with("data", "[]"), "`data`"),
        (with("data", r#"{"chat_id":"7","text":"hi","txet":"x"}"#), "txet"),
        (with("expires_at", r#""tomorrow""#), "`expires_at`"),
    ];
    let _process = world.start(0, 1, Options { prefetch: 4, ..Options::default() });
    for base in QueueBase::ALL {
        for (body, _) in &bodies {
            world.publish(QueueName::bare(base), body.clone()).await;
        }
    }
    let published = Instant::now();
    world.submit(1, &send("good", channel(0, 1), "7")).await;
    eventually("sent", async || world.wire.shown("good") == 1).await;
    assert!(published.elapsed() < Duration::from_secs(1), "{:?}", published.elapsed());
    world.empties().await;
    let dead = world.dead().await;
    assert_eq!(dead.len(), 3 * bodies.len());
    for base in QueueBase::ALL {
        let of_base = dead.iter().filter(|letter| letter.queue.base == base);
        for ((body, says), letter) in bodies.iter().zip(of_base) {
            let reason = letter.message.headers.reason.clone().unwrap_or_default();
            assert_eq!(letter.reason(), "not_a_job");
            assert!(reason.contains(says), "{reason} should say {says}");
            assert!(letter.message.body == *body, "it is kept as it was");
        }
    }
}

/// Contract: Q5. They take the place of no job, however many there are.
#[tokio::test]
async fn a_flood_of_nonsense_neither_stops_nor_reorders_jobs() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let main = QueueName::bare(QueueBase::Main);
    for number in 0..20 {
        for _ in 0..25 {
            world.publish(main, "nonsense").await;
        }
        world.submit(1, &send(&format!("j{number}"), channel(0, 1), "7")).await;
    }
    let process = world.start(0, 1, Options::default());
    world.empties().await;
    let expected: Vec<_> = (0..20).map(|number| format!("j{number}")).collect();
    assert_eq!(world.wire.order(channel(0, 1), "7"), expected);
    assert_eq!(process.metrics.jobs.with_label_values(&["whatsapp", "not_a_job"]).get(), 500);
    assert_eq!(world.dead().await.len(), 500);
}
