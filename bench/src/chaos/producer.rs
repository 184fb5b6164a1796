//! Publishes the jobs: those of a lane one after another, each until it is confirmed; lanes side by side.

use std::{sync::Arc, time::Duration};

use shard::{
    job::{Job, OnUncertain, Task},
    queue::Queue,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{Network, Scene, judge::text};
use crate::stand::Failure;

/// How long to leave a broker alone that did not take a job.
const PAUSE: Duration = Duration::from_millis(200);
/// Lanes that are published side by side.
const SIDE_BY_SIDE: u32 = 200;

/// How many publishes it took.
pub(super) async fn produce(scene: Arc<Scene>, queue: Arc<dyn Queue>) -> Result<u64, Failure> {
    let lanes = scene.spread.channels * scene.spread.chats;
    let mut producing = JoinSet::new();
    for part in 0..SIDE_BY_SIDE.min(lanes) {
        producing.spawn(produce_part(scene.clone(), queue.clone(), part, lanes));
    }
    let mut all = 0;
    while let Some(published) = producing.join_next().await {
        all += published??;
    }
    Ok(all)
}

/// The lanes of one part, in turns.
async fn produce_part(scene: Arc<Scene>, queue: Arc<dyn Queue>, part: u32, lanes: u32) -> Result<u64, Failure> {
    let mut published = 0;
    let of_part = |number: &u32| number % lanes % SIDE_BY_SIDE == part;
    let began = Instant::now();
    for number in (0..scene.plan.jobs).filter(of_part) {
        sleep_until(began + Duration::from_secs(1) * number / scene.plan.rate.max(1)).await;
        let job = job(&scene, number)?;
        loop {
            published += 1;
            match scene.spread.put(&*queue, &job).await {
                Ok(()) => break,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
    Ok(published)
}

fn job(scene: &Scene, number: u32) -> Result<Job, Failure> {
    let mut job = scene.spread.job(number, text(number))?;
    if let (Network::Telegram { .. }, Task::Send(data)) = (&scene.plan.network, &mut job.task) {
        data.on_uncertain = OnUncertain::DeadLetter;
    }
    Ok(job)
}
