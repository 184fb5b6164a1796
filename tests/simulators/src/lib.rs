//! The chat platforms on loopback, for tests and the demo.
//!
//! They speak the platforms' own protocols, so that clients which nobody here wrote accept them, and they keep the
//! conversation as the person at the other end sees it: that record is what "answered once" is judged by.
//! Nothing here reaches a network other than loopback.

mod line;
pub mod script;
pub mod slack;
pub mod telegram;
pub mod traffic;
#[cfg(feature = "whatsapp")]
pub mod whatsapp;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What was waited for did not come in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("waited {waited:?} in vain for {what}")]
pub struct TimedOut {
    /// What was waited for.
    pub what: String,
    /// For how long.
    pub waited: std::time::Duration,
}

/// A lock that outlives a panic of whoever held it: a failed test must not fail the others.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
