//! The adapters of the [`Outbox`](super::Outbox) port.

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(feature = "amqp")]
mod book;
mod embedded;

#[cfg(feature = "amqp")]
pub use amqp::{AmqpOutbox, AmqpOutboxOptions};
#[cfg(feature = "amqp")]
pub use book::{BookError, EventBook};
pub use embedded::EmbeddedOutbox;
