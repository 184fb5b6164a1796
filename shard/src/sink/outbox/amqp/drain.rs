//! Outboxes of other layouts: shard 0 moves what lies in them to the outboxes of the channels' shards.
//!
//! A queue is emptied only when nobody else is active on it, first what is open, then what was set aside of it, then dead
//! letters and what is kept. Each message is confirmed in its new place before it leaves the old one. The order within a
//! conversation is that of the old outbox, and its events come before those of the new one that are read after they
//! arrived; what the new layout stores and delivers before they arrive can't be held back for them.

use std::sync::Arc;

use futures_util::StreamExt;
use lapin::{
    message::Delivery as Raw,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeleteOptions},
    types::FieldTable,
};
use tracing::{info, warn};

use super::{
    Shared,
    index::mark_key,
    names::{Group, Names},
    topology::{self, Count},
    wire::{self, Letter, Open},
};
use crate::{
    amqp::error::{Cause, answered},
    event::Event,
    identity::shard_for_channel,
};

/// Messages under way at a time.
const PREFETCH: u16 = 256;

/// Looks for outboxes of other layouts from time to time, until the outbox is dropped.
pub(super) async fn run(shared: Arc<Shared>) {
    while !shared.stop.is_cancelled() {
        let drained = tokio::select! {
            drained = shared.drain_all() => drained,
            () = shared.stop.cancelled() => return,
        };
        match drained {
            Ok(0) => {}
            Ok(moved) => warn!(moved, "events of another layout's outboxes were moved to where they belong now"),
            Err(cause) => warn!(?cause, "outboxes of other layouts can't be looked through; trying again later"),
        }
        tokio::select! {
            () = tokio::time::sleep(shared.options.drain_every) => {}
            () = shared.stop.cancelled() => {}
        }
    }
}

/// Which of an outbox's queues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// What is open; whether it was set aside.
    Open(bool),
    Dead,
    Kept,
}

impl Shared {
    /// Names of outboxes that the layout in force does not have.
    fn others(&self) -> impl Iterator<Item = Names> + use<> {
        let count = self.shard.count;
        let indexed = (0..self.config.probe_to).filter(move |index| count <= 1 || *index >= count).map(Some);
        let bare = (count > 1).then_some(None);
        bare.into_iter().chain(indexed).map(Names::of)
    }

    async fn drain_all(self: &Arc<Self>) -> Result<u64, Cause> {
        let mut moved = 0;
        for names in self.others() {
            if self.count(&names.main).await?.is_none() {
                continue;
            }
            moved += self.drain(&names.main, Part::Open(false)).await?;
            let notes = self.book.notes(&names.main).await.map_err(super::reader::unavailable)?;
            for (key, _) in notes {
                let Some(group) = Group::read(&key) else { continue };
                let aside = names.aside(group);
                if self.count(&aside).await?.is_some() {
                    moved += self.drain(&aside, Part::Open(true)).await?;
                }
                let forgotten = self.book.note(&names.main, &key, None).await;
                forgotten.map_err(super::reader::unavailable)?;
                self.delete(&aside).await?;
            }
            for (queue, part) in [(&names.dead, Part::Dead), (&names.kept, Part::Kept)] {
                if self.count(queue).await?.is_some() {
                    moved += self.drain(queue, part).await?;
                }
            }
        }
        Ok(moved)
    }

    /// What is in a queue, if there is such a queue.
    pub(super) async fn count(&self, queue: &str) -> Result<Option<Count>, Cause> {
        let channel = self.link.live().await?.channel().await?;
        match topology::count(&channel, &self.config, queue).await {
            Ok(count) => {
                let _ = answered(self.config.answer_timeout, channel.close(200, "".into())).await;
                Ok(Some(count))
            }
            Err(Cause::Missing) => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    /// Removes a queue that is empty and that nobody reads. (A quorum queue can't be asked to see to that itself.)
    pub(super) async fn delete(&self, queue: &str) -> Result<(), Cause> {
        if self.count(queue).await? != Some(Count { ready: 0, consumers: 0 }) {
            return Ok(());
        }
        let channel = self.link.live().await?.channel().await?;
        let deleting = channel.queue_delete(queue.into(), QueueDeleteOptions::default());
        answered(self.config.answer_timeout, deleting).await?;
        let _ = answered(self.config.answer_timeout, channel.close(200, "".into())).await;
        Ok(())
    }

    /// Moves all that lies in a queue; `Ok` when nothing is left there.
    async fn drain(self: &Arc<Self>, queue: &str, part: Part) -> Result<u64, Cause> {
        let (within, mut moved) = (self.config.answer_timeout, 0);
        match self.count(queue).await? {
            None => return Ok(0),
            Some(Count { consumers: 0, .. }) => {}
            Some(_) => return Err(Cause::Unavailable(format!("somebody reads {queue}"))),
        }
        let channel = self.link.live().await?.channel().await?;
        answered(within, channel.basic_qos(PREFETCH, BasicQosOptions::default())).await?;
        let end = self.number();
        let tag = format!("{} drains {end:x}", self.config.name);
        let options = BasicConsumeOptions::default();
        let consuming = channel.basic_consume(queue.into(), tag.as_str().into(), options, FieldTable::default());
        let mut stream = answered(within, consuming).await?;
        // When this one comes, everything has come before it.
        self.publish(queue, wire::marker(end), bytes::Bytes::new()).await?;
        let mut ended = false;
        while !ended {
            let next = tokio::time::timeout(within, stream.next()).await;
            let Ok(Some(raw)) = next else {
                return Err(Cause::Unavailable(format!(
                    "{queue} can't be read to its end; another process may hold it"
                )));
            };
            let raw = raw?;
            let tag = raw.delivery_tag;
            match wire::marked(&raw.properties) {
                Some(number) => ended = number == end,
                None => moved += u64::from(self.rehome(queue, part, raw).await?),
            }
            answered(within, channel.basic_ack(tag, BasicAckOptions::default())).await?;
        }
        let _ = answered(within, channel.close(200, "".into())).await;
        if moved > 0 {
            info!(from = queue, moved, "emptied a queue of another layout");
        }
        Ok(moved)
    }

    /// Publishes a message where it belongs now. `false` when there was nothing to publish.
    async fn rehome(self: &Arc<Self>, queue: &str, part: Part, raw: Raw) -> Result<bool, Cause> {
        let event = serde_json::from_slice::<Event>(&raw.data).ok();
        let Some(event) = event else {
            warn!(queue, bytes = raw.data.len(), "a message that is no event goes to the dead letters");
            self.declare().await?;
            self.publish(&self.names.dead, raw.properties, raw.data.into()).await?;
            return Ok(true);
        };
        let count = self.shard.count;
        let names = Names::of((count > 1).then(|| shard_for_channel(event.channel_id, count)));
        let live = self.link.live().await?;
        topology::declare(&live, &self.config, &names).await?;
        let (to, properties) = match part {
            Part::Dead => (&names.dead, raw.properties),
            Part::Kept => (&names.kept, raw.properties),
            Part::Open(aside) => {
                let Some(mut letter) = Letter::read(&raw.properties, Vec::new()) else { return Ok(false) };
                let key = mark_key(event.id, letter.number, aside);
                let marks = self.book.event_marks(&[key]).await.map_err(super::reader::unavailable)?;
                if let Some(mark) = marks.into_iter().next().flatten() {
                    letter.open = letter.open.and(&Open::read(&mark));
                }
                if letter.open.is_empty() {
                    return Ok(false);
                }
                (&names.main, letter.properties())
            }
        };
        self.publish(to, properties, raw.data.into()).await?;
        Ok(true)
    }
}
