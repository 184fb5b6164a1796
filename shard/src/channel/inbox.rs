//! Where a connection puts what it received: into the outbox, under the channel's lease, then on to who delivers.
//!
//! The lease is asked before every write and every read that confirms something. A write that the outbox does not take
//! closes the connection unconfirmed, so that the platform tells it again.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

use super::{actor::Command, hold::Hold, post::Post, ramp::Permit};
use crate::{
    clock::Clock,
    directory::Handler,
    event::Event,
    metrics::Metrics,
    platform::{Closed, Inbox},
    registry::Fence,
    sink::{Batch, Destination, OnStored, Outbox, OutboxError, handler_takes},
};

/// Told of each channel whose settings or whose lease came, changed or went.
pub type OnChanged = Arc<dyn Fn(crate::identity::ChannelId) + Send + Sync>;

/// The way into the outbox that all channels share.
pub(super) struct Keeper {
    pub(super) outbox: Arc<dyn Outbox>,
    pub(super) on_stored: OnStored,
    /// Whether an endpoint for everything is configured.
    pub(super) endpoint: bool,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Keeper {
    /// Stores events in their order. Neighbours that go the same way are stored together; the offset goes with the last
    /// of them, so that a crash in between has the platform tell the rest again.
    pub(super) async fn keep(
        &self,
        hold: &Hold,
        handler: &Handler,
        mut events: Vec<Event>,
        offset: Option<i64>,
    ) -> Result<(), OutboxError> {
        loop {
            let handled = events.first().is_some_and(|event| self.is_handled(handler, event));
            let same = events.iter().take_while(|event| self.is_handled(handler, event) == handled).count();
            let rest = events.split_off(same);
            let last = rest.is_empty();
            let mut destinations = Vec::with_capacity(2);
            if handled {
                destinations.push(Destination::Handler);
            }
            if self.endpoint {
                destinations.push(Destination::Endpoint);
            }
            let batch = Batch { fence: hold.fence(), events, offset: offset.filter(|_| last) };
            // The built-in handler only writes a job, which waits for its guard. Agents and endpoints are somebody else's:
            // they are told of nothing that is not stored.
            if handled && *handler == Handler::Echo && !self.endpoint {
                self.outbox.append_leading(batch, &destinations, self.on_stored.clone()).await?;
            } else {
                let stored = self.outbox.append(batch, &destinations).await?;
                if !stored.is_empty() {
                    (self.on_stored)(stored);
                }
            }
            if last {
                return Ok(());
            }
            events = rest;
        }
    }

    fn is_handled(&self, handler: &Handler, event: &Event) -> bool {
        *handler != Handler::None && handler_takes(&event.kind)
    }

    fn closed(&self, error: OutboxError) -> Closed {
        match error {
            OutboxError::Fenced(_) => {
                self.metrics.fenced.inc();
                Closed::Fenced
            }
            OutboxError::Unavailable(_) | OutboxError::Refused(_) => {
                Closed::Transient { reason: error.to_string(), after: None }
            }
        }
    }
}

/// The inbox of one connection of one channel.
pub(super) struct ChannelInbox {
    keeper: Arc<Keeper>,
    hold: Arc<Hold>,
    post: Arc<Post>,
    /// Which connection of the channel this is.
    life: u64,
    actor: UnboundedSender<Command>,
    permit: Mutex<Option<Permit>>,
    connected: AtomicBool,
}

impl ChannelInbox {
    pub(super) fn new(
        keeper: Arc<Keeper>,
        hold: Arc<Hold>,
        post: Arc<Post>,
        life: u64,
        actor: UnboundedSender<Command>,
        permit: Option<Permit>,
    ) -> Self {
        Self { keeper, hold, post, life, actor, permit: Mutex::new(permit), connected: AtomicBool::new(false) }
    }
}

#[async_trait]
impl Inbox for ChannelInbox {
    async fn store(&self, events: Vec<Event>, offset: Option<i64>) -> Result<(), Closed> {
        self.held()?;
        let count = events.len() as u64;
        let handler = self.post.spec().handler.clone();
        let kept = self.keeper.keep(&self.hold, &handler, events, offset).await;
        kept.map_err(|error| self.keeper.closed(error))?;
        self.keeper.metrics.events_stored.with_label_values(&[self.post.platform().as_str()]).inc_by(count);
        Ok(())
    }

    async fn offset(&self) -> Result<Option<i64>, Closed> {
        self.held()?;
        let offset = self.keeper.outbox.offset(self.hold.fence().channel).await;
        offset.map_err(|error| self.keeper.closed(error))
    }

    fn held(&self) -> Result<(), Closed> {
        if self.hold.is_proven() { Ok(()) } else { Err(Closed::Fenced) }
    }

    fn fence(&self) -> Fence {
        self.hold.fence()
    }

    fn waits_for_person(&self) {
        drop(self.permit.lock().expect("permit").take());
        let _ = self.actor.send(Command::Waits { life: self.life });
        self.heard();
    }

    fn connected(&self) {
        if !self.connected.swap(true, Ordering::Relaxed) {
            drop(self.permit.lock().expect("permit").take());
            // The actor is gone only when nobody wants to know any more.
            let _ = self.actor.send(Command::Up { life: self.life });
        }
        self.heard();
    }

    fn heard(&self) {
        self.post.hear(self.keeper.clock.wall_ms());
    }
}
