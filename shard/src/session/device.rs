//! One channel's open session: its rows read, written and sealed, each write under the channel's right.
//!
//! The first write that fails breaks the session: the connection above must end, since what it has decrypted by then is
//! not stored. What was stored before is whole.

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
};

use tokio_util::sync::CancellationToken;
use whatsapp_rust::wacore::store::error::StoreError as LibraryError;

use super::{
    Right, SessionError,
    cipher::{Blind, DataKey, Place, Plain},
    rows::{self, Change, Kind, Sealed},
};
use crate::{
    clock::Clock,
    identity::ChannelId,
    store::{OpError, SlotStore, StoreError},
};

/// Rows of one batch that share a piece of the writer's work: a storm of them lets others in between.
const CHUNK: usize = 256;

/// Told of each change that was made.
type OnChange = Box<dyn Fn(Weak<DeviceSession>) + Send + Sync>;

/// An open session.
pub struct DeviceSession {
    store: Arc<SlotStore>,
    right: Right,
    key: DataKey,
    clock: Arc<dyn Clock>,
    broken: CancellationToken,
    why: OnceLock<SessionError>,
    own: Weak<Self>,
    on_change: OnChange,
}

impl DeviceSession {
    pub(super) fn new(
        store: Arc<SlotStore>,
        right: Right,
        key: DataKey,
        clock: Arc<dyn Clock>,
        on_change: impl Fn(Weak<Self>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            store,
            right,
            key,
            clock,
            broken: CancellationToken::new(),
            why: OnceLock::new(),
            own: own.clone(),
            on_change: Box::new(on_change),
        })
    }

    /// Whose it is.
    pub fn channel(&self) -> ChannelId {
        self.right.fence.channel
    }

    /// Under what right it is written.
    pub fn right(&self) -> &Right {
        &self.right
    }

    /// Cancelled when a write has failed.
    pub fn broken(&self) -> &CancellationToken {
        &self.broken
    }

    /// Why it is broken.
    pub fn why_broken(&self) -> Option<SessionError> {
        self.why.get().cloned()
    }

    /// Seconds since the Unix epoch.
    pub(super) fn now(&self) -> i64 {
        self.clock.wall_ms().div_euclid(1000)
    }

    pub(super) fn place(&self, kind: Kind, scope: &[u8], name: &[u8]) -> Place {
        let kind = kind as u8;
        Place { kind, scope: self.key.blind(kind, scope), name: self.key.blind(kind, name) }
    }

    pub(super) fn scope(&self, kind: Kind, scope: &[u8]) -> Blind {
        self.key.blind(kind as u8, scope)
    }

    /// A change that puts a row.
    pub(super) fn put_of(
        &self,
        kind: Kind,
        scope: &[u8],
        name: &[u8],
        at: i64,
        value: &[u8],
    ) -> Result<Change, LibraryError> {
        let place = self.place(kind, scope, name);
        let value = self.key.seal(&place, name, value).map_err(|error| LibraryError::Validation(error.to_string()))?;
        Ok(Change::Put(Sealed { place, at, value }))
    }

    /// Puts one row.
    pub(super) async fn put(&self, kind: Kind, scope: &[u8], name: &[u8], value: &[u8]) -> Result<(), LibraryError> {
        let change = self.put_of(kind, scope, name, 0, value)?;
        self.change(vec![change]).await
    }

    /// Deletes one row.
    pub(super) async fn delete(&self, kind: Kind, scope: &[u8], name: &[u8]) -> Result<(), LibraryError> {
        self.change(vec![Change::Delete(self.place(kind, scope, name))]).await
    }

    /// Makes changes, durable when it returns. Many are cut into pieces, each of them whole or not at all.
    pub(super) async fn change(&self, mut changes: Vec<Change>) -> Result<(), LibraryError> {
        while !changes.is_empty() {
            let rest = changes.split_off(changes.len().min(CHUNK));
            self.change_whole(changes).await?;
            changes = rest;
        }
        Ok(())
    }

    /// Makes changes, all of them or none.
    pub(super) async fn change_whole(&self, changes: Vec<Change>) -> Result<(), LibraryError> {
        let fence = self.right.fence;
        self.write(move |connection| rows::change(connection, &fence, &changes)).await
    }

    /// Writes under the right; what fails breaks the session, and a broken one writes nothing more: a ratchet that is stored
    /// later, without the message that moved it, would take that message for one that was seen.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, LibraryError> {
        if let Some(why) = self.why.get() {
            return Err(LibraryError::Database(why.to_string().into()));
        }
        if !(self.right.held)() {
            return Err(self.fail(SessionError::Fenced(self.channel())));
        }
        let broken = self.broken.clone();
        let work = move |connection: &rusqlite::Connection| match broken.is_cancelled() {
            // It broke while this waited for its turn.
            true => Err(OpError::Unreadable("the session broke before".to_owned())),
            false => work(connection),
        };
        let written = self.store.write(work).await.map_err(|error| self.fail(error.into()))?;
        (self.on_change)(self.own.clone());
        Ok(written)
    }

    /// Deletes rows of a kind whose time is set and before `cutoff`; how many.
    pub(super) async fn expire(&self, kind: Kind, cutoff: i64) -> Result<u32, LibraryError> {
        let fence = self.right.fence;
        if !self.read(move |connection| rows::has_expired(connection, fence.channel, kind, cutoff)).await? {
            return Ok(0);
        }
        self.write(move |connection| rows::expire(connection, &fence, kind, cutoff)).await
    }

    /// The value of a row.
    pub(super) async fn get(&self, kind: Kind, scope: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, LibraryError> {
        Ok(self.get_at(kind, scope, name).await?.map(|(value, _)| value))
    }

    /// The value of a row, and its time.
    pub(super) async fn get_at(
        &self,
        kind: Kind,
        scope: &[u8],
        name: &[u8],
    ) -> Result<Option<(Vec<u8>, i64)>, LibraryError> {
        let (channel, place) = (self.channel(), self.place(kind, scope, name));
        let found = self.read(move |connection| rows::get(connection, channel, &place)).await?;
        found.map(|row| Ok((self.open(&row)?.value, row.at))).transpose()
    }

    /// All rows of a kind, or of a scope of it.
    pub(super) async fn list(&self, kind: Kind, scope: Option<&[u8]>) -> Result<Vec<(Plain, i64)>, LibraryError> {
        let (channel, scope) = (self.channel(), scope.map(|scope| self.scope(kind, scope)));
        let found = self.read(move |connection| rows::list(connection, channel, kind, scope)).await?;
        found.iter().map(|row| Ok((self.open(row)?, row.at))).collect()
    }

    /// Reads; a failure is the caller's to judge, since nothing was acknowledged for it.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, LibraryError> {
        self.store.read(work).await.map_err(|error: StoreError| LibraryError::Database(Box::new(error)))
    }

    pub(super) fn open(&self, row: &Sealed) -> Result<Plain, LibraryError> {
        self.key.open(&row.place, &row.value).map_err(|error| {
            // A value that somebody changed is never used: the connection ends with the reason.
            self.fail(SessionError::Refused(format!("the session of channel {}: {error}", self.channel())))
        })
    }

    fn fail(&self, error: SessionError) -> LibraryError {
        let shown = error.to_string();
        let _ = self.why.set(error);
        self.broken.cancel();
        LibraryError::Database(shown.into())
    }
}

impl fmt::Debug for DeviceSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSession").field("channel", &self.channel()).finish_non_exhaustive()
    }
}
