//! A send is shown at most once where ids are chosen, and where they are not, every possible second copy is on record.

use std::sync::Arc;

use shard::{
    identity::{QueueBase, QueueName},
    job::OnUncertain,
};
use tokio::sync::Semaphore;

use crate::support::{Act, Ended, Fault, Kind, Options, When, World, channel, eventually, permanent, send, send_or};

/// Contract: Q8.
#[tokio::test]
async fn the_same_id_twice_is_sent_once_and_answered_with_the_stored_provider_id() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let _process = world.start(0, 1, Options::default());
    world.submit(1, &send("twice", channel(0, 1), "7")).await;
    eventually("sent", async || world.wire.shown("twice") == 1).await;
    world.empties().await;
    // In its own lane, in another one, and once more when it has long been done.
    world.submit(1, &send("twice", channel(0, 1), "7")).await;
    world.submit(1, &send("twice", channel(0, 1), "8")).await;
    world.empties().await;
    assert_eq!(world.wire.frames_of("twice").len(), 1);
    let told = world.told().await;
    let done = told.done("twice");
    assert_eq!(done.len(), 1, "told once");
    assert_eq!(done[0].message_id.as_ref(), Some(&world.wire.frames_of("twice")[0].provider_id));
}

/// Contract: Q8. The two meet while the first is on the wire.
#[tokio::test]
async fn the_same_id_in_two_chats_at_once_is_sent_once() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let gate = Arc::new(Semaphore::new(0));
    world.wire.script("twice", [Act::Gate(gate.clone())]);
    world.submit(1, &send("twice", channel(0, 1), "7")).await;
    world.submit(1, &send("twice", channel(0, 1), "8")).await;
    world.submit(1, &send("other", channel(0, 1), "9")).await;
    let _process = world.start(0, 1, Options::default());
    eventually("another lane goes on", async || world.wire.shown("other") == 1).await;
    gate.add_permits(1);
    world.empties().await;
    assert_eq!(world.wire.frames_of("twice").len(), 1);
}

/// Contract: Q8. Field report R33. The next try carries the same id.
#[tokio::test]
async fn an_ambiguous_failure_with_a_chosen_id_is_tried_again_under_that_id() {
    for shown in [true, false] {
        let world = World::new(Kind::Chosen);
        world.declare(1).await;
        world.wire.script("a", [Act::Ambiguous { shown }, Act::Panic { shown }]);
        world.submit(1, &send("a", channel(0, 1), "7")).await;
        world.submit(1, &send("b", channel(0, 1), "7")).await;
        let _process = world.start(0, 1, Options::default());
        world.empties().await;
        assert_eq!(world.wire.tries("a").len(), 3);
        assert_eq!(world.wire.shown("a"), 1);
        assert_eq!(world.wire.order(channel(0, 1), "7"), ["a", "b"]);
        assert!(!world.was_uncertain("a"), "with a chosen id there is no doubt");
        assert_eq!(world.told().await.done("a").len(), 1);
    }
}

/// Contract: Q8.
#[tokio::test]
async fn an_ambiguous_failure_without_ids_is_on_record_before_the_second_copy() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.script("a", [Act::Ambiguous { shown: true }]);
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    assert_eq!(world.wire.shown("a"), 2);
    assert!(world.was_uncertain("a"));
    let told = world.told().await;
    assert_eq!(told.done("a").len(), 1);
    assert!(told.done("a")[0].uncertain, "the producer is told of the doubt");
}

/// Contract: Q8.
#[tokio::test]
async fn dead_letter_keeps_a_doubtful_send_from_ever_being_sent_again() {
    for act in [Act::Ambiguous { shown: true }, Act::Panic { shown: true }, Act::Crash { shown: true }] {
        let world = World::new(Kind::Given);
        world.declare(1).await;
        let crashes = matches!(act, Act::Crash { .. });
        world.wire.script("a", [act]);
        world.submit(1, &send_or("a", channel(0, 1), "7", OnUncertain::DeadLetter)).await;
        let mut process = world.start(0, 1, Options::default());
        if crashes {
            assert_eq!(process.ends().await, Ended::Crashed);
            process = world.start(0, 1, Options::default());
        }
        world.empties().await;
        drop(process);
        assert_eq!(world.wire.shown("a"), 1);
        let letter = world.dead_letter("a").await.expect("a dead letter");
        assert_eq!(letter.reason(), "uncertain");
        let told = world.told().await;
        assert_eq!((told.failed("a").len(), told.done("a").len()), (1, 0));
        assert_eq!(told.failed("a")[0].reason, "uncertain");
    }
}

/// Contract: Q8, E1. A job that is ambiguous to the last is told to have failed.
#[tokio::test]
async fn a_send_that_stays_ambiguous_ends_as_a_dead_letter_and_is_told() {
    for kind in [Kind::Chosen, Kind::Given] {
        let world = World::new(kind);
        world.declare(1).await;
        world.wire.otherwise(|_| Act::Ambiguous { shown: false });
        world.submit(1, &send("a", channel(0, 1), "7")).await;
        let _process = world.start(0, 1, Options::default());
        world.empties().await;
        let letter = world.dead_letter("a").await.expect("a dead letter");
        assert_eq!((letter.reason().as_str(), letter.message.headers.attempts), ("exhausted", 4));
        let told = world.told().await;
        assert_eq!(told.failed("a").len(), 1, "{kind:?}");
        assert_eq!(told.failed("a")[0].attempts, 4);
    }
}

/// Every step of a send at which its process can die.
const STEPS: [(&str, When); 10] = [
    ("reserve", When::Before),
    ("reserve", When::After),
    ("wire", When::Before),
    ("wire", When::After),
    ("mark_sent", When::Before),
    ("mark_sent", When::After),
    ("append", When::Before),
    ("append", When::After),
    ("ack", When::Before),
    ("ack", When::After),
];

/// Lets the process die at a step of the only job, and has the next life finish it.
async fn die_at(kind: Kind, step: (&str, When), policy: OnUncertain) -> Arc<World> {
    let world = World::new(kind);
    world.declare(1).await;
    match step {
        ("wire", when) => world.wire.script("a", [Act::Crash { shown: when == When::After }]),
        (point, when) => world.faults.die(point, when),
    }
    world.submit(1, &send_or("a", channel(0, 1), "7", policy)).await;
    assert_eq!(world.start(0, 1, Options::default()).ends().await, Ended::Crashed, "{step:?}");
    let process = world.start(0, 1, Options::default());
    world.empties().await;
    drop(process);
    world
}

/// Contract: Q8. Field report R33.
#[tokio::test]
async fn a_chosen_id_is_shown_once_wherever_the_process_dies() {
    for step in STEPS {
        let world = die_at(Kind::Chosen, step, OnUncertain::Resend).await;
        assert_eq!(world.wire.shown("a"), 1, "{step:?}");
        assert!(!world.was_uncertain("a"), "{step:?}");
        let told = world.told().await;
        assert_eq!((told.done("a").len(), told.failed("a").len()), (1, 0), "{step:?}");
        assert_eq!(told.done("a")[0].message_id.as_deref(), Some("chosen-a"), "{step:?}");
    }
}

/// Contract: Q8.
#[tokio::test]
async fn without_ids_a_second_copy_is_on_record_wherever_the_process_dies() {
    for step in STEPS {
        let world = die_at(Kind::Given, step, OnUncertain::Resend).await;
        let shown = world.wire.shown("a");
        assert!(shown == 1 || world.was_uncertain("a"), "{step:?}: shown {shown} times");
        assert!((1..=2).contains(&shown), "{step:?}: shown {shown} times");
        let told = world.told().await;
        assert_eq!((told.done("a").len(), told.failed("a").len()), (1, 0), "{step:?}");
    }
}

/// Contract: Q8.
#[tokio::test]
async fn without_ids_dead_letter_shows_no_second_copy_wherever_the_process_dies() {
    for step in STEPS {
        let world = die_at(Kind::Given, step, OnUncertain::DeadLetter).await;
        let (shown, letter) = (world.wire.shown("a"), world.dead_letter("a").await);
        assert!(shown <= 1, "{step:?}: shown {shown} times");
        match letter {
            Some(letter) => assert_eq!(letter.reason(), "uncertain", "{step:?}"),
            None => assert_eq!(shown, 1, "{step:?}"),
        }
        let told = world.told().await;
        assert_eq!(told.done("a").len() + told.failed("a").len(), 1, "{step:?}");
    }
}

/// Contract: Q8, C1. Field report R32. The channel's lease went and came back while the send was on the wire.
#[tokio::test]
async fn a_send_whose_mark_is_fenced_is_marked_under_the_newer_right() {
    for kind in [Kind::Chosen, Kind::Given] {
        let world = World::new(kind);
        world.declare(1).await;
        let gate = Arc::new(Semaphore::new(0));
        world.wire.script("a", [Act::Gate(gate.clone())]);
        world.submit(1, &send("a", channel(0, 1), "7")).await;
        let process = world.start(0, 1, Options::default());
        eventually("on the wire", async || world.wire.tries("a").len() == 1).await;
        world.leases_renewed();
        world.submit(1, &send("b", channel(0, 1), "8")).await;
        eventually("the newer right is stored", async || world.wire.shown("b") == 1).await;
        gate.add_permits(1);
        world.empties().await;
        assert_eq!(world.wire.frames_of("a").len(), 1, "{kind:?}");
        assert_eq!(world.told().await.done("a").len(), 1);
        assert_eq!(process.metrics.uncertain.get(), 0);
    }
}

/// Contract: Q8. A reservation of this very process that nothing stands behind any more.
#[tokio::test]
async fn a_try_that_broke_off_in_this_life_is_taken_up_again() {
    for kind in [Kind::Chosen, Kind::Given] {
        let world = World::new(kind);
        world.declare(1).await;
        // The answer to the reservation is lost.
        world.faults.lose_answer("reserve", Fault::Unavailable);
        world.submit(1, &send("a", channel(0, 1), "7")).await;
        let _process = world.start(0, 1, Options::default());
        world.empties().await;
        assert_eq!(world.wire.shown("a"), 1, "{kind:?}");
        assert_eq!(world.told().await.done("a").len(), 1);
    }
}

/// Contract: Q8. What came of a send is stored however long the registry is away.
#[tokio::test]
async fn a_registry_that_is_away_after_the_send_delays_its_mark_and_nothing_else() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.faults.break_down("mark_sent", Fault::Unavailable);
    world.faults.break_down("append", Fault::Unavailable);
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    let _process = world.start(0, 1, Options::default());
    eventually("tried to mark", async || world.faults.calls("mark_sent") > 2).await;
    world.faults.mend();
    world.empties().await;
    assert_eq!(world.wire.frames_of("a").len(), 1);
    assert_eq!(world.told().await.done("a").len(), 1);
}

/// Contract: Q4, Q8.
#[tokio::test]
async fn a_send_that_failed_for_good_can_be_replayed_and_is_sent_once() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    world.wire.script("a", [Act::Fail(permanent())]);
    world.submit(1, &send("a", channel(0, 1), "7")).await;
    let _process = world.start(0, 1, Options::default());
    world.empties().await;
    let letter = world.dead_letter("a").await.expect("a dead letter");
    assert!(world.replay(&letter, QueueName::bare(QueueBase::Main)).await);
    eventually("sent", async || world.wire.shown("a") == 1).await;
    world.empties().await;
    assert!(world.dead().await.is_empty());
}
