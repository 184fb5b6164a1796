//! What fails is tried again on its schedule, across restarts, until it is done or a dead letter that says why.

use std::time::Duration;

use shard::{
    identity::{QueueBase, QueueName},
    platform::Failed,
    queue::RetryPolicy,
};

use crate::support::{Act, Kind, Options, World, channel, eventually, permanent, retry, send};

fn failure(error: &str) -> Act {
    Act::Fail(Failed::Retry { error: error.to_owned(), after: None })
}

/// Contract: Q4. Each attempt is made in another life.
#[tokio::test]
async fn attempts_and_errors_survive_restarts() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.script("a", ["first", "second", "third", "last"].map(failure));
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    for attempt in 1..=4_usize {
        let process = world.start(0, 1, Options::default());
        eventually("tried", async || world.wire.tries("a").len() == attempt).await;
        if attempt < 4 {
            eventually("put aside", async || world.stored_attempts() == Some(attempt as u64)).await;
        } else {
            world.empties().await;
        }
        // By turns killed and stopped.
        if attempt % 2 == 0 {
            process.stop()
        } else {
            process.kill()
        };
    }
    assert_eq!(world.wire.tries("a").len(), 4);
    let letter = world.dead_letter("a").await.expect("a dead letter");
    let headers = &letter.message.headers;
    assert_eq!(letter.reason(), "exhausted");
    assert_eq!(headers.attempts, 4);
    assert_eq!((headers.first_error.as_deref(), headers.last_error.as_deref()), (Some("first"), Some("last")));
    assert_eq!(headers.origin.as_deref(), Some("whatsapp"));
    assert!(headers.died_at_ms.is_some());
    let told = world.told().await;
    assert_eq!(told.failed("a").len(), 1);
    assert_eq!((told.failed("a")[0].attempts, told.failed("a")[0].error.as_str()), (4, "last"));
}

/// Contract: Q4.
#[tokio::test]
async fn waits_grow_with_each_attempt() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.otherwise(|_| Act::Fail(retry()));
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    let first = Duration::from_millis(100);
    let retry = RetryPolicy { attempts: 4, first, factor: 3.0, cap: Duration::from_secs(60), jitter: 0.1 };
    let _process = world.start(0, 1, Options { retry, ..Options::default() });
    world.empties().await;
    let tries = world.wire.tries("a");
    assert_eq!(tries.len(), 4);
    for (nth, expected) in [(1, 90), (2, 270), (3, 810)] {
        let waited = tries[nth] - tries[nth - 1];
        assert!(waited >= Duration::from_millis(expected), "wait {nth} was {waited:?}");
    }
}

/// Contract: Q4. Field report R22.
#[tokio::test]
async fn a_platform_s_own_wait_is_honoured_and_is_no_attempt() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let after = Duration::from_millis(150);
    // More often than there are attempts.
    let flood = Act::Fail(Failed::Retry { error: "flood".to_owned(), after: Some(after) });
    world.wire.script("a", vec![flood; 6]);
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    world.submit(1, &send("b", channel(0, 1), "7")).await;
    world.submit(1, &send("c", channel(0, 1), "8")).await;
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    let tries = world.wire.tries("a");
    assert_eq!(tries.len(), 7);
    assert!(tries.windows(2).all(|pair| pair[1] - pair[0] >= after), "never earlier than it said");
    assert_eq!(world.wire.order(channel(0, 1), "7"), ["a", "b"]);
    assert!(world.wire.tries("c")[0] < tries[1], "another chat does not wait");
    assert!(world.dead().await.is_empty());
}

/// Contract: Q4. Field report R22. It waits parked, outside the prefetch, and still does after a restart.
#[tokio::test]
async fn a_wait_of_hours_takes_no_room_and_survives_a_restart() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let hours = Some(Duration::from_secs(10_072));
    world.wire.script("a0", [Act::Fail(Failed::Retry { error: "flood".to_owned(), after: hours })]);
    for number in 0..50 {
        world.submit(1, &send(&format!("a{number}"), channel(0, 1), "7")).await;
    }
    let options = Options { prefetch: 4, ..Options::default() };
    let process = world.start(0, 1, options);
    eventually("parked", async || world.parked().await == 50).await;
    process.kill();
    let _process = world.start(0, 1, options);
    for number in 0..50 {
        world.submit(1, &send(&format!("b{number}"), channel(0, 1), &format!("chat {number}"))).await;
    }
    eventually("others go on", async || world.wire.frames().len() == 50).await;
    assert_eq!(world.wire.tries("a0").len(), 1, "it was not tried again early");
    eventually("these alone are parked", async || world.parked().await == 50).await;
}

/// Contract: Q4. A wait of nothing is none to spin on.
#[tokio::test]
async fn a_platform_that_says_now_is_not_asked_without_a_pause() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.otherwise(|_| Act::Fail(Failed::Retry { error: "now".to_owned(), after: Some(Duration::ZERO) }));
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    let _process = world.start(0, 1, Options::default());
    eventually("tried", async || world.wire.tries("a").len() >= 5).await;
    let tries = world.wire.tries("a");
    assert!(tries[4] - tries[0] >= Duration::from_millis(400), "{:?}", tries[4] - tries[0]);
}

/// Contract: Q4.
#[tokio::test]
async fn a_failure_for_good_is_not_tried_again() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.script("a", [Act::Fail(permanent())]);
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    world.submit(1, &send("b", channel(0, 1), "7")).await;
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    assert_eq!(world.wire.tries("a").len(), 1);
    let letter = world.dead_letter("a").await.expect("a dead letter");
    assert_eq!((letter.reason().as_str(), letter.message.headers.attempts), ("bad_recipient", 1));
    assert_eq!(world.told().await.failed("a")[0].reason, "bad_recipient");
    assert_eq!(world.wire.shown("b"), 1, "its lane goes on");
}

/// Contract: Q4.
#[tokio::test]
async fn a_replayed_dead_letter_starts_anew() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.script("a", vec![Act::Fail(retry()); 6]);
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    let letter = world.dead_letter("a").await.expect("a dead letter");
    assert!(world.replay(&letter, QueueName::bare(QueueBase::Main)).await);
    eventually("sent", async || world.wire.shown("a") == 1).await;
    world.empties().await;
    assert_eq!(world.wire.tries("a").len(), 7, "it had all its attempts again");
    assert!(world.dead().await.is_empty());
    let told = world.told().await;
    assert_eq!((told.failed("a").len(), told.done("a").len()), (1, 1));
}

/// Contract: Q4. A channel that is never up uses up a job's attempts too, in the end.
#[tokio::test]
async fn a_job_for_a_channel_that_never_comes_up_ends_as_a_dead_letter() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let (starting, disabled, unknown) = (channel(0, 1), channel(0, 2), channel(0, 3));
    world.starting(starting);
    world.disabled(disabled);
    world.unknown(unknown);
    for (id, of) in [("starting", starting), ("disabled", disabled), ("unknown", unknown)] {
        world.submit(1, &send(id, of, "7")).await;
    }
    let _process = world.start(0, 1, Options { patience: Duration::from_millis(50), ..Options::default() });
    world.empties().await;
    for (id, reason) in [("starting", "exhausted"), ("disabled", "disabled"), ("unknown", "unknown_channel")] {
        let letter = world.dead_letter(id).await.expect("a dead letter");
        assert_eq!((letter.reason().as_str(), letter.message.headers.attempts), (reason, 4));
    }
}
