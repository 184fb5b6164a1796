//! The AMQP adapter: the suite on a real RabbitMQ, and what only it promises.

mod faults;
mod outbox;
mod own;
mod parked;
mod proxy;
mod queue;

use std::sync::Arc;

use shard::queue::{AmqpConfig, AmqpQueue};

use crate::servers::{Server, Use};

/// Virtual hosts of the broker of a run; each test takes one.
const HOSTS: u32 = 120;

/// A broker's virtual host that no other test uses.
pub(crate) struct Host {
    pub(crate) broker: Server,
    name: String,
}

impl Host {
    /// The next one.
    pub(crate) fn fresh(how: Use) -> Self {
        let broker = Server::of_run("start-rabbit", how, &["--tls", "--vhosts", &HOSTS.to_string()]);
        let name = format!("t{}", broker.claim(HOSTS));
        Self { broker, name }
    }

    /// What the broker calls it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its address by way of a port.
    pub(crate) fn url(&self, port: u16) -> String {
        format!("amqp://guest:guest@127.0.0.1:{port}/{}", self.name)
    }

    /// Its address.
    pub(crate) fn direct(&self) -> String {
        self.url(self.broker.port())
    }

    /// The usual settings.
    pub(crate) fn config(&self) -> AmqpConfig {
        config(&self.direct())
    }

    /// A process that is there directly.
    pub(crate) fn queue(&self) -> Arc<AmqpQueue> {
        Arc::new(AmqpQueue::new(self.config()))
    }
}

/// The usual settings for an address.
pub(crate) fn config(url: &str) -> AmqpConfig {
    AmqpConfig::new([url]).expect("an address")
}
