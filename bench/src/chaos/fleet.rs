//! Two shards as processes, each started again as soon as it has ended, as a service manager does with static shards.

use std::{
    fs::{File, OpenOptions},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Network, SHARDS, Scene, ids, telegram, wire};
use crate::stand::{Failure, servers::Server};

/// How long a shard may take to end in good order.
const END: Duration = Duration::from_secs(40);

/// What is behind the shards, for as long as it is held.
enum Behind {
    Ids(wire::Server),
    Telegram(telegram::Stage),
}

/// The shards.
pub(super) struct Fleet {
    scene: Arc<Scene>,
    behind: Behind,
    shards: Vec<Option<Child>>,
    pub(super) kills: u32,
    pub(super) ends: u32,
    /// Held for the shards.
    pub(super) servers: Vec<Server>,
}

impl Fleet {
    pub(super) async fn new(scene: &Arc<Scene>) -> Result<Self, Failure> {
        let behind = match &scene.plan.network {
            Network::ClientIds { .. } => Behind::Ids(wire::Server::start(scene).await?),
            Network::Telegram { .. } => Behind::Telegram(telegram::Stage::set(scene).await?),
        };
        let shards = (0..SHARDS).map(|_| None).collect();
        let mut this = Self { scene: scene.clone(), behind, shards, kills: 0, ends: 0, servers: Vec::new() };
        this.keep_up()?;
        Ok(this)
    }

    fn command(&self, index: u32) -> Result<Command, Failure> {
        Ok(match (&self.behind, &self.scene.plan.network) {
            (Behind::Ids(server), Network::ClientIds { program }) => {
                ids::command(program, &self.scene, index, server.address())
            }
            (Behind::Telegram(stage), Network::Telegram { daemon }) => stage.command(daemon, &self.scene, index),
            _ => return Err("another network than the plan's".into()),
        })
    }

    /// Starts those that do not run.
    pub(super) fn keep_up(&mut self) -> Result<(), Failure> {
        for index in 0..SHARDS {
            let slot = &mut self.shards[index as usize];
            if let Some(child) = slot
                && child.try_wait()?.is_some()
            {
                self.ends += 1;
                *slot = None;
            }
            if self.shards[index as usize].is_none() {
                let log = log(&self.scene.dir, index)?;
                let mut command = self.command(index)?;
                command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
                self.shards[index as usize] = Some(command.spawn()?);
            }
        }
        Ok(())
    }

    /// Kills one at once.
    pub(super) fn kill(&mut self, index: usize) -> Result<(), Failure> {
        if let Some(mut child) = self.shards.get_mut(index).and_then(Option::take) {
            child.kill()?;
            child.wait()?;
            self.kills += 1;
        }
        Ok(())
    }

    /// Stops all in good order, and waits until they have ended.
    pub(super) async fn stop(&mut self) -> Result<(), Failure> {
        for child in self.shards.iter().flatten() {
            kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM)?;
        }
        let deadline = Instant::now() + END;
        for child in &mut self.shards {
            let Some(mut child) = child.take() else { continue };
            // What ends with its input does so too.
            drop(child.stdin.take());
            while child.try_wait()?.is_none() {
                if Instant::now() > deadline {
                    child.kill()?;
                    child.wait()?;
                    return Err(format!("a shard did not stop within {END:?}").into());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in self.shards.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn log(dir: &Path, index: u32) -> Result<File, Failure> {
    Ok(OpenOptions::new().create(true).append(true).open(dir.join(format!("shard-{index}.log")))?)
}
