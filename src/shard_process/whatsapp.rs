//! WhatsApp as the configuration wants it: its sessions in the slot's file, their snapshots in a directory or bucket.

use std::{sync::Arc, time::Duration};

use shard::{
    clock::Clock,
    keyring::Keyring,
    media::Media,
    platform::{
        Platform,
        whatsapp::{LOOPBACK, Whatsapp, WhatsappConfig},
    },
    session::{Bucket, S3Options, SessionKeeper, SnapshotPolicy},
    store::SlotStore,
};
use tracing::warn;

use crate::{
    config::{Config, Snapshots},
    exit::Failure,
};

/// The network; none in a loopback build that has no simulator to connect to.
pub(super) fn platform(
    config: &Config,
    slot: &Arc<SlotStore>,
    media: &Arc<Media>,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Arc<dyn Platform>>, Failure> {
    if LOOPBACK && config.whatsapp.endpoint.is_none() {
        warn!("this is a loopback build: WhatsApp is not there without whatsapp.endpoint");
        return Ok(None);
    }
    let keyring = Keyring::open(&config.key_file()).map_err(|error| Failure::Config(error.to_string()))?;
    let policy = SnapshotPolicy { lag: config.sessions.snapshot_lag, ..SnapshotPolicy::default() };
    let sessions = SessionKeeper::new(slot.clone(), Arc::new(keyring), bucket(config)?, policy, clock.clone());
    let snapshots = sessions.clone();
    // It ends with the process: what is due by then is taken when the connections end.
    tokio::spawn(async move { snapshots.run().await });
    let settings = WhatsappConfig {
        version: config.whatsapp.version,
        device_name: config.whatsapp.device_name.clone(),
        pre_keys: config.whatsapp.pre_keys as usize,
        history: config.whatsapp.history,
        endpoint: config.whatsapp.endpoint.clone(),
        hurry: if LOOPBACK { 5 } else { 1 },
        ..WhatsappConfig::default()
    };
    let whatsapp =
        Whatsapp::new(settings, media.clone(), sessions).map_err(|error| Failure::Config(error.to_string()))?;
    Ok(Some(Arc::new(whatsapp)))
}

/// Where snapshots are kept.
pub(crate) fn bucket(config: &Config) -> Result<Option<Bucket>, Failure> {
    let bucket = match config.snapshots() {
        Snapshots::Off => return Ok(None),
        Snapshots::Directory(dir) => Bucket::disk(&dir),
        Snapshots::Bucket { bucket, prefix } => {
            let client = reqwest::Client::builder().timeout(Duration::from_secs(60)).build();
            let client = client.map_err(|_| Failure::Internal("no HTTP client for the bucket".to_owned()))?;
            let missing = || Failure::Config("sessions.snapshots: the bucket's access key is missing".to_owned());
            let options = S3Options {
                endpoint: config.sessions.s3_endpoint.clone(),
                region: config.sessions.s3_region.clone(),
                bucket,
                prefix,
                access_key_id: config.sessions.s3_access_key_id.clone().ok_or_else(missing)?,
                secret_access_key: config.sessions.s3_secret.first().cloned().ok_or_else(missing)?,
            };
            Bucket::s3(&options, client)
        }
    };
    bucket.map(Some).map_err(|error| Failure::Config(error.to_string()))
}
