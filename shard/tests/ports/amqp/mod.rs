//! The AMQP adapter: the suite on a real RabbitMQ, and what only it promises.

mod proxy;
mod queue;

use crate::servers::Server;

/// Virtual hosts of the broker of a run; each test takes one.
const HOSTS: u32 = 64;

/// A broker's virtual host that no other test uses.
pub(crate) struct Host {
    broker: Server,
    name: String,
}

impl Host {
    /// The next one.
    pub(crate) fn fresh() -> Self {
        let broker = Server::shared("start-rabbit", "ports", &["--vhosts", &HOSTS.to_string()]);
        let name = format!("t{}", broker.claim(HOSTS));
        Self { broker, name }
    }

    /// The broker's port.
    pub(crate) fn port(&self) -> u16 {
        self.broker.port
    }

    /// Its address by way of a port.
    pub(crate) fn url(&self, port: u16) -> String {
        format!("amqp://guest:guest@127.0.0.1:{port}/{}", self.name)
    }
}
