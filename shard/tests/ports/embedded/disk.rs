//! A disk that is full, and one that can't be written to: refused in one line, nothing lost, and work goes on by itself.

use std::{path::Path, process::Command};

use shard::{
    identity::{QueueBase, ShardId},
    queue::{EmbeddedQueue, Message, Queue, QueueError},
    store::StoreError,
};
use tempfile::TempDir;

use super::{data_dir, open_slot};

/// A small file system of its own, unmounted when dropped.
struct Mounted(TempDir);

impl Mounted {
    /// `None` where this user can't mount; the test then says that it shows nothing.
    fn new(options: &str) -> Option<Self> {
        let dir = data_dir();
        let mounted = mount(&["-t", "tmpfs", "-o", options, "tmpfs"], dir.path());
        if !mounted {
            eprintln!("SKIPPED: mounting a tmpfs needs root; nothing was shown about full and read-only disks");
        }
        mounted.then(|| Self(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    let done = Command::new("mount").args(arguments).arg(at).output();
    done.is_ok_and(|output| output.status.success())
}

fn shard() -> ShardId {
    ShardId::new(0, 1)
}

fn one_line(error: &impl std::fmt::Display, says: &str) {
    let line = error.to_string();
    assert!(line.contains(says) && line.contains("queue.db") && !line.contains('\n'), "{line}");
}

/// Contract: Q4.
#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing_and_work_goes_on_when_there_is_space() {
    let Some(disk) = Mounted::new("size=8m") else { return };
    let name = shard().queue(QueueBase::Main);
    let queue = EmbeddedQueue::new(open_slot(disk.path(), shard(), 1).expect("opened"));
    queue.declare(name).await.expect("declared");
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 5 << 20]).expect("written");
    let mut stored = 0_usize;
    let body = |number: usize| Message::new(format!("{number:08}{}", "x".repeat(20_000)));
    let refused = loop {
        match queue.publish(name, body(stored)).await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1000, "the disk was to be full by now");
    };
    assert!(matches!(refused, QueueError::Refused { .. }), "{refused}");
    one_line(&refused, "disk");
    let again = queue.publish(name, body(stored)).await.expect_err("still full");
    assert!(matches!(again, QueueError::Refused { .. }), "{again}");

    std::fs::remove_file(ballast).expect("removed");
    queue.publish(name, body(stored)).await.expect("there is space again");
    stored += 1;
    let mut consumer = queue.consume(name, 1000).await.expect("consumes");
    for number in 0..stored {
        let delivery = consumer.next().await.expect("there").expect("delivered");
        assert!(delivery.message.body.starts_with(format!("{number:08}").as_bytes()), "nothing lost, none twice");
        queue.ack(delivery.receipt).await.expect("acked");
    }
    assert_eq!(queue.depth(name).await.expect("depth").ready, 0);
}

/// Contract: I5.
#[tokio::test]
async fn a_read_only_directory_is_refused_in_one_line_and_what_lies_there_stays() {
    let Some(disk) = Mounted::new("size=8m") else { return };
    let name = shard().queue(QueueBase::Main);
    let queue = EmbeddedQueue::new(open_slot(disk.path(), shard(), 1).expect("opened"));
    queue.declare(name).await.expect("declared");
    queue.publish(name, Message::new("kept")).await.expect("published");
    drop(queue);
    assert!(mount(&["-o", "remount,ro"], disk.path()), "remounted");
    let refused = open_slot(disk.path(), shard(), 2).expect_err("read-only");
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    one_line(&refused, "writable");
    let producer = EmbeddedQueue::producer(disk.path());
    let refused = producer.publish(name, Message::new("more")).await.expect_err("read-only");
    assert!(matches!(refused, QueueError::Refused { .. }), "{refused}");
    let elsewhere = open_slot(&disk.path().join("new"), shard(), 1).expect_err("read-only");
    assert!(matches!(elsewhere, StoreError::Refused { .. }), "{elsewhere}");

    assert!(mount(&["-o", "remount,rw"], disk.path()), "remounted");
    let queue = EmbeddedQueue::new(open_slot(disk.path(), shard(), 2).expect("opened"));
    assert_eq!(queue.depth(name).await.expect("depth").ready, 1);
}
