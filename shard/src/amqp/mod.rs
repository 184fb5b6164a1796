//! What the adapters that speak AMQP share: where the broker is, the connection to it, the one way into it, and what its
//! errors mean.

pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod link;
pub(crate) mod publisher;

pub use config::{AmqpConfig, AmqpConfigError, DeclareMode, QueueType};
