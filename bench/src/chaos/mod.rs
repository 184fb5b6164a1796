//! Many jobs through two shards, while shards are killed, the broker is restarted twice and Redis once: nothing may be lost,
//! nothing shown twice, and the order of each conversation is kept.
//!
//! Two networks are behind the shards. On one of them clients choose the ids of their messages, and each id is shown once,
//! as on WhatsApp: there every job must be shown. The other one is the Telegram simulator, where nothing but the
//! platform knows whether a send that was cut off has happened: there a job is shown, or it is a dead letter for just that
//! reason. The first kind of shard is the benchmark's own program, the second kind is `shardvisor run`.

mod fleet;
mod ids;
mod judge;
mod producer;
mod report;
mod storm;
mod telegram;
mod wire;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use shard::{
    identity::{QueueBase, ShardId},
    queue::{AmqpConfig, AmqpQueue, Queue},
};

use self::{
    fleet::Fleet,
    judge::{Judge, Verdicts},
    storm::Storm,
};
pub use self::{
    ids::{ShardArguments, run_shard},
    report::Report,
};
use crate::stand::{
    Failure,
    jobs::Spread,
    servers::{Server, declare_new},
};

/// How many shards there are.
const SHARDS: u32 = 2;
/// Whoever makes no progress for so long has lost something.
const STUCK: Duration = Duration::from_secs(90);
/// For how long the queues must have been empty.
const CALM: Duration = Duration::from_secs(3);
/// How often it is looked how far the shards are.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What is behind the shards.
#[derive(Debug, Clone)]
pub enum Network {
    /// Clients choose ids; the shards are this program in the role of [`run_shard`].
    ClientIds {
        /// The program.
        program: PathBuf,
    },
    /// The Telegram simulator; the shards are this `shardvisor`.
    Telegram {
        /// The program.
        daemon: PathBuf,
    },
}

/// What is done, and to whom.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many jobs.
    pub jobs: u32,
    /// Chooses who is killed, and what the network refuses.
    pub seed: u64,
    /// How many are published in a second, at most.
    pub rate: u32,
    /// How many channels; each has 25 chats.
    pub channels: u32,
    /// How often a shard is killed.
    pub kill_every: Duration,
    /// What is behind the shards.
    pub network: Network,
    /// Where stores and logs lie, in a directory that is removed unless something went wrong.
    pub within: PathBuf,
}

impl Plan {
    fn spread(&self) -> Spread {
        Spread { channels: self.channels, chats: 25, shards: SHARDS }
    }
}

/// What everything in a run needs to know.
struct Scene {
    plan: Plan,
    spread: Spread,
    judge: Arc<Mutex<Judge>>,
    dir: PathBuf,
    amqp: String,
    redis: String,
}

/// Runs it. An error is a run that came to no end; whether what was promised was kept is in the report.
pub async fn run(plan: Plan) -> Result<Report, Failure> {
    let dir = tempfile::Builder::new().prefix("shardvisor-chaos-").tempdir_in(&plan.within)?;
    let outcome = play(plan, dir.path().to_owned()).await;
    if !outcome.as_ref().is_ok_and(Report::holds) {
        eprintln!("stores and logs of the shards are kept in {}", dir.keep().display());
    }
    outcome
}

async fn play(plan: Plan, dir: PathBuf) -> Result<Report, Failure> {
    let (rabbit, redis) = (Server::rabbit(1)?, Server::redis("always")?);
    let spread = plan.spread();
    let scene = Arc::new(Scene {
        judge: Arc::new(Mutex::new(Judge::new(spread, plan.jobs))),
        spread,
        dir,
        amqp: rabbit.amqp(0),
        redis: redis.redis_url(0),
        plan,
    });
    declare_new(&scene.redis, "shardvisor:").await?;
    let queue: Arc<dyn Queue> = Arc::new(AmqpQueue::new(AmqpConfig::new([scene.amqp.as_str()])?));
    for index in 0..SHARDS {
        queue.declare(ShardId::new(index, SHARDS).queue(QueueBase::Main)).await?;
    }

    let fleet = Fleet::new(&scene).await?;
    let began = Instant::now();
    let producing = tokio::spawn(producer::produce(scene.clone(), queue.clone()));
    let mut storm = Storm::begin(&scene, fleet, rabbit, redis);
    let published = until_done(&scene, &*queue, &mut storm, producing).await?;
    let (mut fleet, suffered) = storm.end().await?;
    let took = began.elapsed();
    calm_down(&scene, &*queue, &mut fleet).await?;

    let dead = judge::dead_letters(&*queue, SHARDS).await?;
    let Verdicts { shown, twice, out_of_order, lost, uncertain, dead } =
        scene.judge.lock().expect("judge").verdicts(&dead);
    let Plan { seed, jobs, network, .. } = scene.plan.clone();
    let must_show_all = matches!(network, Network::ClientIds { .. });
    let repeated = published - u64::from(jobs);
    Ok(Report {
        seed,
        jobs,
        repeated,
        shown,
        twice,
        out_of_order,
        lost,
        uncertain,
        dead,
        must_show_all,
        suffered,
        took,
    })
}

/// Notices when nothing gets on any more.
struct Watch<'a> {
    scene: &'a Scene,
    moved: Instant,
    shown: u64,
}

impl<'a> Watch<'a> {
    fn new(scene: &'a Scene) -> Self {
        Self { scene, moved: Instant::now(), shown: 0 }
    }

    /// How many jobs are shown by now.
    async fn look(&mut self, queue: &dyn Queue) -> Result<u64, Failure> {
        let shown = self.scene.judge.lock().expect("judge").shown();
        if shown != self.shown {
            (self.moved, self.shown) = (Instant::now(), shown);
        } else if self.moved.elapsed() > STUCK {
            let (jobs, left) = (self.scene.plan.jobs, self.scene.spread.left(queue).await);
            return Err(format!(
                "nothing was shown for {STUCK:?}: {shown} jobs of {jobs} were; in the queues: {left:?}"
            )
            .into());
        }
        Ok(shown)
    }
}

/// Returns when everything is published and nothing waits in the queues; how many publishes that took.
async fn until_done(
    scene: &Scene,
    queue: &dyn Queue,
    storm: &mut Storm,
    producing: tokio::task::JoinHandle<Result<u64, Failure>>,
) -> Result<u64, Failure> {
    let mut watch = Watch::new(scene);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        storm.look(watch.look(queue).await?).await?;
        if producing.is_finished() && storm.is_over() && is_empty(scene, queue).await {
            return producing.await?;
        }
    }
}

/// Lets the shards do what they had in hand, which a broker tells nobody about, and stops them in good order.
async fn calm_down(scene: &Scene, queue: &dyn Queue, fleet: &mut Fleet) -> Result<(), Failure> {
    let mut watch = Watch::new(scene);
    loop {
        // A queue that is just being recovered says for a while that it is empty.
        let mut empty_since = None;
        while empty_since.is_none_or(|since: Instant| since.elapsed() < CALM) {
            fleet.keep_up()?;
            tokio::time::sleep(LOOK_EVERY).await;
            watch.look(queue).await?;
            empty_since =
                if is_empty(scene, queue).await { empty_since.or_else(|| Some(Instant::now())) } else { None };
        }
        fleet.stop().await?;
        tokio::time::sleep(CALM).await;
        // What was out is back by now.
        if is_empty(scene, queue).await {
            return Ok(());
        }
    }
}

async fn is_empty(scene: &Scene, queue: &dyn Queue) -> bool {
    // While the broker is away nobody knows.
    scene.spread.left(queue).await.is_ok_and(|left| left == 0)
}
