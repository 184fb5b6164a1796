//! The registry suite on Redis.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use shard::{
    identity::ShardId,
    registry::{Holder, Registry},
};

use super::{Server, holder};
use crate::suites::registry::{RegistryHarness, registry_suite};

struct OneRedis {
    server: Server,
    incarnation: u64,
}

impl OneRedis {
    async fn new() -> Option<Self> {
        Some(Self { server: Server::start(&[])?, incarnation: 0 })
    }
}

#[async_trait]
impl RegistryHarness for OneRedis {
    fn shard(&self) -> ShardId {
        ShardId::new(1, 2)
    }

    async fn start(&mut self) -> (Arc<dyn Registry>, Holder) {
        self.incarnation += 1;
        (self.server.registry("box-1", self.incarnation), holder("box-1", self.incarnation))
    }

    async fn advance(&mut self, by: Duration) {
        self.server.advance(by).await;
    }

    async fn step_wall(&mut self, by_ms: i64) {
        self.server.step_wall(by_ms).await;
    }
}

registry_suite!(OneRedis::new());
