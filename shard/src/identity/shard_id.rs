//! The shard rule and a shard's place in the layout.

use super::{ChannelId, QueueBase, QueueName};

/// The shard that owns a channel: the UUID's first 32 bits, big-endian, modulo the count; 0 when there is one shard.
pub fn shard_for_channel(channel: ChannelId, shard_count: u32) -> u32 {
    if shard_count <= 1 { 0 } else { channel.prefix() % shard_count }
}

/// A slot: which of how many shards this is. A restart keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShardId {
    /// 0 to `count - 1`.
    pub index: u32,
    /// How many shards the fleet has.
    pub count: u32,
}

impl ShardId {
    /// The slot `index` of `count`.
    pub fn new(index: u32, count: u32) -> Self {
        debug_assert!(index < count.max(1));
        Self { index, count }
    }

    /// Whether this shard owns the channel.
    pub fn owns(&self, channel: ChannelId) -> bool {
        shard_for_channel(channel, self.count) == self.index
    }

    /// This shard's own queue of a base: bare when there is one shard.
    pub fn queue(&self, base: QueueBase) -> QueueName {
        QueueName::of(base, self.index, self.count)
    }

    /// The queue in which a channel's jobs of a base belong.
    pub fn queue_for_channel(&self, base: QueueBase, channel: ChannelId) -> QueueName {
        QueueName::of(base, shard_for_channel(channel, self.count), self.count)
    }
}
