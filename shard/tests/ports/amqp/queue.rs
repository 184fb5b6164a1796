//! The queue suite on RabbitMQ, for quorum and classic queues.

use std::sync::Arc;

use async_trait::async_trait;
use shard::{
    identity::ShardId,
    queue::{AmqpQueue, Consumer, Queue, QueueType},
};

use super::{Host, config, proxy::Proxy};
use crate::{
    servers::Use,
    suites::queue::{QueueHarness, queue_suite},
};

struct Broker {
    host: Host,
    queue_type: QueueType,
    way: Option<Proxy>,
}

impl Broker {
    async fn of(queue_type: QueueType) -> Self {
        Self { host: Host::fresh(Use::Beside), queue_type, way: None }
    }

    fn open(&self, port: u16) -> Arc<AmqpQueue> {
        let mut config = config(&self.host.url(port));
        config.queue_type = self.queue_type;
        Arc::new(AmqpQueue::new(config))
    }
}

#[async_trait]
impl QueueHarness for Broker {
    fn shard(&self) -> ShardId {
        ShardId::new(1, 2)
    }

    async fn start(&mut self) -> Arc<dyn Queue> {
        let way = Proxy::to(self.host.broker.port()).await;
        let queue = self.open(way.port());
        self.way = Some(way);
        queue
    }

    async fn kill(&mut self, queue: Arc<dyn Queue>, consumers: Vec<Box<dyn Consumer>>) {
        // Nobody says goodbye; the broker sees the connections break.
        consumers.into_iter().for_each(std::mem::forget);
        std::mem::forget(queue);
        self.way = None;
    }

    async fn producer(&self) -> Arc<dyn Queue> {
        self.open(self.host.broker.port())
    }

    fn counts_what_others_hold(&self) -> bool {
        false
    }

    fn marks_no_more_than_was_out(&self) -> bool {
        false
    }
}

mod quorum {
    use super::*;

    queue_suite!(Broker::of(QueueType::Quorum));
}

mod classic {
    use super::*;

    queue_suite!(Broker::of(QueueType::Classic));
}
