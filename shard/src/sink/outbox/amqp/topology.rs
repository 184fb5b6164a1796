//! The queues of an outbox: making them, counting what is ready in them.
//!
//! Those that are consumed have a single active consumer: a predecessor that is not gone yet and its successor never both
//! deliver. None has a limit of its own, and nothing in them ends but by us.

use lapin::{
    Channel,
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};

use super::names::Names;
use crate::amqp::{
    AmqpConfig, QueueType,
    error::{Cause, answered},
    link::Live,
};

const DELIVERY_LIMIT: &str = "x-delivery-limit";
/// As good as none. RabbitMQ 4 has a limit of 20 unless told otherwise and takes -1 for none, which older ones take for a
/// limit that the first redelivery is beyond.
const UNLIMITED: i64 = 1_000_000_000;

/// Makes all that an outbox has from the start.
pub(super) async fn declare(live: &Live, config: &AmqpConfig, names: &Names) -> Result<(), Cause> {
    for (name, consumed) in [(&names.dead, false), (&names.kept, false), (&names.main, true)] {
        make(live, config, name, consumed).await?;
    }
    Ok(())
}

/// Makes a queue, or finds that it is there.
pub(super) async fn make(live: &Live, config: &AmqpConfig, name: &str, consumed: bool) -> Result<(), Cause> {
    let mut unlimited = true;
    loop {
        let channel = live.channel().await?;
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let made = channel.queue_declare(name.into(), options, arguments(config, consumed, unlimited));
        match answered(config.answer_timeout, made).await {
            Ok(_) => {
                let _ = channel.close(200, "".into()).await;
                return Ok(());
            }
            // Made by an older broker, that had no limit to be told.
            Err(Cause::Refused(text)) if unlimited && text.contains(DELIVERY_LIMIT) => unlimited = false,
            Err(cause) => return Err(cause),
        }
    }
}

fn arguments(config: &AmqpConfig, consumed: bool, unlimited: bool) -> FieldTable {
    let quorum = config.queue_type == QueueType::Quorum;
    let mut table = FieldTable::default();
    let kind = if quorum { "quorum" } else { "classic" };
    table.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
    if quorum && unlimited {
        table.insert(DELIVERY_LIMIT.into(), AMQPValue::LongLongInt(UNLIMITED));
    }
    if consumed {
        table.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    }
    table
}

/// What a broker tells of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    /// Messages that nobody holds.
    pub(super) ready: u64,
    /// Consumers; of those of a quorum queue with a single active one, that one alone.
    pub(super) consumers: u32,
}

/// Counts what is in a queue; one that is missing takes the channel with it.
pub(super) async fn count(channel: &Channel, config: &AmqpConfig, queue: &str) -> Result<Count, Cause> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let declared = channel.queue_declare(queue.into(), options, FieldTable::default());
    let queue = answered(config.answer_timeout, declared).await?;
    Ok(Count { ready: queue.message_count().into(), consumers: queue.consumer_count() })
}
