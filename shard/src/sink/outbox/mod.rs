//! The adapters of the [`Outbox`](super::Outbox) port.

mod embedded;

pub use embedded::EmbeddedOutbox;
