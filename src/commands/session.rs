//! `shardvisor session`: device sessions as an operator moves them. What holds one open is never written behind its back:
//! the channel must be disabled, its lease given back, and is held here meanwhile.

use std::{io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use shard::{
    clock::SystemClock,
    identity::ChannelId,
    keyring::Keyring,
    registry::{Claim, Holder, RENEW_EVERY, RegistryError, Resource},
    session::{Import, TransferError, delete_session, export_session, import_session, read_baileys},
    store::Peers,
};
use uuid::Uuid;

use crate::{
    cli::Session,
    commands::{
        channel,
        data::{self, block_on, store_failure},
        print,
    },
    config::{Config, plain},
    exit::Failure,
    shard_process::bucket,
};

/// Does what was asked.
pub(super) fn run(config: &Config, command: &Session) -> Result<(), Failure> {
    data::enter(config)?;
    let keyring = Keyring::open(&config.key_file()).map_err(|error| Failure::Config(error.to_string()))?;
    let peers = Peers::new(&config.data_dir);
    block_on(async {
        match command {
            Session::Export { id, to } => {
                let file = export_session(&peers, config.shard_count, *id, &keyring, &SystemClock).await;
                write(to, &file.map_err(failure)?)
            }
            Session::Import { id, from, baileys, replace } => {
                let bytes;
                let import = match (from, baileys) {
                    (Some(file), _) => {
                        bytes = std::fs::read(file)
                            .map_err(|error| Failure::Usage(format!("{}: {}", file.display(), plain(&error))))?;
                        Import::Snapshot(&bytes)
                    }
                    (None, Some(dir)) => {
                        let read = read_baileys(dir).map_err(|error| Failure::Usage(error.to_string()))?;
                        for told in &read.left_out {
                            print(format_args!("left out: {told}"))?;
                        }
                        Import::Foreign(read)
                    }
                    (None, None) => return Err(Failure::Usage("--from or --baileys is missing".to_owned())),
                };
                let bucket = bucket(config)?;
                let (count, bucket) = (config.shard_count, bucket.as_ref());
                let work = import_session(&peers, count, *id, &keyring, bucket, import, *replace);
                at_rest(config, *id, async { work.await.map_err(failure) }).await
            }
            Session::Delete { id } => {
                let bucket = bucket(config)?;
                let work = delete_session(&peers, config.shard_count, *id, bucket.as_ref());
                if at_rest(config, *id, async { work.await.map_err(failure) }).await? {
                    return Ok(());
                }
                Err(Failure::GaveUp(format!("channel {id} has no session here")))
            }
        }
    })
}

/// Works while nobody can connect the channel, anywhere: it is disabled, and its lease is held here meanwhile.
async fn at_rest<T>(
    config: &Config,
    id: ChannelId,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let known = channel::all(config).await?.into_iter().find(|channel| channel.spec.id == id);
    if known.is_some_and(|channel| channel.spec.enabled) {
        return Err(Failure::Usage(format!("channel {id} is enabled: `shardvisor channel disable {id}` first")));
    }
    let away = |error: RegistryError| Failure::GaveUp(error.to_string());
    let registry = data::registry(config)?;
    let holder = Holder { worker: format!("session-command-{}", Uuid::new_v4()), incarnation: 1 };
    let claims = registry.claim(&holder, &[Resource::Channel(id)], false).await.map_err(away)?;
    let lease = match claims.into_iter().next() {
        Some(Claim::Held(lease)) => lease,
        Some(Claim::Taken { by, .. }) => {
            let holds = by.worker;
            return Err(Failure::GaveUp(format!("channel {id} is still held by {holds}: try again in a moment")));
        }
        None => return Err(Failure::Internal("the registry did not answer a claim".to_owned())),
    };
    let lost = async {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            if registry.renew(&holder, &[lease]).await.is_ok_and(|renewal| !renewal.lost.is_empty()) {
                return;
            }
        }
    };
    let done = tokio::select! {
        biased;
        done = work => done,
        () = lost => Err(Failure::GaveUp(format!("channel {id} was taken by somebody else meanwhile"))),
    };
    // A lease that can't be given back ends by itself.
    let _ = registry.release(&holder, &[lease]).await;
    done
}

/// Writes a file for its owner alone; one that is there stays as it is.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Usage(format!("{}: {}", path.display(), plain(&error)));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)
}

fn failure(error: TransferError) -> Failure {
    match error {
        TransferError::Store(error) => store_failure(error),
        TransferError::Bucket(_) | TransferError::NoSession(_) => Failure::GaveUp(error.to_string()),
        TransferError::Key(_) => Failure::Config(error.to_string()),
        TransferError::Taken(_) => Failure::Usage(format!("{error}; --replace takes its place")),
        TransferError::Snapshot(_) | TransferError::OtherChannel { .. } => Failure::Usage(error.to_string()),
        TransferError::Seal(_) => Failure::Internal(error.to_string()),
    }
}
