//! Jobs and channels: what waits for one, what makes one come and go, and jobs whose time is over.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use shard::job::Job;
use tokio::sync::Semaphore;

use crate::support::{
    Act, Ended, Kind, Options, When, World, channel, connect, disconnect, eventually, mark_read, retry, send,
};

/// Contract: Q9.
#[tokio::test]
async fn a_job_for_a_channel_that_comes_up_later_waits_for_it_and_counts_no_attempt() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let of = channel(0, 1);
    world.starting(of);
    for id in ["a", "b"] {
        world.submit(1, &send(id, of, "7")).await;
    }
    world.submit(1, &send("other", channel(0, 2), "7")).await;
    let process = world.start(0, 1, Options::default());
    eventually("another channel's is sent", async || world.wire.shown("other") == 1).await;
    assert_eq!(world.wire.begun(), 1);
    world.ready(of);
    world.empties().await;
    assert_eq!(world.wire.order(of, "7"), ["a", "b"]);
    assert_eq!(process.metrics.jobs.with_label_values(&["whatsapp", "retried"]).get(), 0);
}

/// Contract: Q9. A restart while it waits costs it nothing either.
#[tokio::test]
async fn a_restart_does_not_fail_what_waits_for_its_channel() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let of = channel(0, 1);
    world.starting(of);
    world.submit(1, &send("a", of, "7")).await;
    for stops in [true, false, true] {
        let process = world.start(0, 1, Options { grace: Duration::from_millis(100), ..Options::default() });
        eventually("it is waited for", async || {
            process.metrics.jobs_running.with_label_values(&["whatsapp"]).get() == 1
        })
        .await;
        if stops {
            process.stop()
        } else {
            process.kill()
        };
    }
    world.ready(of);
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    assert_eq!(world.wire.shown("a"), 1);
    assert!(world.dead().await.is_empty());
}

/// Contract: Q3, E1. `disconnect`, then `connect`: each in its place, and told.
#[tokio::test]
async fn a_disconnect_and_a_connect_divide_what_is_before_and_behind_them() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let of = channel(0, 1);
    let gate = Arc::new(Semaphore::new(0));
    world.wire.script("before", [Act::Gate(gate.clone())]);
    world.submit(1, &send("before", of, "7")).await;
    world.submit(1, &disconnect("off", of)).await;
    world.submit(1, &connect("on", of)).await;
    world.submit(1, &send("behind", of, "8")).await;
    let _process = world.start(0, 1, Options::default());
    eventually("on the wire", async || world.wire.begun() == 1).await;
    assert!(world.controls().is_empty());
    gate.add_permits(1);
    world.empties().await;
    assert_eq!(world.controls(), [(of, false), (of, true)]);
    let order: Vec<_> = world.wire.frames().into_iter().map(|frame| frame.job).collect();
    assert_eq!(order, ["before", "behind"]);
    let told = world.told().await;
    for id in ["before", "off", "on", "behind"] {
        assert_eq!(told.done(id).len(), 1, "{id}");
    }
}

/// Contract: Q4.
#[tokio::test]
async fn a_connect_of_an_unknown_channel_ends_as_a_dead_letter() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.unknown(channel(0, 1));
    world.submit(1, &connect("on", channel(0, 1))).await;
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    assert_eq!(world.dead_letter("on").await.expect("a dead letter").reason(), "unknown_channel");
}

fn expiring(job: Job, after: Duration) -> Job {
    let at = Timestamp::now() + jiff::SignedDuration::try_from(after).expect("short");
    Job { expires_at: Some(at), ..job }
}

/// Contract: Q1.
#[tokio::test]
async fn a_job_whose_time_is_over_is_a_dead_letter_and_is_not_done() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let of = channel(0, 1);
    for job in [send("sent", of, "7"), mark_read("read", of, "8")] {
        world.submit(1, &expiring(job, Duration::ZERO)).await;
    }
    // Its time ends while its channel is waited for, and while it waits for its next attempt.
    world.starting(channel(0, 2));
    world.submit(1, &expiring(send("waits", channel(0, 2), "7"), Duration::from_millis(300))).await;
    world.wire.script("fails", vec![Act::Fail(retry()); 3]);
    world.submit(1, &expiring(send("fails", of, "9"), Duration::from_millis(1))).await;
    world.submit(1, &expiring(send("in time", of, "7"), Duration::from_secs(60))).await;
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    for id in ["sent", "read", "waits", "fails"] {
        assert_eq!(world.dead_letter(id).await.expect("a dead letter").reason(), "expired", "{id}");
        assert_eq!(world.wire.shown(id), 0, "{id}");
    }
    assert_eq!(world.wire.shown("in time"), 1);
    let told = world.told().await;
    for id in ["sent", "read", "fails"] {
        assert_eq!(told.failed(id).len(), 1, "{id}");
    }
}

/// Contract: Q1, Q8. It was sent in time; that its process died before it was settled makes it no failure.
#[tokio::test]
async fn what_was_sent_in_time_is_done_even_when_it_is_settled_late() {
    for kind in [Kind::Chosen, Kind::Given] {
        let world = World::new(kind);
        world.declare(1).await;
        world.faults.die("ack", When::Before);
        world.submit(1, &expiring(send("a", channel(0, 1), "7"), Duration::from_secs(1))).await;
        assert_eq!(world.start(0, 1, Options::default()).ends().await, Ended::Crashed);
        let deadline = Timestamp::now() + jiff::SignedDuration::from_secs(1);
        eventually("its time is over", async || Timestamp::now() > deadline).await;
        let _process = world.start(0, 1, Options::default());
        world.empties().await;
        assert!(world.dead().await.is_empty());
        let told = world.told().await;
        assert_eq!((told.done("a").len(), told.failed("a").len()), (1, 0));
        assert_eq!(world.wire.frames_of("a").len(), 1);
    }
}
