//! The outbox suite on RabbitMQ, with either registry, and what only this outbox promises.

mod crowds;
mod faults;
mod layout;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use shard::{
    clock::ManualClock,
    dispatch::RegistryBook,
    identity::ShardId,
    registry::{EmbeddedRegistry, Registry},
    sink::{
        Outbox,
        outbox::{AmqpOutbox, AmqpOutboxOptions},
    },
    store::{BoxStore, SlotStore},
};
use tempfile::TempDir;

use super::{Host, config, proxy::Proxy};
#[cfg(feature = "redis")]
use crate::redis::Server;
use crate::{
    embedded::{data_dir, holder},
    servers::Use,
    suites::outbox::{OutboxHarness, outbox_suite},
};

/// Where the registry is.
enum Place {
    Here(TempDir),
    #[cfg(feature = "redis")]
    Redis(Server),
}

/// A slot whose outbox lies in a broker.
pub(super) struct Slot {
    pub(super) host: Host,
    place: Place,
    pub(super) clock: ManualClock,
    pub(super) shard: ShardId,
    pub(super) options: AmqpOutboxOptions,
    incarnation: u64,
    way: Option<Proxy>,
}

impl Slot {
    /// With the registry of this box.
    pub(super) fn new(how: Use) -> Self {
        Self {
            host: Host::fresh(how),
            place: Place::Here(data_dir()),
            clock: ManualClock::at(1_900_000_000_000),
            shard: ShardId::new(0, 1),
            options: AmqpOutboxOptions::default(),
            incarnation: 0,
            way: None,
        }
    }

    #[cfg(feature = "redis")]
    fn with_redis() -> Option<Self> {
        let place = Place::Redis(Server::start(&[])?);
        Some(Self { place, ..Self::new(Use::Beside) })
    }

    /// The slot's registry in its next life.
    pub(super) fn registry(&mut self) -> Arc<dyn Registry> {
        self.incarnation += 1;
        match &self.place {
            Place::Here(dir) => {
                let clock = Arc::new(self.clock.clone());
                let me = holder(self.shard, self.incarnation);
                let shared = BoxStore::open(dir.path(), clock.clone()).expect("opened");
                let slot = SlotStore::open(dir.path(), self.shard, &me, clock).expect("opened");
                Arc::new(EmbeddedRegistry::new(shared, Some(slot)))
            }
            #[cfg(feature = "redis")]
            Place::Redis(server) => server.registry("box-0", self.incarnation),
        }
    }

    /// An outbox by way of a port.
    pub(super) fn outbox(&mut self, port: u16) -> Arc<AmqpOutbox> {
        let registry = self.registry();
        let clock = Arc::new(self.clock.clone());
        let config = config(&self.host.url(port));
        Arc::new(AmqpOutbox::with(
            config,
            Arc::new(RegistryBook::new(registry)),
            self.shard,
            clock,
            self.options.clone(),
        ))
    }

    /// An outbox that is there directly.
    pub(super) fn direct(&mut self) -> Arc<AmqpOutbox> {
        let port = self.host.broker.port();
        self.outbox(port)
    }
}

#[async_trait]
impl OutboxHarness for Slot {
    async fn start(&mut self) -> Arc<dyn Outbox> {
        // The way of the one before is cut: nobody says goodbye.
        self.way = None;
        let way = Proxy::to(self.host.broker.port()).await;
        let outbox = self.outbox(way.port());
        self.way = Some(way);
        outbox
    }

    async fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
    }
}

mod with_embedded_registry {
    use super::*;

    outbox_suite!(async { Some(Slot::new(Use::Beside)) });
}

#[cfg(feature = "redis")]
mod with_redis {
    use super::*;

    outbox_suite!(async { Slot::with_redis() });
}
