//! Lanes run in order and side by side, and nobody holds anybody else back.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use shard::queue::Limits;
use tokio::sync::Semaphore;

use crate::support::{
    Act, Ended, Kind, Options, When, World, channel, disconnect, download, eventually, mark_read, resync, retry, send,
};

/// Contract: Q3, Q4. Retries, crashes and a restart in between.
#[tokio::test]
async fn a_lane_keeps_its_order_whatever_fails() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    for number in [3, 4, 11] {
        world.wire.script(&format!("j{number}"), [Act::Fail(retry()), Act::Fail(retry())]);
    }
    world.wire.script("j7", [Act::Crash { shown: false }]);
    for number in 0..30 {
        world.submit(1, &send(&format!("j{number}"), channel(0, 1), "7")).await;
    }
    assert_eq!(world.start(0, 1, Options::default()).ends().await, Ended::Crashed);
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    let expected: Vec<_> = (0..30).map(|number| format!("j{number}")).collect();
    assert_eq!(world.wire.order(channel(0, 1), "7"), expected);
}

/// Contract: Q3. One lane hangs and one fails; all others go on.
#[tokio::test]
async fn a_lane_that_hangs_or_fails_holds_no_other() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.otherwise(|job| match job.task.chat() {
        Some("hangs") => Act::Hang { shown: false },
        Some("fails") => Act::Fail(retry()),
        _ => Act::Done,
    });
    for number in 0..200 {
        world.submit(1, &send(&format!("hangs{number}"), channel(0, 1), "hangs")).await;
        world.submit(1, &send(&format!("fails{number}"), channel(0, 1), "fails")).await;
        world.submit(1, &send(&format!("fine{number}"), channel(0, 1), &format!("chat {}", number % 10))).await;
    }
    let process = world.start(0, 1, Options::default());
    eventually("all others are done", async || world.wire.frames().len() == 200).await;
    assert_eq!(world.wire.tries("hangs1").len(), 0, "in order");
    process.kill();
}

/// Field report R30.
#[tokio::test]
async fn five_hundred_slow_downloads_keep_no_send_waiting() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.otherwise(|job| match job.task.name() {
        "download_media" => Act::Slow(Duration::from_secs(20)),
        _ => Act::Done,
    });
    for number in 0..500 {
        world.submit(1, &download(&format!("d{number}"), channel(0, 1), &format!("chat {number}"))).await;
    }
    let process = world.start(0, 1, Options::default());
    eventually("downloads run", async || world.wire.begun() >= 8).await;
    let published = Instant::now();
    world.submit(1, &send("s", channel(0, 1), "7")).await;
    eventually("sent", async || world.wire.shown("s") == 1).await;
    let waited = world.wire.tries("s")[0] - published;
    assert!(waited < Duration::from_millis(500), "{waited:?}");
    process.kill();
}

/// Field report R30. The thousand are for one chat, and for a thousand chats of one channel.
#[tokio::test]
async fn a_thousand_sends_of_one_channel_keep_no_other_channel_waiting() {
    for chats in [1, 1000] {
        let world = World::new(Kind::Given);
        world.declare(1).await;
        world.wire.otherwise(|job| match job.id.as_str() {
            "other" => Act::Done,
            _ => Act::Slow(Duration::from_millis(200)),
        });
        for number in 0..1000 {
            let chat = format!("chat {}", number % chats);
            world.submit(1, &send(&format!("j{number}"), channel(0, 1), &chat)).await;
        }
        let process = world.start(0, 1, Options::default());
        eventually("they run", async || world.wire.begun() > 0).await;
        let published = Instant::now();
        world.submit(1, &send("other", channel(0, 2), "7")).await;
        eventually("sent", async || world.wire.shown("other") == 1).await;
        let waited = world.wire.tries("other")[0] - published;
        assert!(waited < Duration::from_secs(2), "{chats} chats: {waited:?}");
        process.kill();
    }
}

/// Contract: Q3, Q9. Jobs of channels that are not up take no room from those of channels that are.
#[tokio::test]
async fn channels_that_are_not_up_keep_no_other_channel_waiting() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    for number in 0..100 {
        world.starting(channel(0, number));
        for chat in ["7", "8"] {
            world.submit(1, &send(&format!("j{number}-{chat}"), channel(0, number), chat)).await;
        }
    }
    world.submit(1, &send("other", channel(0, 1000), "7")).await;
    let _process = world.start(0, 1, Options { patience: Duration::from_secs(60), ..Options::default() });
    let began = Instant::now();
    eventually("sent", async || world.wire.shown("other") == 1).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    for number in 0..100 {
        world.ready(channel(0, number));
    }
    let up = Instant::now();
    world.empties().await;
    assert!(up.elapsed() < Duration::from_secs(10), "what made room goes on when its channel is up");
    assert_eq!(world.wire.frames().len(), 201);
    assert!(world.dead().await.is_empty());
}

/// Contract: Q3. Nothing of the channel runs beside a barrier, whether it lies in memory or parked.
#[tokio::test]
async fn a_barrier_comes_after_what_is_earlier_and_before_what_is_later() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let of = channel(0, 1);
    let gate = Arc::new(Semaphore::new(0));
    world.wire.script("first", [Act::Gate(gate.clone())]);
    world.submit(1, &send("first", of, "7")).await;
    // Far more than the prefetch: most of these make room for others.
    for number in 0..60 {
        world.submit(1, &send(&format!("early{number}"), of, "7")).await;
    }
    world.submit(1, &resync("barrier", of)).await;
    for number in 0..60 {
        world.submit(1, &send(&format!("late{number}"), of, &format!("chat {}", number % 3))).await;
    }
    world.submit(1, &send("other", channel(0, 2), "7")).await;
    let _process = world.start(0, 1, Options::default());
    eventually("another channel goes on", async || world.wire.shown("other") == 1).await;
    gate.add_permits(1);
    world.empties().await;
    let of_channel: Vec<_> = world.wire.frames().into_iter().filter(|frame| frame.channel == of).collect();
    let at = of_channel.iter().position(|frame| frame.job == "barrier").expect("done");
    assert!(of_channel[..at].iter().all(|frame| !frame.job.starts_with("late")), "nothing later before it");
    assert_eq!(at, 61, "all that is earlier before it");
}

/// Contract: Q3, Q9. What was published before a `disconnect` is sent before it, however much it is.
#[tokio::test]
async fn a_disconnect_overtakes_no_backlog() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let of = channel(0, 1);
    world.wire.otherwise(|_| Act::Slow(Duration::from_millis(20)));
    for number in 0..100 {
        world.submit(1, &send(&format!("j{number}"), of, "7")).await;
    }
    world.submit(1, &disconnect("off", of)).await;
    let _process = world.start(0, 1, Options { prefetch: 8, ..Options::default() });
    eventually("stopped", async || world.controls() == [(of, false)]).await;
    assert_eq!(world.wire.frames().len(), 100);
    assert!(world.dead().await.is_empty());
}

/// Contract: Q3. What waits in memory and is parked comes back in small lots, and the order survives a crash in each step.
#[tokio::test]
async fn a_long_backlog_keeps_its_order_through_crashes_in_its_moves() {
    let steps = [
        ("put_lane_fact", When::Before),
        ("put_lane_fact", When::After),
        ("park", When::Before),
        ("park", When::After),
        ("unpark", When::Before),
        ("unpark", When::After),
        ("clear_lane_fact", When::Before),
        ("clear_lane_fact", When::After),
    ];
    for (nth, step) in steps.into_iter().enumerate() {
        let world = World::new(Kind::Given);
        world.declare(1).await;
        world.wire.otherwise(|_| Act::Slow(Duration::from_millis(2)));
        world.wire.script("j0", [Act::Fail(retry())]);
        for number in 0..40 {
            world.submit(1, &send(&format!("j{number}"), channel(0, 1), "7")).await;
        }
        world.faults.die_at(step.0, step.1, 1 + nth % 3);
        let options = Options { limits: Limits { lot: 4, ..Limits::default() }, ..Options::default() };
        let mut lives = 0;
        loop {
            lives += 1;
            let process = world.start(0, 1, options);
            eventually("done or dead", async || process.has_ended() || world.left().await == 0).await;
            if !process.has_ended() {
                process.stop();
                break;
            }
        }
        assert!(lives <= 2, "{step:?}");
        let expected: Vec<_> = (0..40).map(|number| format!("j{number}")).collect();
        assert_eq!(world.wire.order(channel(0, 1), "7"), expected, "{step:?}");
    }
}

/// Contract: Q3. Work that is no send keeps its order too.
#[tokio::test]
async fn jobs_of_any_kind_share_their_chat_s_lane() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.script("a", [Act::Fail(retry())]);
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    world.submit(1, &mark_read("b", channel(0, 1), "7")).await;
    world.submit(1, &send("c", channel(0, 1), "7")).await;
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    assert_eq!(world.wire.order(channel(0, 1), "7"), ["a", "b", "c"]);
}
