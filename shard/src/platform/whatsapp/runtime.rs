//! The library's runtime, on the shard's: one thread does all the work, so that long loops have to give way. Each connection has
//! one of its own, by which it hears of a panic in any of its tasks.

use std::{panic::AssertUnwindSafe, pin::Pin, time::Duration};

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use whatsapp_rust::{
    async_trait,
    wacore::runtime::{AbortHandle, Runtime},
};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The runtime that the caller is in.
pub(super) struct ShardRuntime {
    /// Divides the client's own waits: 1 but for tests.
    pub(super) hurry: u32,
    /// Cancelled when one of the client's tasks has panicked: what it was to do is not done, so that the connection must end.
    pub(super) panicked: CancellationToken,
}

impl ShardRuntime {
    fn watched(&self, work: Work) -> impl Future<Output = ()> + Send + 'static {
        let panicked = self.panicked.clone();
        async move {
            // Nothing of the task is used afterwards.
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                panicked.cancel();
            }
        }
    }
}

#[async_trait]
impl Runtime for ShardRuntime {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send + 'static>>) -> AbortHandle {
        let handle = tokio::spawn(self.watched(future));
        AbortHandle::new(move || handle.abort())
    }

    fn spawn_detached(&self, future: Pin<Box<dyn Future<Output = ()> + Send + 'static>>) {
        tokio::spawn(self.watched(future));
    }

    fn sleep(&self, duration: Duration) -> Work {
        Box::pin(tokio::time::sleep(duration / self.hurry.max(1)))
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send + 'static>) -> Work {
        Box::pin(async {
            // A panic in it is seen by whoever waits for its result.
            let _ = tokio::task::spawn_blocking(work).await;
        })
    }

    fn yield_now(&self) -> Option<Work> {
        Some(Box::pin(tokio::task::yield_now()))
    }

    fn yield_frequency(&self) -> u32 {
        4
    }
}
