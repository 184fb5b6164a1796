//! One process's work: the channels it holds, the jobs it does, the events it gives out.
//!
//! The ports (`queue`, `registry`, `directory`, `platform`, `sink`) are traits named after the job they do; each has an
//! embedded adapter that needs nothing installed. Ports do not import one another.

#[cfg(feature = "amqp")]
pub mod amqp;
pub mod channel;
pub mod clock;
pub mod directory;
pub mod dispatch;
pub mod event;
pub mod http;
pub mod identity;
pub mod job;
pub mod keyring;
pub mod media;
pub mod metrics;
pub mod placement;
pub mod platform;
pub mod progress;
pub mod queue;
pub mod registry;
pub mod run;
pub mod secret;
#[cfg(feature = "whatsapp")]
pub mod session;
pub mod sink;
pub mod standing;
pub mod store;
