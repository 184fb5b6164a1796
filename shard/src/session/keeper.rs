//! Opens sessions and takes their snapshots.
//!
//! Which state is the newest is decided by the owner's token and the count of changes, never by a clock. The bucket is
//! asked only when somebody else may have been the owner in between: a token that follows on the one that wrote last
//! proves that nobody was.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{Notify, Semaphore},
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use super::{
    Opened, Restored, Right, SessionError, Sessions,
    bucket::{Bucket, BucketError, Stamp},
    cipher::DataKey,
    device::DeviceSession,
    rows::{self, Head, Kind},
    snapshot::Snapshot,
};
use crate::{
    clock::Clock,
    identity::ChannelId,
    keyring::Keyring,
    store::{SlotStore, check_fence},
};

/// How often snapshots are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// How long after a change one is taken at the latest.
    pub lag: Duration,
    /// So many at a time.
    pub side_by_side: usize,
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        Self { lag: Duration::from_secs(300), side_by_side: 8 }
    }
}

/// Sessions that have changed since their last snapshot, and when it is due.
#[derive(Default)]
struct Changed {
    due: Mutex<HashMap<ChannelId, (Instant, Weak<DeviceSession>)>>,
    first: Notify,
}

/// The sessions of a slot.
pub struct SessionKeeper {
    store: Arc<SlotStore>,
    keyring: Arc<Keyring>,
    bucket: Option<Bucket>,
    policy: SnapshotPolicy,
    clock: Arc<dyn Clock>,
    changed: Arc<Changed>,
    room: Semaphore,
}

/// Which state is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Make,
    Local,
    Bucket(Stamp),
    /// Somebody newer has been the owner.
    Stale,
}

fn choose(local: Option<Stamp>, bucket: Option<Stamp>, token: u64) -> Choice {
    let newest = local.max(bucket);
    match (newest, bucket) {
        (Some(newest), _) if newest.token > token => Choice::Stale,
        (Some(newest), Some(bucket)) if Some(newest) != local => Choice::Bucket(bucket),
        (Some(_), _) => Choice::Local,
        (None, _) => Choice::Make,
    }
}

impl SessionKeeper {
    /// Over a slot's file. Without a bucket there are no snapshots.
    pub fn new(
        store: Arc<SlotStore>,
        keyring: Arc<Keyring>,
        bucket: Option<Bucket>,
        policy: SnapshotPolicy,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let room = Semaphore::new(policy.side_by_side.max(1));
        Arc::new(Self { store, keyring, bucket, policy, clock, changed: Arc::default(), room })
    }

    /// Takes the snapshots that are due, for ever.
    pub async fn run(&self) {
        loop {
            let next = self.changed.due.lock().expect("changed").values().map(|(due, _)| *due).min();
            tokio::select! {
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = self.changed.first.notified() => continue,
            }
            for session in self.take_due() {
                if let Err(error) = self.snapshot(&session).await {
                    warn!(channel = %session.channel(), %error, "no snapshot of a session could be stored");
                    self.changed.note(&session, Instant::now() + self.policy.lag);
                }
            }
        }
    }

    fn take_due(&self) -> Vec<Arc<DeviceSession>> {
        let now = Instant::now();
        let mut due = self.changed.due.lock().expect("changed");
        let taken: Vec<ChannelId> = due.iter().filter(|(_, (at, _))| *at <= now).map(|(id, _)| *id).collect();
        taken.iter().filter_map(|id| due.remove(id)?.1.upgrade()).collect()
    }

    async fn snapshot(&self, session: &DeviceSession) -> Result<(), SessionError> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        let Ok(_permit) = self.room.acquire().await else { return Ok(()) };
        let channel = session.channel();
        let taken_ms = self.clock.wall_ms();
        let read = self.store.read(move |connection| {
            let head = rows::head(connection, channel)?;
            head.map(|head| Ok((head, rows::all(connection, channel)?))).transpose()
        });
        let Some((head, rows)) = read.await? else { return Ok(()) };
        if head.token > session.right().fence.token {
            return Err(SessionError::Fenced(channel));
        }
        let stamp = Stamp { token: head.token, seq: head.seq };
        let (snapshot, keyring) = (Snapshot::new(channel, head, rows, taken_ms), self.keyring.clone());
        let encoded = tokio::task::spawn_blocking(move || snapshot.encode(&keyring)).await;
        let file = encoded
            .map_err(|error| SessionError::Unavailable(error.to_string()))?
            .map_err(|error| SessionError::Refused(error.to_string()))?;
        if !(session.right().held)() {
            return Err(SessionError::Fenced(channel));
        }
        bucket.save(channel, stamp, file).await.map_err(bucket_error)
    }

    fn is_sole_heir(local: Option<&Head>, token: u64) -> bool {
        local.is_some_and(|head| head.token == token || head.token + 1 == token)
    }

    async fn restore(&self, right: &Right, stamp: Stamp) -> Result<Restored, SessionError> {
        let Some(bucket) = &self.bucket else { return Err(SessionError::Refused("there is no bucket".into())) };
        let fence = right.fence;
        let file = bucket.load(fence.channel, stamp).await.map_err(bucket_error)?;
        let keyring = self.keyring.clone();
        let decoded = tokio::task::spawn_blocking(move || Snapshot::decode(&file, &keyring)).await;
        let snapshot = decoded.map_err(|error| SessionError::Unavailable(error.to_string()))?.map_err(|error| {
            SessionError::Refused(format!("the newest snapshot of channel {} is of no use: {error}", fence.channel))
        })?;
        if snapshot.channel != fence.channel || (Stamp { token: snapshot.token, seq: snapshot.seq }) != stamp {
            return Err(SessionError::Refused(format!(
                "a snapshot of channel {} lies under another name",
                fence.channel
            )));
        }
        let restored = Restored { taken_ms: snapshot.taken_ms, seq: snapshot.seq };
        self.store
            .write(move |connection| {
                check_fence(connection, &fence)?;
                rows::delete(connection, fence.channel)?;
                let head = Head { token: fence.token, seq: snapshot.seq + 1, ..snapshot.head };
                rows::put_head(connection, fence.channel, &head)?;
                snapshot.rows.iter().try_for_each(|row| rows::put(connection, fence.channel, row))
            })
            .await?;
        Ok(restored)
    }

    async fn head(&self, channel: ChannelId) -> Result<Option<Head>, SessionError> {
        Ok(self.store.read(move |connection| rows::head(connection, channel)).await?)
    }

    /// A new session, with a key of its own.
    async fn make(&self, right: &Right) -> Result<Head, SessionError> {
        let fence = right.fence;
        let key = DataKey::make(fence.channel).map_err(|error| SessionError::Unavailable(error.to_string()))?;
        let head = Head {
            seq: 1,
            token: fence.token,
            key_id: self.keyring.newest().to_owned(),
            sealed_key: key.wrap(&self.keyring)?,
        };
        let put = head.clone();
        self.store
            .write(move |connection| {
                check_fence(connection, &fence)?;
                rows::put_head(connection, fence.channel, &put)
            })
            .await?;
        Ok(head)
    }

    /// Seals the session's key with the key file's newest one, if it isn't yet.
    async fn rotate(&self, right: &Right, head: &Head, key: &DataKey) -> Result<(), SessionError> {
        if head.key_id == self.keyring.newest() {
            return Ok(());
        }
        let (fence, key_id, sealed) = (right.fence, self.keyring.newest().to_owned(), key.wrap(&self.keyring)?);
        self.store
            .write(move |connection| {
                check_fence(connection, &fence)?;
                let Some(head) = rows::head(connection, fence.channel)? else { return Ok(()) };
                rows::put_head(connection, fence.channel, &Head { key_id, sealed_key: sealed, ..head })
            })
            .await?;
        info!(channel = %right.fence.channel, "the session's key was sealed with the newest key");
        Ok(())
    }
}

impl Changed {
    fn note(&self, session: &Arc<DeviceSession>, due: Instant) {
        self.note_weak(session.channel(), Arc::downgrade(session), due);
    }

    fn note_weak(&self, channel: ChannelId, session: Weak<DeviceSession>, due: Instant) {
        let mut all = self.due.lock().expect("changed");
        // A session that was closed and opened again has another handle.
        let stale = all.get(&channel).is_some_and(|(_, known)| !known.ptr_eq(&session));
        if stale || !all.contains_key(&channel) {
            all.insert(channel, (due, session));
            self.first.notify_one();
        }
    }
}

fn bucket_error(error: BucketError) -> SessionError {
    match error {
        BucketError::Fenced(channel) => SessionError::Fenced(channel),
        BucketError::Unavailable { .. } => SessionError::Unavailable(error.to_string()),
        BucketError::Config(_) => SessionError::Refused(error.to_string()),
    }
}

#[async_trait]
impl Sessions for SessionKeeper {
    async fn open(&self, right: Right) -> Result<Opened, SessionError> {
        let fence = right.fence;
        if !(right.held)() {
            return Err(SessionError::Fenced(fence.channel));
        }
        let local = self.head(fence.channel).await?;
        let in_bucket = match &self.bucket {
            Some(bucket) if !Self::is_sole_heir(local.as_ref(), fence.token) => {
                bucket.newest(fence.channel).await.map_err(bucket_error)?
            }
            _ => None,
        };
        let stamp = local.as_ref().map(|head| Stamp { token: head.token, seq: head.seq });
        let (head, restored) = match choose(stamp, in_bucket, fence.token) {
            Choice::Stale => return Err(SessionError::Fenced(fence.channel)),
            Choice::Make => (self.make(&right).await?, None),
            Choice::Local => (local.ok_or(SessionError::Fenced(fence.channel))?, None),
            Choice::Bucket(stamp) => {
                let restored = self.restore(&right, stamp).await?;
                warn!(channel = %fence.channel, taken_ms = restored.taken_ms, "session restored from its snapshot");
                (self.head(fence.channel).await?.ok_or(SessionError::Fenced(fence.channel))?, Some(restored))
            }
        };
        let key = DataKey::unwrap(fence.channel, &self.keyring, &head.key_id, &head.sealed_key)?;
        self.rotate(&right, &head, &key).await?;
        let lag = self.policy.lag;
        let (changed, has_bucket, channel) = (self.changed.clone(), self.bucket.is_some(), fence.channel);
        let session = DeviceSession::new(self.store.clone(), right, key, self.clock.clone(), move |session| {
            if has_bucket {
                changed.note_weak(channel, session, Instant::now() + lag);
            }
        });
        // What is damaged is found before it is used, not in the middle of a conversation.
        let device = session.get(Kind::Device, b"", b"device").await;
        device.map_err(|error| session.why_broken().unwrap_or(SessionError::Unavailable(error.to_string())))?;
        Ok(Opened { session, restored })
    }

    async fn settle(&self, session: &DeviceSession) {
        let channel = session.channel();
        if self.changed.due.lock().expect("changed").remove(&channel).is_none() {
            return;
        }
        match self.snapshot(session).await {
            Ok(()) | Err(SessionError::Fenced(_)) => {}
            Err(error) => warn!(%channel, %error, "the last snapshot of a session could not be stored"),
        }
    }

    async fn delete(&self, right: &Right) -> Result<(), SessionError> {
        let fence = right.fence;
        if !(right.held)() {
            return Err(SessionError::Fenced(fence.channel));
        }
        self.changed.due.lock().expect("changed").remove(&fence.channel);
        self.store
            .write(move |connection| {
                check_fence(connection, &fence)?;
                rows::delete(connection, fence.channel)
            })
            .await?;
        match &self.bucket {
            Some(bucket) => bucket.clear(fence.channel).await.map_err(bucket_error),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(token: u64, seq: u64) -> Option<Stamp> {
        Some(Stamp { token, seq })
    }

    /// Contract: C4.
    #[test]
    fn the_newest_state_is_used_and_a_stale_owner_gets_none() {
        for (local, bucket, token, expected) in [
            (None, None, 1, Choice::Make),
            (stamp(3, 10), None, 4, Choice::Local),
            (stamp(3, 10), stamp(3, 9), 5, Choice::Local),
            (stamp(3, 10), stamp(3, 10), 5, Choice::Local),
            (None, stamp(3, 9), 4, Choice::Bucket(Stamp { token: 3, seq: 9 })),
            (stamp(3, 10), stamp(4, 2), 6, Choice::Bucket(Stamp { token: 4, seq: 2 })),
            (stamp(3, 10), stamp(3, 12), 6, Choice::Bucket(Stamp { token: 3, seq: 12 })),
            (stamp(3, 10), stamp(7, 2), 6, Choice::Stale),
            (stamp(8, 10), None, 6, Choice::Stale),
        ] {
            assert_eq!(choose(local, bucket, token), expected, "{local:?} {bucket:?} {token}");
        }
    }
}
