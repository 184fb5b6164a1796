//! An outbox in memory, which can lose its store and lets a test look inside.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::*;
use crate::sink::{DeadEvent, OutboxError};

#[derive(Default)]
pub(super) struct MemoryOutbox {
    rows: Mutex<BTreeMap<u64, Stored>>,
    pub(super) dead: Mutex<Vec<DeadEvent>>,
    pub(super) errors: Mutex<Vec<String>>,
    seqs: Mutex<HashMap<ChannelId, u64>>,
    delivered: AtomicUsize,
    pub(super) reads: AtomicUsize,
    /// Outcomes can't be stored.
    pub(super) away: AtomicBool,
    /// How many outcomes could not.
    pub(super) missed: AtomicUsize,
    /// Something came into view.
    pub(super) news: tokio::sync::Notify,
}

impl MemoryOutbox {
    pub(super) fn open_count(&self) -> usize {
        self.rows.lock().expect("rows").values().map(|row| row.open.len()).sum()
    }

    pub(super) fn delivered_count(&self) -> usize {
        self.delivered.load(Ordering::SeqCst)
    }

    fn close(&self, position: u64, destination: Destination) -> Option<(Event, u32)> {
        let mut rows = self.rows.lock().expect("rows");
        let open = &mut rows.get_mut(&position)?.open;
        let at = open.iter().position(|(to, _)| *to == destination)?;
        let (_, failures) = open.remove(at);
        Some((rows[&position].event.clone(), failures))
    }

    fn reachable(&self) -> Result<(), OutboxError> {
        if self.away.load(Ordering::SeqCst) {
            self.missed.fetch_add(1, Ordering::SeqCst);
            return Err(OutboxError::Unavailable("away".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl Outbox for MemoryOutbox {
    async fn append(&self, batch: Batch, destinations: &[Destination]) -> Result<Vec<Stored>, OutboxError> {
        let mut rows = self.rows.lock().expect("rows");
        let mut added = Vec::new();
        for mut event in batch.events {
            if rows.values().any(|row| row.event.id == event.id) {
                continue;
            }
            let mut seqs = self.seqs.lock().expect("seqs");
            let seq = seqs.entry(event.channel_id).or_default();
            *seq += 1;
            event.seq = *seq;
            let position = rows.last_key_value().map_or(1, |(last, _)| last + 1);
            let open = destinations.iter().map(|destination| (*destination, 0)).collect();
            let stored = Stored { position, stored_ms: Timestamp::now().as_millisecond(), event, open };
            rows.insert(position, stored.clone());
            added.push(stored);
        }
        Ok(added)
    }

    async fn offset(&self, _: ChannelId) -> Result<Option<i64>, OutboxError> {
        Ok(None)
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<Stored>, OutboxError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let rows = self.rows.lock().expect("rows");
        let open = rows.range(after + 1..).map(|(_, stored)| stored).filter(|stored| !stored.open.is_empty());
        Ok(open.take(limit).cloned().collect())
    }

    async fn news(&self) {
        self.news.notified().await;
    }

    async fn delivered(&self, position: u64, destination: Destination) -> Result<(), OutboxError> {
        self.reachable()?;
        self.close(position, destination).expect("open");
        self.delivered.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn failed(&self, position: u64, destination: Destination, error: &str) -> Result<(), OutboxError> {
        self.reachable()?;
        let mut rows = self.rows.lock().expect("rows");
        let open = &mut rows.get_mut(&position).expect("stored").open;
        open.iter_mut().filter(|(to, _)| *to == destination).for_each(|(_, failures)| *failures += 1);
        self.errors.lock().expect("errors").push(error.to_owned());
        Ok(())
    }

    async fn bury(&self, position: u64, destination: Destination, reason: &str) -> Result<(), OutboxError> {
        self.reachable()?;
        let (event, attempts) = self.close(position, destination).expect("open");
        let dead = DeadEvent { event, destination, reason: reason.to_owned(), attempts };
        self.dead.lock().expect("dead").push(dead);
        Ok(())
    }

    async fn dead(&self, limit: usize) -> Result<Vec<DeadEvent>, OutboxError> {
        Ok(self.dead.lock().expect("dead").iter().take(limit).cloned().collect())
    }

    async fn replay(&self, event: uuid::Uuid, destination: Destination) -> Result<bool, OutboxError> {
        let letters = self.dead(usize::MAX).await?;
        let letter = letters.into_iter().find(|letter| (letter.event.id, letter.destination) == (event, destination));
        let Some(letter) = letter else { return Ok(false) };
        let stored_ms = Timestamp::now().as_millisecond();
        {
            let mut rows = self.rows.lock().expect("rows");
            let position = rows.last_key_value().map_or(1, |(last, _)| last + 1);
            rows.insert(position, Stored { position, stored_ms, event: letter.event, open: vec![(destination, 0)] });
        }
        self.drop_dead(event, destination).await
    }

    async fn drop_dead(&self, event: uuid::Uuid, destination: Destination) -> Result<bool, OutboxError> {
        let mut dead = self.dead.lock().expect("dead");
        let before = dead.len();
        dead.retain(|letter| (letter.event.id, letter.destination) != (event, destination));
        Ok(dead.len() < before)
    }

    async fn prune(&self, _: Duration) -> Result<u64, OutboxError> {
        Ok(0)
    }
}
