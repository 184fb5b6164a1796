//! What is done to the shards, the broker and Redis, and when: kills at an even pace, restarts as the jobs get on.

use std::{sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{sync::Mutex, task::JoinHandle};

use super::{SHARDS, Scene, fleet::Fleet, report::Suffered};
use crate::stand::{Failure, servers::Server};

/// How often it is looked whether a shard has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A server that is being restarted, or stands.
enum Standing {
    Up(Server),
    Restarting(JoinHandle<Result<Server, Failure>>),
    /// It could not be restarted, which was told.
    Gone,
}

/// A restart that is due when so many jobs are shown. `kill`: by SIGKILL, or in good order.
struct Restart {
    at: u64,
    of_redis: bool,
    kill: bool,
}

/// All that goes on.
pub(super) struct Storm {
    fleet: Arc<Mutex<Fleet>>,
    killing: JoinHandle<Result<u32, Failure>>,
    rabbit: Standing,
    redis: Standing,
    /// The next one last.
    restarts: Vec<Restart>,
    suffered: Suffered,
}

impl Storm {
    pub(super) fn begin(scene: &Scene, fleet: Fleet, rabbit: Server, redis: Server) -> Self {
        let mut rng = StdRng::seed_from_u64(scene.plan.seed);
        let jobs = u64::from(scene.plan.jobs);
        let kill_first: bool = rng.random();
        // Around their nominal places, so that other seeds strike at other moments.
        let mut at = |percent: u64| jobs * (percent + rng.random_range(0..10)) / 100;
        let mut restarts = vec![
            Restart { at: at(15), of_redis: false, kill: kill_first },
            Restart { at: at(40), of_redis: true, kill: true },
            Restart { at: at(65), of_redis: false, kill: !kill_first },
        ];
        restarts.reverse();
        let fleet = Arc::new(Mutex::new(fleet));
        let killing = tokio::spawn(kill(fleet.clone(), scene.plan.kill_every, rng));
        let suffered = Suffered::default();
        Self { fleet, killing, rabbit: Standing::Up(rabbit), redis: Standing::Up(redis), restarts, suffered }
    }

    /// Does what is due when so many jobs are shown.
    pub(super) async fn look(&mut self, shown: u64) -> Result<(), Failure> {
        if self.killing.is_finished() {
            return Err("the shards could not be kept up".into());
        }
        for server in [&mut self.rabbit, &mut self.redis] {
            server.settle(false).await?;
        }
        while let Some(restart) = self.restarts.pop_if(|restart| restart.at <= shown) {
            let (server, count) = match restart.of_redis {
                true => (&mut self.redis, &mut self.suffered.redis_restarts),
                false => (&mut self.rabbit, &mut self.suffered.broker_restarts),
            };
            server.settle(true).await?;
            server.restart(restart.kill);
            *count += 1;
        }
        Ok(())
    }

    /// Whether all that was to be restarted stands again.
    pub(super) fn is_over(&self) -> bool {
        let stands = |server: &Standing| matches!(server, Standing::Up(_));
        self.restarts.is_empty() && stands(&self.rabbit) && stands(&self.redis)
    }

    /// No more of it. The servers stand until the fleet is dropped.
    pub(super) async fn end(mut self) -> Result<(Fleet, Suffered), Failure> {
        self.killing.abort();
        let _ = self.killing.await;
        for server in [&mut self.rabbit, &mut self.redis] {
            server.settle(true).await?;
        }
        let mut fleet = Arc::into_inner(self.fleet).ok_or("the fleet is still held")?.into_inner();
        self.suffered.kills = fleet.kills;
        self.suffered.ends = fleet.ends;
        for server in [self.rabbit, self.redis] {
            if let Standing::Up(server) = server {
                fleet.servers.push(server);
            }
        }
        Ok((fleet, self.suffered))
    }
}

impl Standing {
    /// Takes note of a restart that has ended; waits for it, if need be.
    async fn settle(&mut self, wait: bool) -> Result<(), Failure> {
        match std::mem::replace(self, Self::Gone) {
            Self::Restarting(restarting) if wait || restarting.is_finished() => *self = Self::Up(restarting.await??),
            other => *self = other,
        }
        Ok(())
    }

    fn restart(&mut self, kill: bool) {
        if let Self::Up(mut server) = std::mem::replace(self, Self::Gone) {
            let restarting = tokio::task::spawn_blocking(move || server.restart(kill).map(|()| server));
            *self = Self::Restarting(restarting);
        }
    }
}

/// Kills a shard again and again, and starts those anew that have ended.
async fn kill(fleet: Arc<Mutex<Fleet>>, every: Duration, mut rng: StdRng) -> Result<u32, Failure> {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    let mut next = tokio::time::Instant::now() + every;
    loop {
        ticks.tick().await;
        let mut fleet = fleet.lock().await;
        if tokio::time::Instant::now() >= next {
            next += every;
            fleet.kill(rng.random_range(0..SHARDS) as usize)?;
        }
        fleet.keep_up()?;
    }
}
