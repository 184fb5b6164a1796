//! The embedded adapters with faults around each call.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use shard::{
    identity::{ChannelId, QueueName},
    job::{Job, JobId, Lane},
    queue::{Consumer, DeadLetter, Delivery, Depth, Message, Queue, QueueError, Receipt},
    registry::{
        Claim, Fence, Holder, LaneFact, Layout, Lease, Registry, RegistryError, Renewal, Reservation, Reserve,
        Resource, Sent,
    },
    sink::{Batch, DeadEvent, Destination, Outbox, OutboxError, Stored},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    faults::{Fault, Faults},
    journal::Journal,
};

/// A port and what may go wrong with it.
pub(crate) struct Faulty<P: ?Sized> {
    pub(crate) port: Arc<P>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) crash: CancellationToken,
}

fn queue_fault(fault: Fault, queue: QueueName) -> QueueError {
    let (queue, cause) = (queue.to_string(), "by order of the test".to_owned());
    match fault {
        Fault::Unavailable => QueueError::Unavailable { queue, cause },
        Fault::Refused => QueueError::Refused { queue, cause },
        Fault::Fenced => QueueError::Fenced { queue },
        Fault::Stale => QueueError::Stale { queue },
    }
}

fn registry_fault(fault: Fault) -> RegistryError {
    match fault {
        Fault::Unavailable | Fault::Stale => RegistryError::Unavailable("by order of the test".to_owned()),
        Fault::Refused => RegistryError::Refused("by order of the test".to_owned()),
        Fault::Fenced => RegistryError::Fenced { resource: "whatever".to_owned() },
    }
}

impl<P: ?Sized> Faulty<P> {
    async fn around<T, E>(
        &self,
        point: &str,
        error: impl Fn(Fault) -> E,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if let Some(fault) = self.faults.before(point, &self.crash).await {
            return Err(error(fault));
        }
        let answer = call.await;
        match self.faults.after(point, &self.crash).await {
            Some(fault) => Err(error(fault)),
            None => answer,
        }
    }
}

struct FaultyConsumer {
    consumer: Box<dyn Consumer>,
    queue: QueueName,
    faults: Arc<Faults>,
    journal: Arc<Journal>,
}

fn name(message: &Message) -> String {
    Job::parse(&message.body).map_or_else(|_| "nonsense".to_owned(), |job| job.id.to_string())
}

#[async_trait]
impl Consumer for FaultyConsumer {
    async fn next(&mut self) -> Option<Result<Delivery, QueueError>> {
        if let Some(fault) = self.faults.next() {
            return Some(Err(queue_fault(fault, self.queue)));
        }
        let next = self.consumer.next().await;
        if let Some(Ok(Delivery { message, redelivered, .. })) = &next {
            self.journal.note(format!("gets {} from {}, redelivered: {redelivered}", name(message), self.queue));
        }
        next
    }

    async fn stop(&mut self) {
        self.consumer.stop().await;
    }
}

#[async_trait]
impl<P: Queue + ?Sized> Queue for Faulty<P> {
    async fn declare(&self, queue: QueueName) -> Result<(), QueueError> {
        self.around("declare", |fault| queue_fault(fault, queue), self.port.declare(queue)).await
    }

    async fn consume(&self, queue: QueueName, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError> {
        let consume = self.port.consume(queue, prefetch);
        let consumer = self.around("consume", |fault| queue_fault(fault, queue), consume).await?;
        let (faults, journal) = (self.faults.clone(), self.journal.clone());
        Ok(Box::new(FaultyConsumer { consumer, queue, faults, journal }))
    }

    async fn consume_past_stragglers(
        &self,
        queue: QueueName,
        prefetch: u16,
    ) -> Result<Option<Box<dyn Consumer>>, QueueError> {
        self.port.consume_past_stragglers(queue, prefetch).await
    }

    async fn publish(&self, queue: QueueName, message: Message) -> Result<(), QueueError> {
        self.around("publish", |fault| queue_fault(fault, queue), self.port.publish(queue, message)).await
    }

    async fn ack(&self, receipt: Receipt) -> Result<(), QueueError> {
        let queue = receipt.queue;
        self.around("ack", |fault| queue_fault(fault, queue), self.port.ack(receipt)).await
    }

    async fn release(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        let Some(queue) = receipts.first().map(|receipt| receipt.queue) else { return Ok(()) };
        self.around("release", |fault| queue_fault(fault, queue), self.port.release(receipts)).await
    }

    async fn forward(&self, receipt: Receipt, to: QueueName, message: Message) -> Result<(), QueueError> {
        self.journal.note(format!("forwards {} to {to}", name(&message)));
        self.around("forward", |fault| queue_fault(fault, to), self.port.forward(receipt, to, message)).await
    }

    async fn forward_straggler(&self, receipt: Receipt, to: QueueName, message: Message) -> Result<(), QueueError> {
        self.journal.note(format!("forwards {} to the stragglers of {to}", name(&message)));
        let forward = self.port.forward_straggler(receipt, to, message);
        self.around("forward", |fault| queue_fault(fault, to), forward).await
    }

    async fn park(&self, receipt: Receipt, lane: &Lane, seq: u64, message: Message) -> Result<(), QueueError> {
        let queue = receipt.queue;
        self.journal.note(format!("parks {} at {seq}", name(&message)));
        self.around("park", |fault| queue_fault(fault, queue), self.port.park(receipt, lane, seq, message)).await
    }

    async fn unpark(&self, queue: QueueName, lane: &Lane, limit: usize) -> Result<Vec<Delivery>, QueueError> {
        let unpark = self.port.unpark(queue, lane, limit);
        let lot = self.around("unpark", |fault| queue_fault(fault, queue), unpark).await?;
        let names: Vec<_> = lot.iter().map(|delivery| name(&delivery.message)).collect();
        self.journal.note(format!("unparks {}", names.join(" ")));
        Ok(lot)
    }

    async fn bury(&self, receipt: Receipt, message: Message) -> Result<(), QueueError> {
        let queue = receipt.queue;
        self.journal.note(format!("buries {}", name(&message)));
        self.around("bury", |fault| queue_fault(fault, queue), self.port.bury(receipt, message)).await
    }

    async fn depth(&self, queue: QueueName) -> Result<Depth, QueueError> {
        self.port.depth(queue).await
    }

    async fn existing(&self) -> Result<Vec<QueueName>, QueueError> {
        self.port.existing().await
    }

    async fn dead(&self, queue: QueueName, after: u64, limit: usize) -> Result<Vec<DeadLetter>, QueueError> {
        self.port.dead(queue, after, limit).await
    }

    async fn replay(&self, queue: QueueName, number: u64, to: QueueName) -> Result<bool, QueueError> {
        self.port.replay(queue, number, to).await
    }

    async fn drop_dead(&self, queue: QueueName, number: u64) -> Result<bool, QueueError> {
        self.port.drop_dead(queue, number).await
    }
}

#[async_trait]
impl<P: Registry> Registry for Faulty<P> {
    async fn publish_layout(&self, shard_count: u32) -> Result<Layout, RegistryError> {
        self.port.publish_layout(shard_count).await
    }

    async fn layout(&self) -> Result<Option<Layout>, RegistryError> {
        self.port.layout().await
    }

    async fn layout_before(&self) -> Result<Option<u32>, RegistryError> {
        self.port.layout_before().await
    }

    async fn swept(&self, shards: u32) -> Result<u64, RegistryError> {
        self.port.swept(shards).await
    }

    async fn mark_swept(&self, shard: u32, epoch: u64) -> Result<(), RegistryError> {
        self.port.mark_swept(shard, epoch).await
    }

    async fn claim(
        &self,
        holder: &Holder,
        resources: &[Resource],
        supersede: bool,
    ) -> Result<Vec<Claim>, RegistryError> {
        self.port.claim(holder, resources, supersede).await
    }

    async fn renew(&self, holder: &Holder, leases: &[Lease]) -> Result<Renewal, RegistryError> {
        self.port.renew(holder, leases).await
    }

    async fn release(&self, holder: &Holder, leases: &[Lease]) -> Result<(), RegistryError> {
        self.port.release(holder, leases).await
    }

    async fn reserve(&self, request: Reserve) -> Result<Reservation, RegistryError> {
        self.around("reserve", registry_fault, self.port.reserve(request)).await
    }

    async fn mark_sent(&self, fence: &Fence, job: &JobId, sent: Sent) -> Result<(), RegistryError> {
        self.around("mark_sent", registry_fault, self.port.mark_sent(fence, job, sent)).await
    }

    async fn cancel(&self, fence: &Fence, job: &JobId) -> Result<(), RegistryError> {
        self.around("cancel", registry_fault, self.port.cancel(fence, job)).await
    }

    async fn mark_uncertain(&self, fence: &Fence, job: &JobId, why: &str) -> Result<(), RegistryError> {
        self.around("mark_uncertain", registry_fault, self.port.mark_uncertain(fence, job, why)).await
    }

    async fn lane_facts(&self, queue: QueueName) -> Result<Vec<LaneFact>, RegistryError> {
        self.around("lane_facts", registry_fault, self.port.lane_facts(queue)).await
    }

    async fn put_lane_fact(&self, fact: &LaneFact) -> Result<(), RegistryError> {
        let LaneFact { queue, head, due_ms, next_seq, .. } = fact;
        self.journal.note(format!("stores that {queue} waits for {head} until {due_ms}, next {next_seq}"));
        self.around("put_lane_fact", registry_fault, self.port.put_lane_fact(fact)).await
    }

    async fn clear_lane_fact(&self, queue: QueueName, lane: &Lane) -> Result<(), RegistryError> {
        self.around("clear_lane_fact", registry_fault, self.port.clear_lane_fact(queue, lane)).await
    }

    async fn count_deaths(&self, jobs: &[(ChannelId, JobId)], at_most: u32) -> Result<Vec<u32>, RegistryError> {
        self.around("count_deaths", registry_fault, self.port.count_deaths(jobs, at_most)).await
    }

    async fn place_events(&self, fence: &Fence, ids: &[Uuid]) -> Result<Vec<Option<u64>>, RegistryError> {
        self.around("place_events", registry_fault, self.port.place_events(fence, ids)).await
    }

    async fn events_stored(&self, fence: &Fence, ids: &[Uuid], offset: Option<i64>) -> Result<(), RegistryError> {
        self.around("events_stored", registry_fault, self.port.events_stored(fence, ids, offset)).await
    }

    async fn read_to(&self, channel: ChannelId) -> Result<Option<i64>, RegistryError> {
        self.port.read_to(channel).await
    }

    async fn mark_events(&self, marks: &[(Uuid, Option<String>)]) -> Result<(), RegistryError> {
        self.around("mark_events", registry_fault, self.port.mark_events(marks)).await
    }

    async fn event_marks(&self, ids: &[Uuid]) -> Result<Vec<Option<String>>, RegistryError> {
        self.port.event_marks(ids).await
    }

    async fn note(&self, outbox: &str, key: &str, note: Option<&str>) -> Result<(), RegistryError> {
        self.port.note(outbox, key, note).await
    }

    async fn notes(&self, outbox: &str) -> Result<Vec<(String, String)>, RegistryError> {
        self.port.notes(outbox).await
    }
}

#[async_trait]
impl<P: Outbox> Outbox for Faulty<P> {
    async fn append(&self, batch: Batch, destinations: &[Destination]) -> Result<Vec<Stored>, OutboxError> {
        let channel = batch.fence.channel;
        let error = |fault| match fault {
            Fault::Unavailable | Fault::Stale => OutboxError::Unavailable("by order of the test".to_owned()),
            Fault::Refused => OutboxError::Refused("by order of the test".to_owned()),
            Fault::Fenced => OutboxError::Fenced(channel),
        };
        self.around("append", error, self.port.append(batch, destinations)).await
    }

    async fn offset(&self, channel: ChannelId) -> Result<Option<i64>, OutboxError> {
        self.port.offset(channel).await
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<Stored>, OutboxError> {
        self.port.open(after, limit).await
    }

    async fn delivered(&self, position: u64, destination: Destination) -> Result<(), OutboxError> {
        self.port.delivered(position, destination).await
    }

    async fn failed(&self, position: u64, destination: Destination, error: &str) -> Result<(), OutboxError> {
        self.port.failed(position, destination, error).await
    }

    async fn bury(&self, position: u64, destination: Destination, reason: &str) -> Result<(), OutboxError> {
        self.port.bury(position, destination, reason).await
    }

    async fn dead(&self, limit: usize) -> Result<Vec<DeadEvent>, OutboxError> {
        self.port.dead(limit).await
    }

    async fn replay(&self, event: Uuid, destination: Destination) -> Result<bool, OutboxError> {
        self.port.replay(event, destination).await
    }

    async fn drop_dead(&self, event: Uuid, destination: Destination) -> Result<bool, OutboxError> {
        self.port.drop_dead(event, destination).await
    }

    async fn prune(&self, older_than: Duration) -> Result<u64, OutboxError> {
        self.port.prune(older_than).await
    }
}
