//! A job that kills its process is found out, and takes no other job with it.

use std::sync::Arc;

use crate::support::{Act, Ended, Kind, Options, World, channel, eventually, retry, send};

/// Lets lives follow one another until so many jobs are done or dead; how many died.
async fn live_on(world: &Arc<World>, jobs: usize) -> usize {
    for deaths in 0..25 {
        let process = world.start(0, 1, Options::default());
        let settled = async || world.dead().await.len() + world.told().await.done.len() >= jobs;
        eventually("done or dead", async || process.has_ended() || settled().await).await;
        if !process.has_ended() {
            process.stop();
            return deaths;
        }
        assert_eq!(process.ends().await, Ended::Crashed);
    }
    panic!("25 lives, and something is still left");
}

/// The poison is the first, the last, or in between, and its neighbours are slow or fast.
async fn a_poison_among_neighbours(world: impl Fn(Kind) -> Arc<World>) {
    for (place, slow) in [(0, false), (10, false), (19, true)] {
        let world = world(Kind::Chosen);
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
        let deaths = live_on(&world, 20).await;
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

/// It fails once, so that it is parked, and kills from then on.
async fn a_poison_among_parked_jobs(world: Arc<World>) {
    world.declare(1).await;
    world.wire.script("poison", [Act::Fail(retry())]);
    world.wire.otherwise(|job| match job.id.as_str() {
        "poison" => Act::Crash { shown: false },
        _ => Act::Done,
    });
    for id in ["poison", "behind", "last"] {
        world.submit(1, &send(id, channel(0, 1), "7")).await;
    }
    let deaths = live_on(&world, 3).await;
    assert!(deaths <= 8, "{deaths} lives were lost to it");
    assert_eq!(world.dead_letter("poison").await.expect("a dead letter").reason(), "killed_shard");
    assert_eq!(world.wire.order(channel(0, 1), "7"), ["behind", "last"]);
}

/// Processes that die for other reasons.
async fn innocent_jobs_and_many_deaths(world: Arc<World>) {
    world.declare(1).await;
    let held = Arc::new(tokio::sync::Semaphore::new(0));
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
    live_on(&world, 10).await;
    assert!(world.dead().await.is_empty());
    assert_eq!(world.told().await.done.len(), 10);
}

/// Field report R27.
#[tokio::test]
async fn a_poison_becomes_a_dead_letter_and_its_nineteen_neighbours_are_done() {
    a_poison_among_neighbours(World::new).await;
}

/// Field report R27.
#[tokio::test]
async fn a_poison_is_found_out_among_parked_jobs_too() {
    a_poison_among_parked_jobs(World::new(Kind::Chosen)).await;
}

/// Field report R27.
#[tokio::test]
async fn an_innocent_job_survives_the_deaths_of_many_processes() {
    innocent_jobs_and_many_deaths(World::new(Kind::Chosen)).await;
}

/// The same on quorum queues of RabbitMQ.
#[cfg(feature = "amqp")]
mod on_the_broker {
    use super::*;

    /// Field report R27.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_poison_becomes_a_dead_letter_and_its_nineteen_neighbours_are_done() {
        a_poison_among_neighbours(World::on_broker).await;
    }

    /// Field report R27.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_poison_is_found_out_among_parked_jobs_too() {
        a_poison_among_parked_jobs(World::on_broker(Kind::Chosen)).await;
    }

    /// Field report R27.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn an_innocent_job_survives_the_deaths_of_many_processes() {
        innocent_jobs_and_many_deaths(World::on_broker(Kind::Chosen)).await;
    }
}
