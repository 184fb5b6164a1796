//! The ports' own test suites, written once against the traits and run by every adapter. What only one adapter promises
//! is tested beside its harness.

#[cfg(feature = "amqp")]
mod amqp;
mod embedded;
#[cfg(feature = "postgres")]
#[path = "../../../tests/support/postgres.rs"]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod remote;
#[cfg(feature = "amqp")]
#[path = "../../../tests/support/servers.rs"]
mod servers;
mod suites;
