//! `shardvisor reload`: has the primary replace its shards one after the other, and waits until the last one is ready.
//! Unlike a signal it ends when the work is done, and says so when it could not be.

use std::time::Duration;

use supervisor::control::{ControlError, Request, Response, call};

use crate::{
    config::{Config, plain},
    exit::Failure,
};

/// Asks, and waits as long as all shards may take.
pub(super) fn run(config: &Config) -> Result<(), Failure> {
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
