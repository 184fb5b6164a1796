//! Who a channel is and where its work belongs: the one rule that producer and daemon must agree on to the bit.

mod channel_id;
mod count;
mod queue_name;
mod shard_id;

pub use channel_id::{ChannelId, ChannelIdError};
pub use count::{CountError, MAX_SHARD_COUNT, parse_shard_count, parse_shard_index};
pub use queue_name::{QueueBase, QueueName, QueueNameError};
pub use shard_id::{ShardId, shard_for_channel};
