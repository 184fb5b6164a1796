//! The ports' own test suites, written once against the traits and run by every adapter. What only one adapter promises
//! is tested beside its harness.

mod embedded;
#[cfg(feature = "redis")]
mod redis;
mod suites;
