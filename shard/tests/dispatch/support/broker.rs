//! A virtual host of the run's RabbitMQ, for worlds whose queues lie there.

use std::sync::Arc;

use shard::queue::{AmqpConfig, AmqpQueue, Queue};

use crate::servers::{Server, Use};

/// Virtual hosts of the broker of a run; each test takes one.
const HOSTS: u32 = 120;

/// A virtual host that no other test uses.
pub(crate) struct Broker {
    server: Server,
    name: String,
}

impl Broker {
    pub(crate) fn fresh() -> Self {
        let server = Server::of_run("start-rabbit", Use::Beside, &["--tls", "--vhosts", &HOSTS.to_string()]);
        let name = format!("t{}", server.claim(HOSTS));
        Self { server, name }
    }

    /// As one process has it: with connections of its own.
    pub(crate) fn queue(&self) -> Arc<dyn Queue> {
        let url = format!("amqp://guest:guest@127.0.0.1:{}/{}", self.server.port(), self.name);
        Arc::new(AmqpQueue::new(AmqpConfig::new([url.as_str()]).expect("an address")))
    }
}
