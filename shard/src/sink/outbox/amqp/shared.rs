//! What the outbox and its tasks share.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::FutureExt;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, RwLock},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    super::{
        super::OutboxError,
        book::{BookError, EventBook},
    },
    AmqpOutboxOptions, drain,
    index::Index,
    names::{Group, Names},
    reader::{self, Held},
    topology, wire,
};
use crate::{
    amqp::{AmqpConfig, error::Cause, link::Link, publisher::Publisher},
    clock::Clock,
    identity::ShardId,
};

/// What the outbox and its tasks work with.
pub(super) struct Shared {
    pub(super) config: Arc<AmqpConfig>,
    pub(super) options: AmqpOutboxOptions,
    pub(super) names: Names,
    pub(super) shard: ShardId,
    pub(super) book: Arc<dyn EventBook>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) link: Arc<Link>,
    pub(super) publisher: Publisher,
    pub(super) state: Mutex<State>,
    /// Held by appends while they publish, and alone by who sets aside: nothing comes between.
    pub(super) order: RwLock<()>,
    /// Events of one channel are stored one batch after another.
    pub(super) placing: Vec<AsyncMutex<()>>,
    /// Notes about one event are written one after another.
    pub(super) marking: [AsyncMutex<()>; 16],
    /// Something changed that a reader may wait for.
    pub(super) changed: Notify,
    /// Something came into view that nobody was told of.
    pub(super) news: Notify,
    /// Something was appended: is there still room?
    pub(super) grown: Notify,
    pub(super) reading: OnceLock<()>,
    pub(super) stop: CancellationToken,
    pub(super) declared: AtomicBool,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) index: Index,
    /// What is held of the broker.
    pub(super) held: Option<Held>,
    /// All that lies there, within the window, is known.
    pub(super) complete: bool,
    /// It was, at some time.
    pub(super) once: bool,
    /// Groups whose newer events go aside, behind those that lie there.
    pub(super) hidden: HashSet<Group>,
    /// Why it can't be read.
    pub(super) failure: Option<Cause>,
    /// Marks that are of no more use.
    pub(super) forget: Vec<Uuid>,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("outbox")
    }

    pub(super) fn number(&self) -> u64 {
        let now_ms = self.clock.wall_ms();
        self.state().index.number(now_ms, rand::random())
    }

    /// Waits until all that is there is known, for as long as an answer may take.
    pub(super) async fn complete(self: &Arc<Self>) -> Result<(), OutboxError> {
        self.begin_reading();
        let deadline = Instant::now() + self.config.answer_timeout;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = self.state();
                if state.complete {
                    return Ok(());
                }
                if let Some(cause) = &state.failure {
                    return Err(outbox_error(&self.names.main, cause.clone()));
                }
            }
            if timeout_at(deadline, changed).await.is_err() {
                return Err(OutboxError::Unavailable(format!(
                    "{}: what lies there did not come; another process may hold it",
                    self.names.main
                )));
            }
        }
    }

    pub(super) fn begin_reading(self: &Arc<Self>) {
        self.reading.get_or_init(|| {
            tokio::spawn(reader::run(self.clone()));
            if self.shard.index == 0 {
                tokio::spawn(drain::run(self.clone()));
            }
        });
    }

    pub(super) async fn declare(&self) -> Result<(), Cause> {
        if !self.declared.load(Ordering::Relaxed) {
            let live = self.link.live().await?;
            topology::declare(&live, &self.config, &self.names).await?;
            self.declared.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Publishes; a queue that is missing is made anew the next time.
    pub(super) fn publish(
        &self,
        queue: &str,
        properties: lapin::BasicProperties,
        body: bytes::Bytes,
    ) -> impl Future<Output = Result<(), Cause>> + Send + use<'_> {
        self.publisher.publish(queue.to_owned(), properties, body).map(|outcome| match outcome {
            Err(Cause::Missing) => {
                self.declared.store(false, Ordering::Relaxed);
                Err(Cause::Unavailable("somebody deleted the queue; it will be made anew".to_owned()))
            }
            outcome => outcome,
        })
    }

    pub(super) async fn mark(&self, position: u64, key: Uuid, open: &wire::Open) -> Result<(), OutboxError> {
        self.book.mark_events(&[(key, Some(open.write()))]).await.map_err(book_error)?;
        self.state().index.marked(position);
        Ok(())
    }
}

pub(super) fn outbox_error(queue: &str, cause: Cause) -> OutboxError {
    match cause {
        Cause::Unavailable(cause) => OutboxError::Unavailable(format!("{queue}: {cause}")),
        Cause::Refused(cause) => OutboxError::Refused(format!("{queue}: {cause}")),
        Cause::Missing => OutboxError::Unavailable(format!("{queue}: there is no such queue")),
    }
}

pub(super) fn book_error(error: BookError) -> OutboxError {
    match error {
        BookError::Unavailable(cause) => OutboxError::Unavailable(cause),
        // A process that is superseded as a whole can't be told in the port's words otherwise.
        BookError::Fenced { .. } | BookError::Refused(_) => OutboxError::Refused(error.to_string()),
    }
}
