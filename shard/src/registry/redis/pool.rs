//! The bot-worker pool in Redis: its structures by the letter of the contract (W3), the rest beside them.
//!
//! | key, after `bot_worker:` | holds                                                                                    |
//! |--------------------------|------------------------------------------------------------------------------------------|
//! | `info:<id>`              | hash: `worker_id`, `host`, `state`, `capacity`, `active_bots`, `bots_by_type` (JSON), `incarnation` |
//! | `heartbeats`             | sorted set: id by seconds since the epoch, by the server's clock                          |
//! | `assignments`            | hash: bot → `{"worker_id":…,"bot_type":…}`                                               |
//! | `events`                 | stream: `type` (`activate`, `deactivate`, `restart`), `bot_id`, `bot_type`; about 10,000  |
//! | `commands:<id>`          | channel: `{"command":"stop","bot_id":…}` or `restart`                                    |
//! | `members`                | channel: the id of a worker that came, went or changed its state                         |
//!
//! Who is alive is judged by the registry's own time (`seen_ms` in the info), not by the score, which a step of the
//! server's clock makes wrong. A worker's place in the events is `cursor:<id>` among the registry's keys.

use std::{collections::BTreeMap, time::Duration};

use ::redis::{Value, cmd};
use async_trait::async_trait;
use serde::Deserialize;

use super::{
    super::{Assignment, BotEvent, BotEvents, Cursor, Member, Members, Notice, Pool, RegistryError, WorkerInfo},
    RedisRegistry,
    listen::payload,
};
use crate::identity::ChannelId;

/// So many events are kept at least.
const EVENTS_KEPT: u32 = 10_000;
/// So many are read at once.
const EVENTS_MOST: u32 = 500;
/// For so long a reader waits for an event. Below the patience of a call.
const EVENTS_WAIT: Duration = Duration::from_secs(1);
/// A place is remembered for a month.
const CURSOR_SECONDS: u32 = 30 * 24 * 3600;

/// The fields of a worker's info.
#[derive(Deserialize)]
struct Info {
    host: String,
    state: String,
    capacity: String,
    active_bots: String,
    bots_by_type: String,
    incarnation: String,
}

fn member(worker: String, silent: &str, info: &str, timeout: Duration) -> Option<Member> {
    let info: Info = serde_json::from_str(info).ok()?;
    let silent = Duration::from_millis(silent.parse().ok()?);
    Some(Member {
        worker,
        incarnation: info.incarnation.parse().ok()?,
        info: WorkerInfo {
            host: info.host,
            state: info.state.parse().ok()?,
            capacity: info.capacity.parse().ok()?,
            active_bots: info.active_bots.parse().ok()?,
            bots_by_type: serde_json::from_str(&info.bots_by_type).ok()?,
        },
        silent,
        alive: silent < timeout,
    })
}

/// One entry of the stream.
type Entry = (String, BTreeMap<String, String>);

fn event((_, fields): Entry) -> Option<BotEvent> {
    let bot_type = fields.get("bot_type").cloned().unwrap_or_default();
    Some(BotEvent { change: fields.get("type")?.parse().ok()?, bot: fields.get("bot_id")?.parse().ok()?, bot_type })
}

impl RedisRegistry {
    fn pool_key(&self, name: &str) -> String {
        format!("{}{name}", self.options.pool_prefix)
    }

    fn cursor_key(&self) -> String {
        format!("{}cursor:{}", self.options.prefix, self.holder.worker)
    }

    async fn look(&self, more: &[String]) -> Result<Members, RegistryError> {
        let timeout = self.options.silence;
        let mut own = vec![self.options.pool_prefix.clone(), timeout.as_millis().to_string()];
        own.extend_from_slice(more);
        let answer: Vec<String> = self.run(&self.scripts.heartbeat, &self.holder, &own).await?;
        let mut words = answer.into_iter();
        let settling = words.next().and_then(|word| word.parse().ok()).map(Duration::from_millis).unwrap_or_default();
        let mut all = Vec::new();
        while let (Some(worker), Some(silent), Some(info)) = (words.next(), words.next(), words.next()) {
            match member(worker.clone(), &silent, &info, timeout) {
                Some(member) => all.push(member),
                None => tracing::debug!(%worker, "a worker's info was not written by this version: left out"),
            }
        }
        all.sort_by(|one, other| one.worker.cmp(&other.worker));
        Ok(Members { all, settling })
    }

    async fn read_events(&self, after: Option<&Cursor>) -> Result<BotEvents, RegistryError> {
        let after = after.map(|cursor| cursor.0.clone()).unwrap_or_default();
        let own = [self.options.pool_prefix.clone(), after, EVENTS_MOST.to_string()];
        let (gap, cursor, entries): (bool, String, Vec<Entry>) =
            self.run(&self.scripts.events, &self.holder, &own).await?;
        let known = entries.len();
        let events: Vec<_> = entries.into_iter().filter_map(event).collect();
        // What can't be read may have meant anything.
        let gap = gap || events.len() < known;
        Ok(BotEvents { events, cursor: Cursor(cursor), gap })
    }
}

#[async_trait]
impl Pool for RedisRegistry {
    async fn heartbeat(&self, info: &WorkerInfo, supersede: bool) -> Result<Members, RegistryError> {
        let by_type = serde_json::to_string(&info.bots_by_type)
            .map_err(|error| RegistryError::Refused(format!("the bots by type can't be written down: {error}")))?;
        let fields = [
            ("host", info.host.clone()),
            ("state", info.state.as_str().to_owned()),
            ("capacity", info.capacity.to_string()),
            ("active_bots", info.active_bots.to_string()),
            ("bots_by_type", by_type),
        ];
        let mut own = vec![u8::from(supersede).to_string()];
        own.extend(fields.into_iter().flat_map(|(field, value)| [field.to_owned(), value]));
        self.look(&own).await
    }

    async fn leave(&self) -> Result<(), RegistryError> {
        self.run(&self.scripts.leave, &self.holder, std::slice::from_ref(&self.options.pool_prefix)).await
    }

    async fn members(&self) -> Result<Members, RegistryError> {
        self.look(&[]).await
    }

    async fn assign(&self, bots: &[(ChannelId, String)]) -> Result<(), RegistryError> {
        if bots.is_empty() {
            return Ok(());
        }
        let mut set = cmd("HSET");
        set.arg(self.pool_key("assignments"));
        for (bot, bot_type) in bots {
            let assignment = Assignment { worker_id: self.holder.worker.clone(), bot_type: bot_type.clone() };
            let text = serde_json::to_string(&assignment)
                .map_err(|error| RegistryError::Refused(format!("an assignment can't be written down: {error}")))?;
            set.arg(bot.to_string()).arg(text);
        }
        self.link.call(async move |_, mut connection| set.query_async(&mut connection).await).await
    }

    async fn unassign(&self, bots: &[ChannelId]) -> Result<(), RegistryError> {
        let mut own = vec![self.options.pool_prefix.clone()];
        own.extend(bots.iter().map(ToString::to_string));
        self.run(&self.scripts.unassign, &self.holder, &own).await
    }

    async fn assignment(&self, bot: ChannelId) -> Result<Option<Assignment>, RegistryError> {
        let mut get = cmd("HGET");
        get.arg(self.pool_key("assignments")).arg(bot.to_string());
        let found: Option<String> =
            self.link.call(async move |_, mut connection| get.query_async(&mut connection).await).await?;
        Ok(found.and_then(|text| serde_json::from_str(&text).ok()))
    }

    async fn assignments(&self) -> Result<Vec<(ChannelId, Assignment)>, RegistryError> {
        let mut get = cmd("HGETALL");
        get.arg(self.pool_key("assignments"));
        let found: BTreeMap<String, String> =
            self.link.call(async move |_, mut connection| get.query_async(&mut connection).await).await?;
        let read = |(bot, text): (String, String)| Some((bot.parse().ok()?, serde_json::from_str(&text).ok()?));
        Ok(found.into_iter().filter_map(read).collect())
    }

    async fn announce(&self, event: &BotEvent) -> Result<(), RegistryError> {
        let mut add = cmd("XADD");
        add.arg(self.pool_key("events")).arg("MAXLEN").arg("~").arg(EVENTS_KEPT).arg("*");
        add.arg("type").arg(event.change.as_str()).arg("bot_id").arg(event.bot.to_string());
        add.arg("bot_type").arg(&event.bot_type);
        let _: String = self.link.call(async move |_, mut connection| add.query_async(&mut connection).await).await?;
        Ok(())
    }

    async fn cursor(&self) -> Result<Option<Cursor>, RegistryError> {
        let mut get = cmd("GET");
        get.arg(self.cursor_key());
        let found: Option<String> =
            self.link.call(async move |_, mut connection| get.query_async(&mut connection).await).await?;
        Ok(found.map(Cursor))
    }

    async fn keep_cursor(&self, cursor: &Cursor) -> Result<(), RegistryError> {
        let mut set = cmd("SET");
        set.arg(self.cursor_key()).arg(&cursor.0).arg("EX").arg(CURSOR_SECONDS);
        self.link.call(async move |_, mut connection| set.query_async(&mut connection).await).await
    }

    async fn events(&self, after: Option<&Cursor>) -> Result<BotEvents, RegistryError> {
        let read = self.read_events(after).await?;
        if read.gap || !read.events.is_empty() {
            return Ok(read);
        }
        // Waiting blocks a connection, so that it has one of its own; what is read there only ends the waiting.
        let mut wait = cmd("XREAD");
        wait.arg("COUNT").arg(1).arg("BLOCK").arg(EVENTS_WAIT.as_millis() as u64);
        wait.arg("STREAMS").arg(self.pool_key("events")).arg(&read.cursor.0);
        let came: Value =
            self.waiting.call(async move |_, mut connection| wait.query_async(&mut connection).await).await?;
        if came == Value::Nil { Ok(read) } else { self.read_events(Some(&read.cursor)).await }
    }

    async fn tell(&self, worker: &str, notice: Notice) -> Result<bool, RegistryError> {
        let (channel, text) = payload(&self.options.pool_prefix, worker, notice);
        let mut publish = cmd("PUBLISH");
        publish.arg(channel).arg(text);
        let heard: u64 =
            self.link.call(async move |_, mut connection| publish.query_async(&mut connection).await).await?;
        Ok(heard > 0)
    }

    async fn next_notice(&self) -> Result<Notice, RegistryError> {
        self.ear.next().await
    }
}
