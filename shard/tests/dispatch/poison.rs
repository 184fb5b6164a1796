//! A job that kills its process is found out, and takes no other job with it.

use crate::support::{Act, Ended, Kind, Options, World, channel, eventually, retry, send};

/// Lets lives follow one another until nothing is left; how many died.
async fn live_on(world: &std::sync::Arc<World>) -> usize {
    for deaths in 0..25 {
        let process = world.start(0, 1, Options::default());
        eventually("done or dead", async || process.has_ended() || world.left().await == 0).await;
        if !process.has_ended() {
            process.stop();
            return deaths;
        }
        assert_eq!(process.ends().await, Ended::Crashed);
    }
    panic!("25 lives, and something is still left");
}

/// Field report R27. The poison is the first, the last, or in between, and its neighbours are slow or fast.
#[tokio::test]
async fn a_poison_becomes_a_dead_letter_and_its_nineteen_neighbours_are_done() {
    for (place, slow) in [(0, false), (10, false), (19, true)] {
        let world = World::new(Kind::Chosen);
        world.declare(1).await;
        world.wire.otherwise(move |job| match job.id.as_str() {
            "poison" => Act::Crash { shown: false },
            _ if slow => Act::Slow(std::time::Duration::from_millis(10)),
            _ => Act::Done,
        });
        for number in 0..20 {
            let id = if number == place { "poison".to_owned() } else { format!("j{number}") };
            world.submit(1, &send(&id, channel(0, 1), &format!("chat {number}"))).await;
        }
        let deaths = live_on(&world).await;
        assert!(deaths <= 8, "{deaths} lives were lost to it");
        let letter = world.dead_letter("poison").await.expect("a dead letter");
        assert_eq!(letter.reason(), "killed_shard");
        assert_eq!(world.dead().await.len(), 1);
        for number in (0..20).filter(|number| *number != place) {
            assert_eq!(world.wire.shown(&format!("j{number}")), 1, "j{number}");
        }
        let told = world.told().await;
        assert_eq!((told.failed("poison").len(), told.done.len()), (1, 19));
    }
}

/// Field report R27. It fails once, so that it is parked, and kills from then on.
#[tokio::test]
async fn a_poison_is_found_out_among_parked_jobs_too() {
    let world = World::new(Kind::Chosen);
    world.declare(1).await;
    world.wire.script("poison", [Act::Fail(retry())]);
    world.wire.otherwise(|job| match job.id.as_str() {
        "poison" => Act::Crash { shown: false },
        _ => Act::Done,
    });
    for id in ["poison", "behind", "last"] {
        world.submit(1, &send(id, channel(0, 1), "7")).await;
    }
    let deaths = live_on(&world).await;
    assert!(deaths <= 8, "{deaths} lives were lost to it");
    assert_eq!(world.dead_letter("poison").await.expect("a dead letter").reason(), "killed_shard");
    assert_eq!(world.wire.order(channel(0, 1), "7"), ["behind", "last"]);
}

/// Field report R27. Processes that die for other reasons bury nobody.
#[tokio::test]
async fn an_innocent_job_survives_the_deaths_of_many_processes() {
    let world = World::new(Kind::Chosen);
    world.declare(1).await;
    let held = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let gate = held.clone();
    world.wire.otherwise(move |_| Act::Gate(gate.clone()));
    for number in 0..10 {
        world.submit(1, &send(&format!("j{number}"), channel(0, 1), &format!("chat {number}"))).await;
    }
    for _ in 0..4 {
        let before = world.wire.begun();
        let process = world.start(0, 1, Options::default());
        eventually("at work", async || world.wire.begun() > before).await;
        process.kill();
    }
    held.add_permits(1000);
    live_on(&world).await;
    assert!(world.dead().await.is_empty());
    assert_eq!(world.told().await.done.len(), 10);
}
