//! The time from the call that publishes a job to the start of its work, at a steady rate.

use std::time::Duration;

use bench::stand::{Failure, child::Running};
use shard::clock::{Clock, SystemClock};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::{
    subject::Stand,
    worker::{Role, spread},
};

/// Jobs that come before the measuring begins: the first use of each path is not what a running system pays.
const WARM: u32 = 500;

/// How much is published.
pub(crate) struct Run {
    pub(crate) rate: u32,
    pub(crate) time: Duration,
}

/// What a job says of when it was published; the clock is the same in all processes of a machine.
fn stamp(measured: bool) -> String {
    if measured { format!("at {}", SystemClock.boottime().as_micros()) } else { "warm".to_owned() }
}

/// How many microseconds ago a job was published, if it is one that is measured.
pub(crate) fn since(text: &str) -> Option<u64> {
    let at: u64 = text.strip_prefix("at ")?.parse().ok()?;
    Some((SystemClock.boottime().as_micros() as u64).saturating_sub(at))
}

pub(crate) async fn measure(stand: &Stand, run: &Run, place: u32) -> Result<(), Failure> {
    let dir = tempfile::tempdir_in(&stand.within)?;
    let (queue, spread) = (stand.producer(place)?, spread(1));
    spread.fill(queue.clone(), 0).await?;
    let mut command = stand.worker(Role::Broker, place)?;
    command.arg("--dir").arg(dir.path());
    let worker = Running::start(&mut command)?;
    worker.says("first", Duration::from_secs(30))?;

    let measured = run.rate * run.time.as_secs() as u32;
    let mut ticks = interval_at(Instant::now(), Duration::from_secs(1) / run.rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut publishing: JoinSet<Result<(), Failure>> = JoinSet::new();
    for number in 0..WARM + measured {
        ticks.tick().await;
        let queue = queue.clone();
        publishing.spawn(async move {
            let job = spread.job(number, stamp(number >= WARM))?;
            spread.put(&*queue, &job).await
        });
        while let Some(published) = publishing.try_join_next() {
            published??;
        }
    }
    while let Some(published) = publishing.join_next().await {
        published??;
    }
    while spread.left(&*queue).await? > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let waits = worker.end_saying("waits")?;
    let mut waits: Vec<u64> = serde_json::from_str(&waits)?;
    waits.sort_unstable();
    if waits.len() != measured as usize {
        return Err(format!("{} of {measured} jobs were begun", waits.len()).into());
    }
    let of = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    println!(
        "publish to start of work at {}/s for {:?}: p50 {:.2} ms (bar 5), p99 {:.2} ms (bar 25), longest {:.1} ms",
        run.rate,
        run.time,
        of(0.5),
        of(0.99),
        of(1.0)
    );
    Ok(())
}
