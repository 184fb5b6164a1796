//! Where snapshots lie: a directory, or a bucket that speaks S3.
//!
//! An object's name is `<channel>/<token>-<seq>.session`, both numbers with leading zeros: the newest is the last in
//! order, and what an owner of before still writes sorts below it. Nothing is ever written over.

mod http;

use std::{fmt, path::Path as FilePath, sync::Arc};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, aws::AmazonS3Builder, local::LocalFileSystem, path::Path,
};
use url::Url;

use self::http::OwnConnector;
use crate::{identity::ChannelId, secret::Secret};

/// Snapshots of a channel that are kept.
const KEPT: usize = 2;

/// Why the bucket did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BucketError {
    /// It can't be reached, or said no.
    #[error("snapshots in {place}: {cause}")]
    Unavailable {
        /// Which bucket.
        place: String,
        /// Why.
        cause: String,
    },
    /// A newer owner has stored a snapshot.
    #[error("fenced: a newer owner of channel {0} has stored a snapshot")]
    Fenced(ChannelId),
    /// It is set up wrongly.
    #[error("snapshots: {0}")]
    Config(String),
}

/// Which snapshot of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp {
    pub(super) token: u64,
    pub(super) seq: u64,
}

/// How a bucket that speaks S3 is reached.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// The server, where it is not Amazon's.
    pub endpoint: Option<Url>,
    /// The region.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// What the names begin with.
    pub prefix: String,
    /// The access key's id.
    pub access_key_id: String,
    /// The access key.
    pub secret_access_key: Secret,
}

/// A place for snapshots.
#[derive(Clone)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    shown: String,
}

impl Bucket {
    /// A directory, made for its owner alone if it isn't there.
    pub fn disk(dir: &FilePath) -> Result<Self, BucketError> {
        crate::store::make_directory(dir).map_err(|error| BucketError::Config(error.to_string()))?;
        let store = LocalFileSystem::new_with_prefix(dir).map_err(|error| BucketError::Config(error.to_string()))?;
        let shown = dir.display().to_string();
        Ok(Self { store: Arc::new(store.with_fsync(true)), prefix: Path::default(), shown })
    }

    /// A bucket that speaks S3, over the shard's one HTTP client.
    pub fn s3(options: &S3Options, client: reqwest::Client) -> Result<Self, BucketError> {
        let mut builder = AmazonS3Builder::new()
            .with_region(&options.region)
            .with_bucket_name(&options.bucket)
            .with_access_key_id(&options.access_key_id)
            .with_secret_access_key(options.secret_access_key.expose())
            .with_http_connector(OwnConnector::new(client));
        if let Some(endpoint) = &options.endpoint {
            builder = builder
                .with_endpoint(endpoint.as_str().trim_end_matches('/'))
                .with_allow_http(endpoint.scheme() == "http")
                .with_virtual_hosted_style_request(false);
        }
        let store = builder.build().map_err(|error| BucketError::Config(error.to_string()))?;
        let shown = format!("s3://{}/{}", options.bucket, options.prefix.trim_matches('/'));
        Ok(Self { store: Arc::new(store), prefix: Path::from(options.prefix.trim_matches('/')), shown })
    }

    /// The newest snapshot of a channel.
    pub(super) async fn newest(&self, channel: ChannelId) -> Result<Option<Stamp>, BucketError> {
        Ok(self.list(channel).await?.into_iter().map(|(stamp, _)| stamp).max())
    }

    pub(super) async fn load(&self, channel: ChannelId, stamp: Stamp) -> Result<Bytes, BucketError> {
        let path = self.path(channel, stamp);
        let found = self.store.get(&path).await.map_err(|error| self.error(&error))?;
        found.bytes().await.map_err(|error| self.error(&error))
    }

    /// Stores a snapshot; refused when somebody with a newer token has stored one. Older ones are removed afterwards.
    pub(super) async fn save(&self, channel: ChannelId, stamp: Stamp, file: Vec<u8>) -> Result<(), BucketError> {
        let mut there = self.list(channel).await?;
        if there.iter().any(|(other, _)| other.token > stamp.token) {
            return Err(BucketError::Fenced(channel));
        }
        let path = self.path(channel, stamp);
        match self.store.put_opts(&path, file.into(), PutMode::Create.into()).await {
            // The same state was stored before: a retry after an answer that got lost.
            Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(self.error(&error)),
        }
        there.retain(|(other, _)| *other != stamp);
        there.sort_by_key(|(stamp, _)| *stamp);
        let old = there.len().saturating_sub(KEPT - 1);
        for (_, meta) in there.into_iter().take(old) {
            self.remove(&meta.location).await?;
        }
        Ok(())
    }

    /// Removes all of a channel's snapshots.
    pub(super) async fn clear(&self, channel: ChannelId) -> Result<(), BucketError> {
        for (_, meta) in self.list(channel).await? {
            self.remove(&meta.location).await?;
        }
        Ok(())
    }

    async fn remove(&self, path: &Path) -> Result<(), BucketError> {
        match self.store.delete(path).await {
            Err(object_store::Error::NotFound { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(self.error(&error)),
        }
    }

    async fn list(&self, channel: ChannelId) -> Result<Vec<(Stamp, ObjectMeta)>, BucketError> {
        let folder = self.folder(channel);
        let all: Vec<ObjectMeta> =
            self.store.list(Some(&folder)).try_collect().await.map_err(|error| self.error(&error))?;
        let stamped = |meta: ObjectMeta| Some((stamp_of(meta.location.filename()?)?, meta));
        Ok(all.into_iter().filter_map(stamped).collect())
    }

    fn folder(&self, channel: ChannelId) -> Path {
        self.prefix.clone().join(channel.to_string())
    }

    fn path(&self, channel: ChannelId, stamp: Stamp) -> Path {
        self.folder(channel).join(format!("{:020}-{:020}.session", stamp.token, stamp.seq))
    }

    fn error(&self, error: &object_store::Error) -> BucketError {
        BucketError::Unavailable { place: self.shown.clone(), cause: error.to_string() }
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.shown).finish()
    }
}

fn stamp_of(name: &str) -> Option<Stamp> {
    let (token, seq) = name.strip_suffix(".session")?.split_once('-')?;
    Some(Stamp { token: token.parse().ok()?, seq: seq.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> ChannelId {
        ChannelId::from_uuid(uuid::Uuid::from_u128(7))
    }

    /// Contract: C4.
    #[tokio::test]
    async fn a_stale_owner_can_not_overwrite_what_a_newer_one_stored() {
        let dir = tempfile::tempdir().expect("directory");
        let bucket = Bucket::disk(&dir.path().join("snapshots")).expect("opened");
        assert_eq!(bucket.newest(channel()).await.expect("asked"), None);
        let (old, new) = (Stamp { token: 3, seq: 900 }, Stamp { token: 4, seq: 5 });
        bucket.save(channel(), old, b"old".to_vec()).await.expect("saved");
        bucket.save(channel(), new, b"new".to_vec()).await.expect("saved");
        let late = bucket.save(channel(), Stamp { token: 3, seq: 901 }, b"late".to_vec()).await;
        assert!(matches!(late, Err(BucketError::Fenced(_))), "{late:?}");
        assert_eq!(bucket.newest(channel()).await.expect("asked"), Some(new));
        assert_eq!(bucket.load(channel(), new).await.expect("loaded").as_ref(), b"new");
        bucket.clear(channel()).await.expect("cleared");
        assert_eq!(bucket.newest(channel()).await.expect("asked"), None);
    }

    #[tokio::test]
    async fn only_the_newest_snapshots_are_kept() {
        let dir = tempfile::tempdir().expect("directory");
        let bucket = Bucket::disk(dir.path()).expect("opened");
        for seq in 1..=5 {
            bucket.save(channel(), Stamp { token: 1, seq }, vec![seq as u8]).await.expect("saved");
        }
        let kept: Vec<u64> =
            bucket.list(channel()).await.expect("listed").into_iter().map(|(stamp, _)| stamp.seq).collect();
        assert_eq!(kept.len(), KEPT, "{kept:?}");
        assert!(kept.contains(&5) && kept.contains(&4), "{kept:?}");
    }
}
