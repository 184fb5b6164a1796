//! Jobs in the wrong place find the right one.

use shard::identity::{QueueBase, QueueName};

use crate::support::{Kind, Options, World, avatar, channel, download, eventually, send};

/// Contract: Q1.
#[tokio::test]
async fn a_download_on_the_main_queue_is_done_by_the_media_queue() {
    let world = World::new(Kind::Given);
    world.declare(1).await;
    let main = QueueName::bare(QueueBase::Main);
    world.submit_to(main, &download("d", channel(0, 1), "7")).await;
    world.submit_to(main, &avatar("a", channel(0, 1), "7")).await;
    let process = world.start(0, 1, Options::default());
    world.empties().await;
    for (job, queue) in [("d", "whatsapp_media"), ("a", "whatsapp_avatars")] {
        assert_eq!(world.wire.tries(job).len(), 1, "{job}");
        let done = process.metrics.jobs.with_label_values(&[queue, "done"]).get();
        assert_eq!(done, 1, "{job} was done by {queue}");
    }
    assert!(world.dead().await.is_empty());
}

/// Contract: Q6. Field report R34.
#[tokio::test]
async fn a_job_in_the_bare_queue_is_done_by_its_shard() {
    let world = World::new(Kind::Given);
    world.declare(2).await;
    world.declare(1).await;
    let processes = world.start_all(2, Options::default());
    for number in 0..20 {
        let job = send(&format!("j{number}"), channel(number % 2, 1), "7");
        world.submit_to(QueueName::bare(QueueBase::Main), &job).await;
    }
    world.empties().await;
    for (index, process) in processes.iter().enumerate() {
        assert_eq!(process.metrics.jobs.with_label_values(&["whatsapp", "done"]).get(), 10, "shard {index}");
    }
    for prefix in 0..2 {
        let order = world.wire.order(channel(prefix, 1), "7");
        let expected: Vec<_> = (0..20).filter(|n| n % 2 == prefix).map(|n| format!("j{n}")).collect();
        assert_eq!(order, expected);
    }
}

/// Contract: Q6.
#[tokio::test]
async fn a_job_of_another_shard_is_forwarded_in_order() {
    let world = World::new(Kind::Given);
    world.declare(2).await;
    let wrong = QueueName::of(QueueBase::Main, 0, 2);
    for number in 0..30 {
        world.submit_to(wrong, &send(&format!("j{number}"), channel(1, 1), "7")).await;
    }
    let _processes = world.start_all(2, Options::default());
    eventually("all sent", async || world.wire.frames().len() == 30).await;
    let expected: Vec<_> = (0..30).map(|number| format!("j{number}")).collect();
    assert_eq!(world.wire.order(channel(1, 1), "7"), expected);
    world.empties().await;
}
