//! Events that lie in an outbox elsewhere: their places, ids, marks, and what is noted about the outbox.

use std::{collections::HashMap, time::Duration};

use ::redis::cmd;
use uuid::Uuid;

use super::{
    super::{Fence, RegistryError},
    RedisRegistry,
    guard::given,
};
use crate::identity::ChannelId;

/// How long ids and marks are remembered: a platform keeps what it was not told to forget for a day.
const KEPT: Duration = Duration::from_secs(48 * 3600);
/// Ids of a channel in each of the two generations.
const IDS_MOST: usize = 50_000;

impl RedisRegistry {
    fn of_channel(&self, fence: &Fence) -> Vec<String> {
        vec![fence.channel.to_string(), fence.token.to_string(), KEPT.as_millis().to_string()]
    }

    pub(super) async fn place(&self, fence: &Fence, ids: &[Uuid]) -> Result<Vec<Option<u64>>, RegistryError> {
        let mut own = self.of_channel(fence);
        own.push(IDS_MOST.to_string());
        own.extend(ids.iter().map(short));
        let places: Vec<String> = self.run(&self.scripts.place, &self.holder, &own).await?;
        let place = |text: String| match text.as_str() {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        };
        places.into_iter().map(place).collect::<Option<_>>().ok_or_else(|| {
            RegistryError::Refused(format!("channel {}: a place was not written by this version", fence.channel))
        })
    }

    pub(super) async fn stored(&self, fence: &Fence, ids: &[Uuid], offset: Option<i64>) -> Result<(), RegistryError> {
        let mut own = self.of_channel(fence);
        own.push(given(offset.map(|offset| offset.to_string())));
        own.extend(ids.iter().map(short));
        self.run(&self.scripts.stored, &self.holder, &own).await
    }

    pub(super) async fn offset_of(&self, channel: ChannelId) -> Result<Option<i64>, RegistryError> {
        let key = format!("{}events:{channel}", self.options.prefix);
        self.link
            .call(async |_, mut connection| cmd("HGET").arg(key).arg("read_to").query_async(&mut connection).await)
            .await
    }

    pub(super) async fn mark(&self, marks: &[(Uuid, Option<String>)]) -> Result<(), RegistryError> {
        let mut own = vec![KEPT.as_millis().to_string()];
        own.extend(marks.iter().flat_map(|(id, mark)| [short(id), mark.clone().unwrap_or_default()]));
        self.run(&self.scripts.marks, &self.holder, &own).await
    }

    pub(super) async fn marks_of(&self, ids: &[Uuid]) -> Result<Vec<Option<String>>, RegistryError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<String> = ids.iter().map(|id| format!("{}mark:{}", self.options.prefix, short(id))).collect();
        self.link.call(async |_, mut connection| cmd("MGET").arg(keys).query_async(&mut connection).await).await
    }

    pub(super) async fn put_note(&self, outbox: &str, key: &str, note: Option<&str>) -> Result<(), RegistryError> {
        let own = [outbox.to_owned(), key.to_owned(), note.unwrap_or_default().to_owned()];
        self.run(&self.scripts.note, &self.holder, &own).await
    }

    pub(super) async fn notes_of(&self, outbox: &str) -> Result<Vec<(String, String)>, RegistryError> {
        let key = format!("{}notes:{outbox}", self.options.prefix);
        let found: HashMap<String, String> = self
            .link
            .call(async |_, mut connection| cmd("HGETALL").arg(key).query_async(&mut connection).await)
            .await?;
        let mut notes: Vec<_> = found.into_iter().collect();
        notes.sort();
        Ok(notes)
    }
}

/// An id as it is written down.
fn short(id: &Uuid) -> String {
    id.simple().to_string()
}
