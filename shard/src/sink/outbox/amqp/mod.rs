//! The outbox on a broker: what is open lies in the quorum queue `shardvisor.outbox-<i>` (bare with one shard), so that
//! another box delivers it when this one is gone. The registry gives each event its place and remembers its id, the
//! channel's fence and how far its platform has been read.
//!
//! | queue | holds | |
//! |---|---|---|
//! | `shardvisor.outbox-<i>` | what is open | a window of it is held, unsettled; single active consumer |
//! | `….endpoint`, `….<channel>` | what was set aside of a dead endpoint, or of a channel's dead handler | see [`aside`] |
//! | `….dead` | what can't be delivered, for a destination each | looked through one by one |
//! | `shardvisor.kept-<i>` | what was stored without a destination | until the retention time is over |
//!
//! **Stored** is an event when the registry says so: it gives the place first, then the broker confirms the message, then
//! the registry notes the id and the offset, and only then the platform may be told. A process that ends in between leaves
//! a message whose event is told again, under the same id and place; whichever copy is seen second is dropped.
//!
//! **Done** is an event when its last destination is: then its message is acknowledged. What is done of one with two
//! destinations, and how often it failed, can't be written into a message where it lies; the registry notes it down. What
//! is done of an event while its channel to the broker ends may have to be done again.
//!
//! **Memory** is bounded by the window ([`AmqpOutboxOptions::window`]), however long an endpoint is dead.
//!
//! **Another layout**: shard 0 moves what lies in outboxes that the layout in force does not have to those of the channels'
//! shards (see [`drain`]).

mod append;
mod aside;
mod dead;
mod drain;
mod index;
mod kept;
mod names;
mod reader;
mod settle;
mod shared;
mod topology;
mod wire;

use std::{
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::{Mutex as AsyncMutex, Notify, RwLock};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::{
    names::Names,
    shared::{Shared, book_error, outbox_error},
    wire::Death,
};
use super::{
    super::{Batch, DeadEvent, Destination, Outbox, OutboxError, Scope, Stored},
    book::EventBook,
};
use crate::{
    amqp::{AmqpConfig, link::Link, publisher::Publisher},
    clock::Clock,
    identity::{ChannelId, ShardId},
};

/// How much of the outbox is held in memory.
#[derive(Debug, Clone)]
pub struct AmqpOutboxOptions {
    /// Events; at most 32,000.
    pub window: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
    /// How often outboxes of other layouts are looked for, by shard 0.
    pub drain_every: Duration,
}

impl Default for AmqpOutboxOptions {
    fn default() -> Self {
        Self { window: 16_384, bytes: 32 << 20, drain_every: Duration::from_secs(300) }
    }
}

/// The outbox of one slot, on a broker.
pub struct AmqpOutbox {
    shared: Arc<Shared>,
}

impl AmqpOutbox {
    /// Takes the settings; nothing is connected yet.
    pub fn new(config: AmqpConfig, book: Arc<dyn EventBook>, shard: ShardId, clock: Arc<dyn Clock>) -> Self {
        Self::with(config, book, shard, clock, AmqpOutboxOptions::default())
    }

    /// The same with other bounds.
    pub fn with(
        config: AmqpConfig,
        book: Arc<dyn EventBook>,
        shard: ShardId,
        clock: Arc<dyn Clock>,
        options: AmqpOutboxOptions,
    ) -> Self {
        let config = Arc::new(config);
        let link = Arc::new(Link::new(config.clone(), "delivering"));
        let publisher = Publisher::new(Arc::new(Link::new(config.clone(), "storing events")), config.clone());
        let options = AmqpOutboxOptions { window: options.window.clamp(16, 32_000), ..options };
        let shared = Shared {
            names: Names::of((shard.count > 1).then_some(shard.index)),
            config,
            options,
            shard,
            book,
            clock,
            link,
            publisher,
            state: Mutex::default(),
            order: RwLock::default(),
            placing: (0..256).map(|_| AsyncMutex::default()).collect(),
            marking: Default::default(),
            changed: Notify::new(),
            news: Notify::new(),
            grown: Notify::new(),
            reading: OnceLock::new(),
            stop: CancellationToken::new(),
            declared: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The queue in which it lies.
    pub fn queue(&self) -> &str {
        &self.shared.names.main
    }

    /// How many events are held in memory.
    pub fn held(&self) -> usize {
        self.shared.state().index.size().0
    }

    async fn read(&self, scope: Option<&Scope>, after: u64, limit: usize) -> Result<Vec<Stored>, OutboxError> {
        self.shared.complete().await?;
        Ok(self.shared.state().index.read(scope, after, limit))
    }

    /// One destination of an event is done with, or given up.
    async fn close(&self, position: u64, to: Destination, done: bool) -> Result<(), OutboxError> {
        let shared = &self.shared;
        let _turn = shared.marking[position as usize % shared.marking.len()].lock().await;
        let found = shared.state().index.find(position, to);
        if let Some(mut found) = found {
            found.open.set(to, None);
            if !found.open.is_empty() {
                shared.mark(position, found.key, &found.open).await?;
            }
        }
        let closed = {
            let mut state = shared.state();
            let closed = state.index.close(position, to, done);
            state.forget.extend(closed.forget);
            closed
        };
        if let Some(ack) = closed.ack {
            shared.settle(ack).await;
        }
        Ok(())
    }
}

impl Drop for AmqpOutbox {
    fn drop(&mut self) {
        // Its tasks end, and the broker gives what was held to whoever comes next.
        self.shared.stop.cancel();
    }
}

#[async_trait]
impl Outbox for AmqpOutbox {
    async fn append(&self, batch: Batch, destinations: &[Destination]) -> Result<Vec<Stored>, OutboxError> {
        self.shared.append(batch, destinations).await
    }

    async fn offset(&self, channel: ChannelId) -> Result<Option<i64>, OutboxError> {
        self.shared.book.read_to(channel).await.map_err(book_error)
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<Stored>, OutboxError> {
        self.read(None, after, limit).await
    }

    async fn open_in(&self, scope: &Scope, after: u64, limit: usize) -> Result<Vec<Stored>, OutboxError> {
        self.read(Some(scope), after, limit).await
    }

    async fn news(&self) {
        self.shared.news.notified().await;
    }

    async fn delivered(&self, position: u64, to: Destination) -> Result<(), OutboxError> {
        self.close(position, to, true).await
    }

    async fn failed(&self, position: u64, to: Destination, error: &str) -> Result<(), OutboxError> {
        tracing::debug!(position, destination = to.as_str(), error, "an event was not delivered");
        let shared = &self.shared;
        let _turn = shared.marking[position as usize % shared.marking.len()].lock().await;
        let failed = shared.state().index.failed(position, to);
        match failed {
            Some((key, open)) => shared.mark(position, key, &open).await,
            None => Ok(()),
        }
    }

    async fn bury(&self, position: u64, to: Destination, reason: &str) -> Result<(), OutboxError> {
        let found = self.shared.state().index.find(position, to);
        let Some(found) = found else { return Ok(()) };
        let attempts = found.open.get(to).unwrap_or_default();
        let death = Death { destination: to, reason: reason.to_owned(), attempts };
        let dead = &self.shared.names.dead;
        let buried = self.shared.publish(dead, death.properties(), found.body).await;
        buried.map_err(|cause| outbox_error(dead, cause))?;
        self.close(position, to, false).await
    }

    async fn dead(&self, limit: usize) -> Result<Vec<DeadEvent>, OutboxError> {
        self.shared.list_dead(limit).await.map_err(|cause| outbox_error(&self.shared.names.dead, cause))
    }

    async fn replay(&self, event: Uuid, to: Destination) -> Result<bool, OutboxError> {
        self.shared.take_dead(event, to, true).await
    }

    async fn drop_dead(&self, event: Uuid, to: Destination) -> Result<bool, OutboxError> {
        self.shared.take_dead(event, to, false).await
    }

    async fn prune(&self, older_than: Duration) -> Result<u64, OutboxError> {
        self.shared.prune(older_than).await.map_err(|cause| outbox_error(&self.shared.names.kept, cause))
    }
}
