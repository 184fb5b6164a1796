//! The registry of a fleet: Redis, by scripts that run inside the server and by its clock.
//!
//! | key, after the prefix      | holds                                                                       |
//! |----------------------------|-----------------------------------------------------------------------------|
//! | `layout`                   | the count in force, as producers read it: `{"shard_count":2,"epoch":7}`      |
//! | `layout_before`            | the count of the epoch before                                               |
//! | `swept`                    | up to which epoch each shard has brought what lay in wrong queues to its owner |
//! | `lease:<resource>`         | `token incarnation worker`; released, `token - worker`                       |
//! | `holder:<worker>`          | until when each incarnation's leases hold, and which incarnation is `current`|
//! | `fence:<channel>`          | the greatest token under which something was written                         |
//! | `guard:<job>`              | what is known of a send                                                      |
//! | `lanes:<queue>`            | lanes that wait                                                              |
//! | `deaths:<job>`             | in how many deaths it was out                                                |
//! | `events:<channel>`         | the last place given in its sequence, and how far its platform has been read |
//! | `ids:<channel>:<n>`        | events of a day, with their places until they are stored                     |
//! | `mark:<event>`             | what became of an event that lies in a broker                                |
//! | `notes:<outbox>`           | what is set aside of an outbox                                               |
//! | `clock`                    | the registry's own time, and which life of the server it was last read in    |
//! | `session:<link>`           | the newest connection of a process                                           |
//! | `cursor:<worker>`          | up to where a worker has acted on the pool's events (see `pool.rs`)          |
//! | `incarnation:<worker>`     | the last incarnation that was given                                          |
//!
//! A lease lives as long as its holder's time in `holder:<worker>`, so that one field is renewed however many leases
//! there are; the leases' records are compared in the same step, and those that the server lost are written again.
//!
//! **Time** runs only while somebody looks (`tick` in `scripts/common.lua`): neither a step of the server's wall clock nor
//! an outage ends the leases of those who live. **Tokens** are above the last one stored, above all that the holder saw,
//! and above the server's time in milliseconds, so that they grow even when the server has forgotten them. **A server that
//! may have forgotten** something (empty, restarted, failed over) grants nothing new for the length of a lease: by then
//! its holders have said what they hold, or have let go. A registry that is empty since it is new can be told so:
//! `HSET shardvisor:clock wall 0 now 0 settled 0 server <its run_id>`.

mod connect;
mod desk;
mod events;
mod facts;
mod guard;
mod lease;
mod link;
mod listen;
mod pool;
mod script;
mod trouble;
mod url;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use ::redis::{FromRedisValue, Script, cmd};
use async_trait::async_trait;
use uuid::Uuid;

pub use self::url::{RedisUrl, RedisUrlError};
use self::{desk::Desk, guard::Unanswered, lease::Floors, link::Link, listen::Ear, script::Scripts};
use super::{
    Claim, Fence, Holder, LEASE, LaneFact, Layout, Lease, Registry, RegistryError, Renewal, Reservation, Reserve,
    Resource, Sent,
};
use crate::{
    identity::{ChannelId, QueueName},
    job::{JobId, Lane},
};

/// How a Redis is used.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// What all keys begin with. Producers read the layout at `shardvisor:layout`.
    pub prefix: String,
    /// What the keys of the bot-worker pool begin with. Other programs know them.
    pub pool_prefix: String,
    /// After how much silence a worker of the pool is taken for dead.
    pub silence: Duration,
    /// How long a call may take.
    pub patience: Duration,
    /// For how long nothing new is granted by a server that may have forgotten something.
    pub settle: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: "shardvisor:".to_owned(),
            pool_prefix: "bot_worker:".to_owned(),
            silence: LEASE,
            patience: Duration::from_secs(2),
            settle: LEASE,
        }
    }
}

/// The registry of a fleet, in a Redis.
pub struct RedisRegistry {
    link: Arc<Link>,
    /// Where waiting for events is done.
    waiting: Link,
    ear: Ear,
    /// Where the send guard is asked.
    desk: Arc<Desk>,
    scripts: Scripts,
    options: RedisOptions,
    /// Which process this is.
    holder: Holder,
    floors: Floors,
    unanswered: Unanswered,
    /// What was published, or read, last.
    layout: Mutex<Option<Layout>>,
}

impl RedisRegistry {
    /// The registry behind an address. It is connected to when it is first asked, and whenever it has to be again.
    pub fn connect(url: RedisUrl, holder: Holder, options: RedisOptions) -> Self {
        let link = Arc::new(Link::new(url.clone(), &options.prefix, options.patience));
        let scripts = Scripts::new();
        Self {
            ear: Ear::new(url.clone(), &options.pool_prefix, &holder.worker),
            waiting: Link::new(url, &options.prefix, options.patience),
            desk: Desk::new(link.clone(), scripts.guard.clone(), options.clone(), holder.clone()),
            link,
            scripts,
            options,
            holder,
            floors: Floors::default(),
            unanswered: Unanswered::default(),
            layout: Mutex::default(),
        }
    }

    /// A number for a new life of a worker, greater than all before.
    pub async fn next_incarnation(&self, worker: &str) -> Result<u64, RegistryError> {
        let holder = Holder { worker: worker.to_owned(), incarnation: 0 };
        self.run(&self.scripts.life, &holder, &[]).await
    }

    /// Runs a script as somebody, with its own arguments.
    async fn run<T: FromRedisValue + Send>(
        &self,
        script: &Script,
        holder: &Holder,
        own: &[String],
    ) -> Result<T, RegistryError> {
        let arguments = |connection: u64| {
            let mut all = vec![
                self.options.prefix.clone(),
                holder.worker.clone(),
                holder.incarnation.to_string(),
                self.link.session.clone(),
                connection.to_string(),
                LEASE.as_millis().to_string(),
                self.options.settle.as_millis().to_string(),
            ];
            all.extend_from_slice(own);
            all
        };
        self.link.run(script, arguments).await
    }

    fn remember(&self, layout: Layout) -> Layout {
        *self.layout.lock().expect("layout") = Some(layout);
        layout
    }
}

fn read_layout(text: &str) -> Result<Layout, RegistryError> {
    let unreadable =
        |_| RegistryError::Refused("the published layout holds something that this version did not write".into());
    serde_json::from_str(text).map_err(unreadable)
}

#[async_trait]
impl Registry for RedisRegistry {
    async fn publish_layout(&self, shard_count: u32) -> Result<Layout, RegistryError> {
        let seen = *self.layout.lock().expect("layout");
        let (seen_epoch, seen_count) = seen.map_or((0, 0), |layout| (layout.epoch, layout.shard_count));
        let own = [shard_count.to_string(), seen_epoch.to_string(), seen_count.to_string()];
        let text: String = self.run(&self.scripts.layout, &self.holder, &own).await?;
        read_layout(&text).map(|layout| self.remember(layout))
    }

    async fn layout(&self) -> Result<Option<Layout>, RegistryError> {
        let key = format!("{}layout", self.options.prefix);
        let found: Option<String> =
            self.link.call(async |_, mut connection| cmd("GET").arg(key).query_async(&mut connection).await).await?;
        found.as_deref().map(read_layout).transpose()
    }

    async fn layout_before(&self) -> Result<Option<u32>, RegistryError> {
        let key = format!("{}layout_before", self.options.prefix);
        self.link.call(async |_, mut connection| cmd("GET").arg(&key).query_async(&mut connection).await).await
    }

    async fn swept(&self, shards: u32) -> Result<u64, RegistryError> {
        let key = format!("{}swept", self.options.prefix);
        let fields: Vec<u32> = (0..shards).collect();
        let found: Vec<Option<u64>> = self
            .link
            .call(async |_, mut connection| cmd("HMGET").arg(&key).arg(&fields).query_async(&mut connection).await)
            .await?;
        Ok(found.into_iter().map(|epoch| epoch.unwrap_or(0)).min().unwrap_or(0))
    }

    async fn mark_swept(&self, shard: u32, epoch: u64) -> Result<(), RegistryError> {
        let key = format!("{}swept", self.options.prefix);
        self.link
            .call(async |_, mut connection| {
                cmd("HSET").arg(&key).arg(shard).arg(epoch).query_async(&mut connection).await
            })
            .await
    }

    async fn claim(
        &self,
        holder: &Holder,
        resources: &[Resource],
        supersede: bool,
    ) -> Result<Vec<Claim>, RegistryError> {
        self.claim_all(holder, resources, supersede).await
    }

    async fn renew(&self, holder: &Holder, leases: &[Lease]) -> Result<Renewal, RegistryError> {
        self.renew_all(holder, leases).await
    }

    async fn release(&self, holder: &Holder, leases: &[Lease]) -> Result<(), RegistryError> {
        self.release_all(holder, leases).await
    }

    async fn reserve(&self, request: Reserve) -> Result<Reservation, RegistryError> {
        self.reserve_send(request).await
    }

    async fn mark_sent(&self, fence: &Fence, job: &JobId, sent: Sent) -> Result<(), RegistryError> {
        self.settle_sent(fence, job, sent).await
    }

    async fn cancel(&self, fence: &Fence, job: &JobId) -> Result<(), RegistryError> {
        self.settle("cancel", fence, job).await
    }

    async fn mark_uncertain(&self, fence: &Fence, job: &JobId, why: &str) -> Result<(), RegistryError> {
        tracing::warn!(channel = %fence.channel, job = %job, why, "it is not known whether a send reached the platform");
        self.settle("uncertain", fence, job).await
    }

    async fn lane_facts(&self, queue: QueueName) -> Result<Vec<LaneFact>, RegistryError> {
        self.read_lanes(queue).await
    }

    async fn put_lane_fact(&self, fact: &LaneFact) -> Result<(), RegistryError> {
        self.write_lane(fact.queue, &fact.lane, Some(fact)).await
    }

    async fn clear_lane_fact(&self, queue: QueueName, lane: &Lane) -> Result<(), RegistryError> {
        self.write_lane(queue, lane, None).await
    }

    async fn count_deaths(&self, jobs: &[(ChannelId, JobId)], at_most: u32) -> Result<Vec<u32>, RegistryError> {
        self.count(jobs, at_most).await
    }

    async fn place_events(&self, fence: &Fence, ids: &[Uuid]) -> Result<Vec<Option<u64>>, RegistryError> {
        self.place(fence, ids).await
    }

    async fn events_stored(&self, fence: &Fence, ids: &[Uuid], offset: Option<i64>) -> Result<(), RegistryError> {
        self.stored(fence, ids, offset).await
    }

    async fn read_to(&self, channel: ChannelId) -> Result<Option<i64>, RegistryError> {
        self.offset_of(channel).await
    }

    async fn mark_events(&self, marks: &[(Uuid, Option<String>)]) -> Result<(), RegistryError> {
        self.mark(marks).await
    }

    async fn event_marks(&self, ids: &[Uuid]) -> Result<Vec<Option<String>>, RegistryError> {
        self.marks_of(ids).await
    }

    async fn note(&self, outbox: &str, key: &str, note: Option<&str>) -> Result<(), RegistryError> {
        self.put_note(outbox, key, note).await
    }

    async fn notes(&self, outbox: &str) -> Result<Vec<(String, String)>, RegistryError> {
        self.notes_of(outbox).await
    }
}
