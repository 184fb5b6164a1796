//! What was stored without a destination: it lies in a queue of its own, oldest first, until it is old enough to go.

use std::time::Duration;

use lapin::options::{BasicAckOptions, BasicGetOptions};

use super::{Shared, wire};
use crate::amqp::error::{Cause, answered};

impl Shared {
    /// Removes what is older; how many.
    pub(super) async fn prune(&self, older_than: Duration) -> Result<u64, Cause> {
        self.declare().await?;
        let before_ms = self.clock.wall_ms() - older_than.as_millis() as i64;
        let within = self.config.answer_timeout;
        let channel = self.link.live().await?.channel().await?;
        let mut pruned = 0;
        loop {
            let got = channel.basic_get(self.names.kept.as_str().into(), BasicGetOptions::default());
            let Some(got) = answered(within, got).await? else { break };
            // What nobody can date is of no use to anybody.
            if wire::stored_ms(&got.delivery.properties).is_some_and(|stored_ms| stored_ms >= before_ms) {
                break;
            }
            answered(within, channel.basic_ack(got.delivery.delivery_tag, BasicAckOptions::default())).await?;
            pruned += 1;
        }
        // Puts the one that is too young back to its place.
        let _ = answered(within, channel.close(200, "".into())).await;
        Ok(pruned)
    }
}
