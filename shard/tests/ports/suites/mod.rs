//! The suites, and how an adapter names them: `queue_suite!(harness)` makes one test of each function.

pub(crate) mod outbox;
pub(crate) mod queue;
pub(crate) mod registry;

use std::{future::Future, time::Duration};

/// Waits for what must come; panics when it doesn't.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: did not come"),
    }
}

/// Watches for a moment whether something comes that must not.
pub(crate) async fn nothing<T: std::fmt::Debug>(what: &str, future: impl Future<Output = T>) {
    if let Ok(came) = tokio::time::timeout(Duration::from_millis(150), future).await {
        panic!("{what}: nothing should have come, but {came:?}");
    }
}
