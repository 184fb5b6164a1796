//! Ports that fail: nothing is lost, nothing is done twice, and nobody spins.

use std::time::{Duration, Instant};

use shard::identity::{QueueBase, QueueName};

use crate::support::{Act, Fault, Kind, Options, World, channel, eventually, mark_read, retry, send};

/// Publishes some jobs of which some fail, with a port that does not work for a while.
async fn through_an_outage(point: &str, fault: Fault) -> (std::sync::Arc<World>, usize) {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    for number in 0..40 {
        let id = format!("j{number}");
        if number % 8 == 0 {
            world.wire.script(&id, [Act::Fail(retry())]);
        }
        world.submit(1, &send(&id, channel(0, number % 3), &format!("chat {}", number % 7))).await;
    }
    world.faults.break_down(point, fault);
    let process = world.start(0, 1, Options::default());
    // So long that whoever spins would be seen.
    let before = world.faults.calls(point);
    let began = Instant::now();
    eventually("the outage lasts", async || began.elapsed() > Duration::from_millis(1500)).await;
    let calls = world.faults.calls(point) - before;
    world.faults.mend();
    world.empties().await;
    assert_eq!(process.progress.stalled(), [], "{point}");
    (world, calls)
}

/// Contract: Q2, Q4. Each port, each way in which it can fail.
#[tokio::test]
async fn whatever_port_is_away_for_a_while_nothing_is_lost_and_nobody_spins() {
    let points = [
        "consume",
        "next",
        "ack",
        "park",
        "unpark",
        "reserve",
        "mark_sent",
        "cancel",
        "append",
        "put_lane_fact",
        "clear_lane_fact",
        "lane_facts",
    ];
    let mut outages = Vec::new();
    for point in points {
        for fault in [Fault::Unavailable, Fault::Refused, Fault::Fenced, Fault::Stale] {
            outages.push(async move {
                let (world, calls) = through_an_outage(point, fault).await;
                // Forty jobs at work at once, each of which may try four times a second.
                assert!(calls < 600, "{point} {fault:?}: {calls} calls");
                assert!(world.dead().await.is_empty(), "{point} {fault:?}");
                let told = world.told().await;
                for number in 0..40 {
                    let id = format!("j{number}");
                    assert_eq!(told.done(&id).len(), 1, "{point} {fault:?}: {id}");
                    let once = world.wire.frames_of(&id).len() == 1;
                    assert!(once || world.was_uncertain(&id), "{point} {fault:?}: {id} was sent again unseen");
                }
                for (of, chat) in (0..3).flat_map(|of| (0..7).map(move |chat| (of, chat))) {
                    let order = world.wire.order(channel(0, of), &format!("chat {chat}"));
                    let in_order = (0..40).filter(|n| n % 3 == of && n % 7 == chat).map(|n| format!("j{n}"));
                    assert_eq!(order, in_order.collect::<Vec<_>>(), "{point} {fault:?}");
                }
            });
        }
    }
    // All at once: they wait most of the time.
    futures_util::future::join_all(outages).await;
}

/// Contract: Q2. The subscription ends while work is on the wire: the delivery that comes again takes the work over.
#[tokio::test]
async fn work_outlives_its_subscription_and_is_not_done_twice() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.otherwise(|_| Act::Slow(Duration::from_millis(700)));
    world.submit(1, &send("s", channel(0, 1), "7")).await;
    world.submit(1, &mark_read("r", channel(0, 1), "8")).await;
    let process = world.start(0, 1, Options::default());
    eventually("both are at work", async || world.wire.begun() == 2).await;
    for _ in 0..3 {
        world.faults.fail("next", Fault::Unavailable);
    }
    world.submit(1, &send("last", channel(0, 1), "9")).await;
    world.empties().await;
    for id in ["s", "r", "last"] {
        assert_eq!(world.wire.tries(id).len(), 1, "{id}");
    }
    assert_eq!(process.metrics.uncertain.get(), 0);
    assert_eq!(process.metrics.jobs_running.with_label_values(&["whatsapp"]).get(), 0);
}

/// Contract: Q2. What is done and could not be acked is not done again.
#[tokio::test]
async fn an_ack_that_fails_again_and_again_repeats_no_work() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    for _ in 0..3 {
        world.faults.fail("ack", Fault::Unavailable);
    }
    world.submit(1, &mark_read("r", channel(0, 1), "8")).await;
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    assert_eq!(world.wire.tries("r").len(), 1);
}

/// Contract: Q6. That another shard's queue can't be written to is no reason to stop working one's own.
#[tokio::test]
async fn a_job_that_can_not_be_forwarded_holds_nobody() {
    let world = World::new(Kind::Given);
    world.declare(2).await;
    world.faults.break_down("forward", Fault::Refused);
    let wrong = QueueName::of(QueueBase::Main, 0, 2);
    world.submit_to(wrong, &send("elsewhere", channel(1, 1), "7")).await;
    for number in 0..50 {
        world.submit(2, &send(&format!("j{number}"), channel(0, 1), "7")).await;
    }
    let _processes = world.start_all(2, Options::default());
    eventually("one's own are done", async || world.wire.frames().len() == 50).await;
    world.faults.mend();
    world.empties().await;
    assert_eq!(world.wire.shown("elsewhere"), 1);
}

/// Contract: Q8. A repeated event is the same event.
#[tokio::test]
async fn a_job_that_is_done_again_is_told_once() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.faults.lose_answer("append", Fault::Unavailable);
    world.submit(1, &mark_read("r", channel(0, 1), "8")).await;
    let process = world.start(0, 1, Options::default());
    world.empties().await;
    world.submit(1, &mark_read("r", channel(0, 1), "8")).await;
    world.empties().await;
    drop(process);
    assert_eq!(world.told().await.done("r").len(), 1);
    assert_eq!(world.wire.tries("r").len(), 2, "whoever asks again gets it done again");
}
