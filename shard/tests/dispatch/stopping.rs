//! A shard that is asked to stop finishes what it can, gives back the rest in order, and counts nothing against anybody.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use shard::identity::{QueueBase, QueueName};
use tokio::sync::Semaphore;

use crate::support::{Act, Ended, Kind, Options, World, channel, eventually, retry, send};

/// Contract: Q10. Field report R31.
#[tokio::test]
async fn a_stop_finishes_the_fast_graces_the_slow_and_returns_the_rest() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let (fast, half) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    world.wire.script("fast", [Act::Gate(fast.clone())]);
    world.wire.script("half", [Act::Gate(half.clone())]);
    world.submit(1, &send("fast", channel(0, 1), "7")).await;
    world.submit(1, &send("half", channel(0, 1), "8")).await;
    for number in 0..5 {
        world.submit(1, &send(&format!("j{number}"), channel(0, 1), "8")).await;
    }
    let process = world.start(0, 1, Options::default());
    eventually("both are on the wire", async || world.wire.begun() == 2).await;
    process.ask_to_stop();
    let asked = Instant::now();
    fast.add_permits(1);
    let main = QueueName::bare(QueueBase::Main);
    eventually("the fast one is done", async || world.depth(main).await.ready == 6).await;
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert!(!process.has_ended(), "the other one has its grace");
    half.add_permits(1);
    assert_eq!(process.ends().await, Ended::Stopped);
    assert_eq!(world.depth(main).await.ready, 5, "both are done and acked, the others are there");
    assert_eq!(world.wire.frames().len(), 2, "nothing was begun after the stop");

    let process = world.start(0, 1, Options::default());
    world.empties().await;
    let order = world.wire.order(channel(0, 1), "8");
    assert_eq!(order, ["half", "j0", "j1", "j2", "j3", "j4"]);
    assert_eq!(process.metrics.jobs.with_label_values(&["whatsapp", "retried"]).get(), 0);
}

/// Contract: Q8, Q10. What outlives the grace goes back, and a send of it is treated as what it is: unknown.
#[tokio::test]
async fn what_outlives_the_grace_goes_back_without_an_attempt() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.script("hangs", [Act::Hang { shown: false }]);
    world.submit(1, &send("hangs", channel(0, 1), "7")).await;
    world.submit(1, &send("behind", channel(0, 1), "7")).await;
    let process = world.start(0, 1, Options { grace: Duration::from_millis(300), ..Options::default() });
    eventually("it hangs", async || world.wire.begun() == 1).await;
    let asked = Instant::now();
    assert_eq!(process.stop(), Ended::Stopped);
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    let process = world.start(0, 1, Options::default());
    world.empties().await;
    assert_eq!(world.wire.order(channel(0, 1), "7"), ["hangs", "behind"]);
    assert!(world.was_uncertain("hangs"));
    assert_eq!(process.metrics.jobs.with_label_values(&["whatsapp", "retried"]).get(), 0);
}

/// Contract: Q4, Q10. A failure within the grace is kept: the attempt counts, and its wait holds.
#[tokio::test]
async fn a_failure_while_stopping_is_counted_and_waits() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let gate = Arc::new(Semaphore::new(0));
    let (opens, at_gate) = (gate.clone(), Arc::new(Semaphore::new(0)));
    world.wire.script("a", [Act::GateThen(opens, Box::new(Act::Fail(retry()))), Act::Gate(at_gate.clone())]);
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    world.submit(1, &send("b", channel(0, 1), "7")).await;
    let process = world.start(0, 1, Options::default());
    eventually("on the wire", async || world.wire.begun() == 1).await;
    process.ask_to_stop();
    gate.add_permits(1);
    assert_eq!(process.ends().await, Ended::Stopped);
    assert_eq!(world.depth(QueueName::bare(QueueBase::Main)).await.parked, 1);
    let process = world.start(0, 1, Options::default());
    at_gate.add_permits(1);
    world.empties().await;
    assert_eq!(world.wire.order(channel(0, 1), "7"), ["a", "b"]);
    assert_eq!(process.metrics.jobs.with_label_values(&["whatsapp", "done"]).get(), 2);
}

/// Contract: Q10. Lanes that are parked, and moves that are under way, hold no stop up.
#[tokio::test]
async fn a_stop_amid_parked_lanes_and_moves_loses_nothing() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.otherwise(|job| match job.id.as_str().ends_with('0') {
        true => Act::Fail(retry()),
        false => Act::Slow(Duration::from_millis(3)),
    });
    for number in 0..300 {
        let job = send(&format!("j{number}"), channel(0, number % 4), &format!("chat {}", number % 13));
        world.submit(1, &job).await;
    }
    let mut lives = 0;
    while world.left().await > 0 {
        lives += 1;
        assert!(lives < 200, "it never gets on");
        let process = world.start(0, 1, Options { prefetch: 10, ..Options::default() });
        let before = world.wire.begun();
        eventually("it gets on", async || world.wire.begun() > before + 5 || world.left().await == 0).await;
        let asked = Instant::now();
        assert_eq!(process.stop(), Ended::Stopped);
        assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    }
    assert_eq!(world.dead().await.len(), 30);
    assert_eq!(world.told().await.done.len(), 270);
    for number in (0..300).filter(|number| number % 10 != 0) {
        assert_eq!(world.wire.frames_of(&format!("j{number}")).len(), 1, "j{number}");
    }
}
