//! The adapters of the [`Outbox`](super::Outbox) port.

#[cfg(feature = "amqp")]
mod amqp;
mod embedded;

#[cfg(feature = "amqp")]
pub use amqp::{AmqpOutbox, AmqpOutboxOptions};
pub use embedded::EmbeddedOutbox;
