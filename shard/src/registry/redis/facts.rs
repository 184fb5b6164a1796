//! Lanes that wait, and in how many deaths a job was out.

use std::collections::HashMap;

use ::redis::cmd;
use serde::{Deserialize, Serialize};

use super::{
    super::{LaneFact, RegistryError},
    RedisRegistry,
    guard::KEPT,
};
use crate::{
    identity::{ChannelId, QueueName},
    job::{JobId, Lane},
    store::lane_key,
};

/// A waiting lane as it is written down.
#[derive(Serialize, Deserialize)]
struct Stored {
    channel: ChannelId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chat: Option<String>,
    head: String,
    due_ms: i64,
    next_seq: u64,
}

impl Stored {
    fn fact(self, queue: QueueName) -> Option<LaneFact> {
        let lane = Lane { base: queue.base, channel: self.channel, chat: self.chat };
        Some(LaneFact { queue, lane, head: JobId::new(self.head)?, due_ms: self.due_ms, next_seq: self.next_seq })
    }
}

impl RedisRegistry {
    pub(super) async fn read_lanes(&self, queue: QueueName) -> Result<Vec<LaneFact>, RegistryError> {
        let key = format!("{}lanes:{queue}", self.options.prefix);
        let found: HashMap<String, String> = self
            .link
            .call(async |_, mut connection| cmd("HGETALL").arg(key).query_async(&mut connection).await)
            .await?;
        let facts: Option<Vec<LaneFact>> =
            found.values().map(|text| serde_json::from_str::<Stored>(text).ok()?.fact(queue)).collect();
        let mut facts = facts.ok_or_else(|| {
            RegistryError::Refused(format!("the waiting lanes of {queue}: a record was not written by this version"))
        })?;
        facts.sort_by_key(|fact| fact.due_ms);
        Ok(facts)
    }

    /// Stores that a lane waits, or that it no longer does. Refused when another worker holds the queue's slot.
    pub(super) async fn write_lane(
        &self,
        queue: QueueName,
        lane: &Lane,
        fact: Option<&LaneFact>,
    ) -> Result<(), RegistryError> {
        let text = match fact {
            None => String::new(),
            Some(fact) => serde_json::to_string(&Stored {
                channel: lane.channel,
                chat: lane.chat.clone(),
                head: fact.head.as_str().to_owned(),
                due_ms: fact.due_ms,
                next_seq: fact.next_seq,
            })
            .map_err(|error| RegistryError::Refused(format!("a lane can't be written down: {error}")))?,
        };
        let own = [queue.to_string(), queue.index.unwrap_or(0).to_string(), lane_key(lane), text];
        self.run(&self.scripts.lane, &self.holder, &own).await
    }

    pub(super) async fn count(&self, jobs: &[(ChannelId, JobId)], at_most: u32) -> Result<Vec<u32>, RegistryError> {
        let mut own = vec![KEPT.as_millis().to_string(), at_most.to_string()];
        own.extend(jobs.iter().map(|(_, job)| job.as_str().to_owned()));
        self.run(&self.scripts.deaths, &self.holder, &own).await
    }
}
