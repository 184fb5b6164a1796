//! After a change of the shard count no job is stranded, none loses its place, and dead letters stay where they are.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use shard::platform::Failed;

use crate::support::{Act, Ended, Kind, Options, When, World, channel, eventually, permanent, send};

/// Contract: Q7. Field report R34. Jobs lie ready, parked and dead when the count changes, five times.
#[tokio::test]
async fn no_job_is_stranded_by_any_change_of_the_count() {
    let world = World::new(Kind::Given);
    // Jobs of this round's heads fail, so that all of their lanes is parked when the layout goes.
    let failing = Arc::new(AtomicUsize::new(0));
    let of_round = failing.clone();
    world.wire.otherwise(move |job| {
        let fails = job.id.as_str().starts_with(&format!("head-{}-", of_round.load(Ordering::Relaxed)));
        if fails { retry_in(Duration::from_millis(300)) } else { Act::Done }
    });
    let mut expected = vec![Vec::new(); 6];
    let mut dead = 0;
    for (round, count) in [1_u32, 2, 3, 2, 1].into_iter().enumerate() {
        world.declare(count).await;
        let processes = world.start_all(count, Options::default());
        failing.store(round, Ordering::Relaxed);
        world.empties().await;
        assert_eq!(world.wire.frames().len(), round * 30, "what other layouts left is done");
        for prefix in 0..6 {
            for number in 0..5 {
                let id =
                    if number == 0 { format!("head-{round}-{prefix}") } else { format!("{round}-{prefix}-{number}") };
                world.submit(count, &send(&id, channel(prefix, 1), "7")).await;
                expected[prefix as usize].push(id);
            }
            let doomed = format!("dead-{round}-{prefix}");
            world.wire.script(&doomed, [Act::Fail(permanent())]);
            world.submit(count, &send(&doomed, channel(prefix, 1), "8")).await;
        }
        dead += 6;
        eventually("the lanes are parked", async || world.parked().await == 30 && world.left().await == 30).await;
        eventually("the others are dead", async || world.dead().await.len() == dead).await;
        for (index, process) in processes.into_iter().enumerate() {
            // A graceful end here, a crash there.
            if (index + round) % 2 == 0 {
                process.stop()
            } else {
                process.kill()
            };
        }
        world.leases_end();
    }
    failing.store(5, Ordering::Relaxed);
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    for prefix in 0..6 {
        assert_eq!(world.wire.order(channel(prefix, 1), "7"), expected[prefix as usize], "lane {prefix}");
    }
    assert_eq!(world.dead().await.len(), dead, "dead letters stay listed");
    assert!(world.wire.frames().iter().all(|frame| world.wire.frames_of(&frame.job).len() == 1), "none is sent twice");
}

fn retry_in(after: Duration) -> Act {
    Act::Fail(Failed::Retry { error: "flood".to_owned(), after: Some(after) })
}

/// Contract: Q4, Q7. A job that waits for hours under one layout goes to its shard at once when the layout changes.
#[tokio::test]
async fn what_waits_for_hours_goes_to_its_new_shard_at_once() {
    for (from, to) in [(1, 2), (2, 1), (2, 3)] {
        let world = World::new(Kind::Given);
        world.declare(from).await;
        let of = channel(2, 1);
        world.wire.script("a", [retry_in(Duration::from_secs(3600))]);
        world.submit(from, &send("a", of, "7")).await;
        world.submit(from, &send("b", of, "7")).await;
        let process = world.start(0, from, Options::default());
        eventually("parked", async || world.parked().await == 2).await;
        process.stop();
        world.leases_end();
        let _processes = world.start_all(to, Options::default());
        world.empties().await;
        assert_eq!(world.wire.order(of, "7"), ["a", "b"], "{from} to {to}");
    }
}

/// Contract: Q7. Field report R34.
#[tokio::test]
async fn jobs_of_a_larger_layout_are_done_by_a_smaller_one() {
    for (from, to) in [(3, 2), (2, 1), (3, 1)] {
        let world = World::new(Kind::Given);
        world.declare(from).await;
        for number in 0..60 {
            world.submit(from, &send(&format!("j{number}"), channel(number % 6, 1), "7")).await;
        }
        let processes = world.start_all(to, Options::default());
        world.empties().await;
        for prefix in 0..6 {
            let order: Vec<_> = (0..60).filter(|n| n % 6 == prefix).map(|n| format!("j{n}")).collect();
            assert_eq!(world.wire.order(channel(prefix, 1), "7"), order, "{from} to {to}");
        }
        let forwarded = processes[0].metrics.forwarded.with_label_values(&["other_layout"]).get();
        assert!(forwarded > 0, "the disagreement is counted");
    }
}

/// Contract: Q3, Q7. The head of a lane had its wait stored, and had not moved, when its process died for good.
#[tokio::test]
async fn a_head_that_had_not_moved_goes_before_what_is_parked_in_another_layout_too() {
    for (from, to) in [(1, 2), (2, 1)] {
        let world = World::new(Kind::Given);
        world.declare(from).await;
        let retry_soon =
            || Act::Fail(Failed::Retry { error: "busy".to_owned(), after: Some(Duration::from_millis(400)) });
        world.wire.script("a", [retry_soon(), retry_soon()]);
        for id in ["a", "b", "c", "d"] {
            world.submit(from, &send(id, channel(1, 1), "7")).await;
        }
        // b, c and d are parked behind a; when a's turn comes again it dies before a has moved.
        world.faults.die_at("put_lane_fact", When::After, 1);
        let slot = if from == 1 { 0 } else { 1 };
        assert_eq!(world.start(slot, from, Options::default()).ends().await, Ended::Crashed);
        // The next life parks what is behind the head before the head itself has come to rest.
        world.faults.die_at("park", When::After, 3);
        assert_eq!(world.start(slot, from, Options::default()).ends().await, Ended::Crashed);
        world.leases_end();
        let _processes = world.start_all(to, Options::default());
        world.empties().await;
        assert_eq!(world.wire.order(channel(1, 1), "7"), ["a", "b", "c", "d"], "{from} to {to}");
    }
}

/// Contract: Q8. What was sent under one layout is not sent again under another.
#[tokio::test]
async fn the_guard_goes_with_its_channel_into_another_layout() {
    for (from, to) in [(1, 2), (2, 1), (2, 3), (3, 2)] {
        let world = World::new(Kind::Given);
        world.declare(from).await;
        world.faults.die("ack", When::Before);
        let of = channel(5, 1);
        world.submit(from, &send("a", of, "7")).await;
        let slot = if from > 1 { 5 % from } else { 0 };
        assert_eq!(world.start(slot, from, Options::default()).ends().await, Ended::Crashed);
        world.leases_end();
        let processes = world.start_all(to, Options::default());
        world.empties().await;
        drop(processes);
        assert_eq!(world.wire.frames_of("a").len(), 1, "{from} to {to}");
        assert_eq!(world.told().await.done("a").len(), 1, "{from} to {to}");
    }
}
