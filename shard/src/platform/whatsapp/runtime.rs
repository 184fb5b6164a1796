//! The library's runtime, on the shard's: one thread does all the work, so that long loops have to give way.

use std::{pin::Pin, time::Duration};

use whatsapp_rust::{
    async_trait,
    wacore::runtime::{AbortHandle, Runtime},
};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The runtime that the caller is in. `hurry` divides the client's own waits: 1 but for tests.
pub(super) struct ShardRuntime {
    pub(super) hurry: u32,
}

#[async_trait]
impl Runtime for ShardRuntime {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send + 'static>>) -> AbortHandle {
        let handle = tokio::spawn(future);
        AbortHandle::new(move || handle.abort())
    }

    fn spawn_detached(&self, future: Pin<Box<dyn Future<Output = ()> + Send + 'static>>) {
        tokio::spawn(future);
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
