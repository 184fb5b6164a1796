//! The registry of one box: leases and layout in `box.db`, the send guard, waiting lanes and deaths in the slot's file.
//!
//! A job's channel decides the slot that does it, so that a guard in the slot's file is seen by everyone who may send it.

mod events;
mod facts;
mod guard;
mod lease;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use self::{guard::Found, lease::Moment};
use super::{
    Claim, Fence, Holder, LaneFact, Layout, Lease, Registry, RegistryError, Renewal, Reservation, Reserve, Resource,
    Sent,
};
use crate::{
    identity::{ChannelId, QueueName},
    job::{JobId, Lane},
    store::{BoxStore, OpError, SlotStore, StoreError, Writer},
};

/// The registry of a box.
pub struct EmbeddedRegistry {
    shared: Arc<BoxStore>,
    slot: Option<Arc<SlotStore>>,
    /// Where the guard's sweep goes on, and how many reservations ago the last one was.
    sweep: Arc<Mutex<(String, u32)>>,
}

impl EmbeddedRegistry {
    /// With the slot's file where this process holds one. Without it there is no guard: nothing can be sent.
    pub fn new(shared: Arc<BoxStore>, slot: Option<Arc<SlotStore>>) -> Self {
        Self { shared, slot, sweep: Arc::default() }
    }

    fn slot(&self) -> Result<&Arc<SlotStore>, RegistryError> {
        let refused = || RegistryError::Refused("this process holds no slot, so that it can't send".to_owned());
        self.slot.as_ref().ok_or_else(refused)
    }

    fn moment(&self) -> Moment {
        let clock = self.shared.clock();
        let (now_ms, wall_ms) = (clock.boottime().as_millis() as i64, clock.wall_ms().max(1) as u64);
        Moment { now_ms, boot_id: self.shared.boot_id().to_owned(), wall_ms }
    }

    async fn in_slot<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        self.slot()?.write(work).await.map_err(registry_error)
    }

    /// The file in which a queue's lanes are kept.
    async fn lanes_file(&self, queue: QueueName) -> Result<Arc<Writer>, RegistryError> {
        self.slot()?.peers().writer(queue.index, false).await.map_err(registry_error)
    }

    async fn try_reserve(&self, request: &Reserve, dead: Option<Holder>) -> Result<Found, RegistryError> {
        let now_ms = self.shared.clock().wall_ms();
        let (request, sweep) = (request.clone(), self.sweep.clone());
        self.in_slot(move |connection| {
            let found = guard::reserve(connection, &request, dead.as_ref(), now_ms)?;
            if matches!(found, Found::Answer(Reservation::Fresh)) {
                let (from, ago) = &mut *sweep.lock().expect("sweep");
                *ago += 1;
                if *ago >= guard::SWEEP_AFTER {
                    *ago = 0;
                    *from = guard::sweep(connection, from, now_ms)?;
                }
            }
            Ok(found)
        })
        .await
    }
}

fn registry_error(error: StoreError) -> RegistryError {
    match error {
        StoreError::Unavailable { .. } | StoreError::Closed { .. } => RegistryError::Unavailable(error.to_string()),
        StoreError::Fenced { path } => RegistryError::Fenced { resource: path },
        StoreError::ChannelFenced(channel) => {
            RegistryError::Fenced { resource: Resource::Channel(channel).to_string() }
        }
        StoreError::Refused { .. } | StoreError::Newer { .. } | StoreError::Missing { .. } => {
            RegistryError::Refused(error.to_string())
        }
    }
}

fn stored_layout(connection: &Connection) -> Result<Option<Layout>, OpError> {
    let mut statement = connection.prepare_cached("SELECT shard_count, epoch FROM layout")?;
    let layout =
        statement.query_row([], |row| Ok(Layout { shard_count: row.get(0)?, epoch: row.get::<_, i64>(1)? as u64 }));
    Ok(layout.optional()?)
}

#[async_trait]
impl Registry for EmbeddedRegistry {
    async fn publish_layout(&self, shard_count: u32) -> Result<Layout, RegistryError> {
        let published = self.shared.write(move |connection| {
            let before = stored_layout(connection)?;
            if let Some(layout) = before
                && layout.shard_count == shard_count
            {
                return Ok(layout);
            }
            let layout = Layout { shard_count, epoch: before.map_or(1, |layout| layout.epoch + 1) };
            connection
                .prepare_cached(
                    "INSERT INTO layout (one, shard_count, epoch) VALUES (1, ?1, ?2)
                    ON CONFLICT DO UPDATE SET before = shard_count, shard_count = excluded.shard_count, epoch = excluded.epoch",
                )?
                .execute((layout.shard_count, layout.epoch as i64))?;
            Ok(layout)
        });
        published.await.map_err(registry_error)
    }

    async fn layout(&self) -> Result<Option<Layout>, RegistryError> {
        self.shared.read(stored_layout).await.map_err(registry_error)
    }

    async fn layout_before(&self) -> Result<Option<u32>, RegistryError> {
        let before = self.shared.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT before FROM layout")?;
            Ok(statement.query_row([], |row| row.get::<_, Option<u32>>(0)).optional()?.flatten())
        });
        before.await.map_err(registry_error)
    }

    async fn swept(&self, shards: u32) -> Result<u64, RegistryError> {
        let sql = "SELECT count(*), min(epoch) FROM swept WHERE shard < ?1";
        let swept = self.shared.read(move |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            Ok(statement.query_row([shards], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, Option<i64>>(1)?)))?)
        });
        let (known, lowest) = swept.await.map_err(registry_error)?;
        Ok(if known < shards { 0 } else { lowest.unwrap_or(0) as u64 })
    }

    async fn mark_swept(&self, shard: u32, epoch: u64) -> Result<(), RegistryError> {
        let sql = "INSERT INTO swept (shard, epoch) VALUES (?1, ?2)
                   ON CONFLICT DO UPDATE SET epoch = excluded.epoch WHERE epoch <> excluded.epoch";
        let marked =
            self.shared.write(move |connection| Ok(connection.execute(sql, (shard, epoch as i64)).map(drop)?));
        marked.await.map_err(registry_error)
    }

    async fn claim(
        &self,
        holder: &Holder,
        resources: &[Resource],
        supersede: bool,
    ) -> Result<Vec<Claim>, RegistryError> {
        let (moment, claimant, resources) = (self.moment(), holder.clone(), resources.to_vec());
        let claims = self.shared.write(move |connection| {
            lease::tidy(connection, &moment)?;
            lease::claim(connection, &claimant, &resources, supersede, &moment)
        });
        let fenced = |_| RegistryError::Fenced { resource: format!("worker/{}", holder.worker) };
        claims.await.map_err(registry_error)?.map_err(fenced)
    }

    async fn renew(&self, holder: &Holder, leases: &[Lease]) -> Result<Renewal, RegistryError> {
        let (moment, holder, leases) = (self.moment(), holder.clone(), leases.to_vec());
        let renewed = self.shared.write(move |connection| lease::renew(connection, &holder, &leases, &moment));
        renewed.await.map_err(registry_error)
    }

    async fn release(&self, holder: &Holder, leases: &[Lease]) -> Result<(), RegistryError> {
        let (holder, leases) = (holder.clone(), leases.to_vec());
        let released = self.shared.write(move |connection| lease::release(connection, &holder, &leases));
        released.await.map_err(registry_error)
    }

    async fn reserve(&self, request: Reserve) -> Result<Reservation, RegistryError> {
        let mut dead = None;
        loop {
            let by = match self.try_reserve(&request, dead.take()).await? {
                Found::Answer(reservation) => return Ok(reservation),
                Found::Doubt(by) => by,
            };
            let (moment, holder) = (self.moment(), by.clone());
            let alive = self.shared.read(move |connection| lease::remaining(connection, &holder, &moment)).await;
            if alive.map_err(registry_error)?.is_some() {
                return Ok(Reservation::Busy { by });
            }
            dead = Some(by);
        }
    }

    async fn mark_sent(&self, fence: &Fence, job: &JobId, sent: Sent) -> Result<(), RegistryError> {
        let (fence, job, now_ms) = (*fence, job.clone(), self.shared.clock().wall_ms());
        let holder = self.slot()?.holder().clone();
        // The recipient has it already: only what is next in the chat waits for this.
        let mark = move |connection: &Connection| guard::mark_sent(connection, &fence, &holder, &job, &sent, now_ms);
        self.slot()?.write_patiently(mark).await.map_err(registry_error)
    }

    async fn cancel(&self, fence: &Fence, job: &JobId) -> Result<(), RegistryError> {
        let (fence, job) = (*fence, job.clone());
        self.in_slot(move |connection| guard::cancel(connection, &fence, &job)).await
    }

    async fn mark_uncertain(&self, fence: &Fence, job: &JobId, why: &str) -> Result<(), RegistryError> {
        tracing::warn!(channel = %fence.channel, job = %job, why, "it is not known whether a send reached the platform");
        let (fence, job, now_ms) = (*fence, job.clone(), self.shared.clock().wall_ms());
        let holder = self.slot()?.holder().clone();
        self.in_slot(move |connection| guard::mark_uncertain(connection, &fence, &holder, &job, now_ms)).await
    }

    async fn lane_facts(&self, queue: QueueName) -> Result<Vec<LaneFact>, RegistryError> {
        let file = self.slot()?.peers().writer(queue.index, false).await;
        let writer = match file {
            Ok(writer) => writer,
            Err(StoreError::Missing { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(registry_error(error)),
        };
        writer.read(move |connection| facts::lanes(connection, queue)).await.map_err(registry_error)
    }

    async fn put_lane_fact(&self, fact: &LaneFact) -> Result<(), RegistryError> {
        let (writer, fact) = (self.lanes_file(fact.queue).await?, fact.clone());
        writer.write(move |connection| facts::put_lane(connection, &fact)).await.map_err(registry_error)
    }

    async fn clear_lane_fact(&self, queue: QueueName, lane: &Lane) -> Result<(), RegistryError> {
        let (writer, lane) = (self.lanes_file(queue).await?, lane.clone());
        writer.write(move |connection| facts::clear_lane(connection, queue, &lane)).await.map_err(registry_error)
    }

    async fn count_deaths(&self, jobs: &[(ChannelId, JobId)], at_most: u32) -> Result<Vec<u32>, RegistryError> {
        let (jobs, now_ms) = (jobs.to_vec(), self.shared.clock().wall_ms());
        self.in_slot(move |connection| facts::count_deaths(connection, &jobs, at_most, now_ms)).await
    }

    async fn place_events(&self, fence: &Fence, ids: &[Uuid]) -> Result<Vec<Option<u64>>, RegistryError> {
        let (fence, ids, now_ms) = (*fence, ids.to_vec(), self.shared.clock().wall_ms());
        self.in_slot(move |connection| events::place(connection, &fence, &ids, now_ms)).await
    }

    async fn events_stored(&self, fence: &Fence, ids: &[Uuid], offset: Option<i64>) -> Result<(), RegistryError> {
        let (fence, ids, now_ms) = (*fence, ids.to_vec(), self.shared.clock().wall_ms());
        self.in_slot(move |connection| events::stored(connection, &fence, &ids, offset, now_ms)).await
    }

    async fn read_to(&self, channel: ChannelId) -> Result<Option<i64>, RegistryError> {
        let read = self.slot()?.read(move |connection| events::read_to(connection, channel));
        read.await.map_err(registry_error)
    }

    async fn mark_events(&self, marks: &[(Uuid, Option<String>)]) -> Result<(), RegistryError> {
        let (marks, now_ms) = (marks.to_vec(), self.shared.clock().wall_ms());
        let marked = self.shared.write(move |connection| events::mark(connection, &marks, now_ms));
        marked.await.map_err(registry_error)
    }

    async fn event_marks(&self, ids: &[Uuid]) -> Result<Vec<Option<String>>, RegistryError> {
        let ids = ids.to_vec();
        self.shared.read(move |connection| events::marks(connection, &ids)).await.map_err(registry_error)
    }

    async fn note(&self, outbox: &str, key: &str, note: Option<&str>) -> Result<(), RegistryError> {
        let (outbox, key, note) = (outbox.to_owned(), key.to_owned(), note.map(str::to_owned));
        let noted = self.shared.write(move |connection| events::note(connection, &outbox, &key, note.as_deref()));
        noted.await.map_err(registry_error)
    }

    async fn notes(&self, outbox: &str) -> Result<Vec<(String, String)>, RegistryError> {
        let outbox = outbox.to_owned();
        self.shared.read(move |connection| events::notes(connection, &outbox)).await.map_err(registry_error)
    }
}
