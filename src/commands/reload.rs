//! `shardvisor reload`: has the primary replace its shards one after the other, and waits until the last one is ready.
//! Unlike a signal it ends when the work is done, and says so when it could not be. A shard without a primary is signalled:
//! it reads its configuration again and drops nothing.

use std::time::Duration;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use supervisor::{
    SlotLock,
    control::{ControlError, Request, Response, call},
};

use crate::{
    config::{Config, plain},
    exit::Failure,
};

/// Asks, and waits as long as all shards may take.
pub(super) fn run(config: &Config) -> Result<(), Failure> {
    if config.shard_count == 1 || config.shard_index.is_some() {
        return signal_lone_shard(config, config.shard_index.unwrap_or(0));
    }
    let path = config.data_dir.join("control.sock");
    let each = config.supervisor.boot_timeout + config.supervisor.drain_timeout + Duration::from_secs(5);
    match call(&path, &Request::Reload, each * config.shard_count) {
        Ok(Response::Failed { reason }) => Err(Failure::GaveUp(format!("not reloaded: {reason}"))),
        Ok(Response::Done | Response::Status { .. }) => Ok(()),
        Err(ControlError::Call { source, .. } | ControlError::Bind { source, .. }) => {
            let (path, why) = (path.display(), plain(&source));
            Err(Failure::GaveUp(format!("{path}: {why}: is shardvisor running, with more than one shard?")))
        }
    }
}

fn signal_lone_shard(config: &Config, index: u32) -> Result<(), Failure> {
    let gave_up = |why: String| Failure::GaveUp(format!("not reloaded: {why}: is shardvisor running?"));
    let holder = SlotLock::holder(&config.data_dir, index).map_err(|error| gave_up(error.to_string()))?;
    let pid = holder.ok_or_else(|| gave_up(format!("nobody holds slot {index} in {}", config.data_dir.display())))?;
    kill(Pid::from_raw(pid), Signal::SIGHUP).map_err(|error| gave_up(format!("process {pid}: {}", error.desc())))
}
