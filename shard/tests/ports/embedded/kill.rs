//! A real process that is killed at any moment: what it was told is stored is there.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use rand::Rng;
use shard::{
    identity::{QueueBase, ShardId},
    queue::{Delivery, EmbeddedQueue, Message, Queue},
    sink::{Outbox, outbox::EmbeddedOutbox},
};

use super::{data_dir, open_slot};
use crate::suites::{
    outbox::{batch, channel},
    within,
};

const DIR: &str = "SHARD_TEST_KILLED_IN";
const INCARNATION: &str = "SHARD_TEST_INCARNATION";
const CHILD: &str = "embedded::kill::the_process_that_is_killed";

fn shard() -> ShardId {
    ShardId::new(0, 1)
}

fn said(line: &str) {
    // One write a line: what the parent reads was confirmed.
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).expect("the parent reads");
}

/// Publishes, stores an event and acks some of what comes, for ever; says so after each confirmation.
async fn work(dir: &Path, incarnation: u64) {
    let slot = open_slot(dir, shard(), incarnation).expect("opened");
    let (queue, outbox) = (EmbeddedQueue::new(slot.clone()), EmbeddedOutbox::new(slot));
    let name = shard().queue(QueueBase::Main);
    queue.declare(name).await.expect("declared");
    let mut consumer = queue.consume(name, 8).await.expect("consumes");
    let mut number = incarnation * 1_000_000;
    said("begins");
    loop {
        for _ in 0..2 {
            number += 1;
            queue.publish(name, Message::new(number.to_string())).await.expect("published");
            said(&format!("published {number}"));
        }
        // What is stored behind a leading write is never there without it, whether or not that one was answered by then.
        number += 1;
        let leading = queue.publish_guarded(name, Message::new(number.to_string()));
        let told = Arc::new(|_| {});
        let following = async {
            let batch = batch(1, 1, &[&number.to_string()], Some(number as i64));
            outbox.append_leading(batch, &[], told).await.expect("stored");
            said(&format!("published {number}"));
            said(&format!("offset {number}"));
        };
        let (published, ()) = tokio::join!(leading, following);
        published.expect("published");
        for _ in 0..2 {
            let delivery = consumer.next().await.expect("there").expect("delivered");
            let body = text(&delivery);
            queue.ack(delivery.receipt).await.expect("acked");
            said(&format!("acked {body}"));
        }
    }
}

fn text(delivery: &Delivery) -> u64 {
    std::str::from_utf8(&delivery.message.body).expect("text").parse().expect("a number")
}

/// The child's side: without the environment that its parent sets there is nothing to do.
#[tokio::test]
async fn the_process_that_is_killed() {
    if let (Ok(dir), Ok(incarnation)) = (std::env::var(DIR), std::env::var(INCARNATION)) {
        work(Path::new(&dir), incarnation.parse().expect("a number")).await;
    }
}

/// Contract: Q2, E1. Eight lives, each killed at random.
#[tokio::test]
async fn whatever_was_confirmed_before_a_kill_is_there_after_it() {
    let dir = data_dir();
    let name = shard().queue(QueueBase::Main);
    // What must be there, and what may be: its confirmation was on its way.
    let (mut must, mut acked, mut offset) = (BTreeSet::new(), BTreeSet::new(), 0);
    for life in 0..8_u64 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", CHILD, "--nocapture"])
            .env(DIR, dir.path())
            .env(INCARNATION, (life * 2 + 1).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut left: usize = rand::rng().random_range(5..150);
        let mut heard = Vec::new();
        for line in lines.by_ref() {
            heard.push(line.expect("a line"));
            left -= 1;
            if left == 0 {
                break;
            }
        }
        child.kill().expect("killed");
        child.wait().expect("reaped");
        heard.extend(lines.map_while(Result::ok));
        assert!(heard.iter().any(|line| line.ends_with("begins")), "the child worked: {heard:?}");
        for line in &heard {
            // The test harness prints the child's name before its first line.
            let words: Vec<_> = line.split_whitespace().rev().take(2).collect();
            match words[..] {
                [number, "published"] => drop(must.insert(number.parse::<u64>().expect("a number"))),
                [number, "acked"] => drop(acked.insert(number.parse::<u64>().expect("a number"))),
                [number, "offset"] => offset = number.parse::<i64>().expect("a number"),
                _ => {}
            }
        }

        let slot = open_slot(dir.path(), shard(), life * 2 + 2).expect("opened");
        let (queue, outbox) = (EmbeddedQueue::new(slot.clone()), EmbeddedOutbox::new(slot));
        let stored = outbox.offset(channel(1)).await.expect("read");
        assert!(stored.unwrap_or(0) >= offset, "{stored:?} after {offset} was confirmed");
        let ready = queue.depth(name).await.expect("depth").ready;
        let mut consumer = queue.consume(name, u16::MAX).await.expect("consumes");
        let mut found = Vec::new();
        for _ in 0..ready {
            found.push(text(&within("a delivery", consumer.next()).await.expect("there").expect("delivered")));
        }
        assert!(found.is_sorted_by(|a, b| a < b), "in order, and none twice");
        let found: BTreeSet<_> = found.into_iter().collect();
        assert!(found.is_disjoint(&acked), "what was acked stays away");
        let missing: Vec<_> = must.difference(&acked).filter(|number| !found.contains(number)).collect();
        assert!(missing.len() <= 1, "one ack may have been on its way, but {missing:?} are gone");
        acked.extend(missing.into_iter().copied().collect::<Vec<_>>());
        must.extend(found);
    }
}
