//! After a change of the shard count: what belongs to this slot's channels but lies in another slot's file comes over.
//!
//! Copied first and confirmed here, then removed there: a crash between the two is made good by doing it again. Jobs stay
//! where they are; they are forwarded like any straggler.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params_from_iter, types::Value};

use super::{OpError, SlotStore, StoreError, seen::Seen, unkey, writer::Writer};
use crate::identity::ShardId;

/// Rows read at a time.
const CHUNK: i64 = 500;

/// What came over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// Files looked into.
    pub files: u64,
    /// Rows that came over.
    pub rows: u64,
}

/// A table whose rows belong to channels. Key and channel come first among the columns.
struct Table {
    name: &'static str,
    key: &'static str,
    columns: &'static [&'static str],
    put: fn(&Connection, &Table, &[Value], &mut Seen) -> Result<(), OpError>,
}

impl Table {
    /// Whether what comes may be there already, to be found by its id.
    fn is_of_events(&self) -> bool {
        matches!(self.name, "outbox" | "kept")
    }

    /// The index by which it is found. It is there during an import alone: nothing else looks for an id.
    fn index(&self) -> String {
        format!("{}_ids", self.name)
    }
}

const TABLES: &[Table] = &[
    Table { name: "channels", key: "channel", columns: &["channel", "token", "seq", "read_to"], put: put_channel },
    Table {
        name: "guard",
        key: "job",
        columns: &[
            "channel",
            "job",
            "state",
            "worker",
            "incarnation",
            "provider_id",
            "result",
            "at_ms",
            "uncertain_ms",
        ],
        put: put_as_is,
    },
    Table { name: "placed", key: "id", columns: &["channel", "id", "seq", "at_ms"], put: put_as_is },
    Table { name: "deaths", key: "job", columns: &["channel", "job", "deaths", "at_ms"], put: put_as_is },
    Table {
        name: "outbox",
        key: "position",
        columns: &["channel", "id", "seq", "handler", "endpoint", "at_ms", "event"],
        put: put_event,
    },
    Table { name: "kept", key: "position", columns: &["channel", "id", "seq", "at_ms", "event"], put: put_event },
    Table {
        name: "dead_events",
        key: "number",
        columns: &["channel", "id", "destination", "seq", "attempts", "reason", "event"],
        put: put_as_is,
    },
    Table {
        name: "sessions",
        key: "channel",
        columns: &["channel", "seq", "token", "key_id", "sealed_key"],
        put: put_as_is,
    },
    Table {
        name: "session_rows",
        key: "id",
        columns: &["channel", "kind", "scope", "name", "at", "value"],
        put: put_as_is,
    },
];

impl SlotStore {
    /// Fetches what belongs here from the other slots' files. Quick when the layout is that of the last time.
    pub async fn import_foreign(&self) -> Result<Imported, StoreError> {
        let shard = self.shard();
        let count = i64::from(shard.count.max(1));
        let done: Option<i64> = self
            .read(|connection| Ok(connection.query_row("SELECT imported FROM owner", [], |row| row.get(0))?))
            .await?;
        let mut imported = Imported::default();
        if done == Some(count) {
            return Ok(imported);
        }
        let now_ms = self.clock().wall_ms();
        for index in self.peers().existing()? {
            if index == self.index() {
                continue;
            }
            let source = self.peers().writer(index, false).await?;
            imported.files += 1;
            for table in TABLES {
                imported.rows += self.import_table(table, &source, shard, now_ms).await?;
            }
            // Whoever owns that file next in another layout has to look again.
            let sql = "UPDATE owner SET imported = NULL WHERE imported IS NOT NULL AND imported <> ?1";
            source.write(move |connection| Ok(connection.execute(sql, [count]).map(|_| ())?)).await?;
        }
        self.write(move |connection| {
            for table in TABLES.iter().filter(|table| table.is_of_events()) {
                connection.execute(&format!("DROP INDEX IF EXISTS {}", table.index()), [])?;
            }
            Ok(connection.execute("UPDATE owner SET imported = ?1", [count]).map(|_| ())?)
        })
        .await?;
        Ok(imported)
    }

    async fn import_table(
        &self,
        table: &'static Table,
        source: &Arc<Writer>,
        shard: ShardId,
        now_ms: i64,
    ) -> Result<u64, StoreError> {
        let (mut after, mut moved, mut unprepared) = (None::<Value>, 0, true);
        loop {
            let from = after.take();
            let (rows, last) = source.read(move |connection| read_chunk(connection, table, from, shard)).await?;
            let Some(last) = last else { return Ok(moved) };
            after = Some(last);
            if rows.is_empty() {
                continue;
            }
            moved += rows.len() as u64;
            if table.is_of_events() && std::mem::take(&mut unprepared) {
                let sql = format!("CREATE INDEX IF NOT EXISTS {} ON {} (id)", table.index(), table.name);
                self.write(move |connection| Ok(connection.execute(&sql, []).map(|_| ())?)).await?;
            }
            let keys: Vec<Value> = rows.iter().map(|(key, _)| key.clone()).collect();
            self.write(move |connection| {
                let mut seen = Seen::begin(connection, now_ms)?;
                for (_, row) in &rows {
                    (table.put)(connection, table, row, &mut seen)?;
                }
                seen.end(connection)
            })
            .await?;
            source
                .write(move |connection| {
                    let sql = format!("DELETE FROM {} WHERE {} = ?1", table.name, table.key);
                    for key in keys {
                        connection.prepare_cached(&sql)?.execute([key])?;
                    }
                    Ok(())
                })
                .await?;
        }
    }
}

type Chunk = (Vec<(Value, Vec<Value>)>, Option<Value>);

/// The rows of the next chunk that are this shard's, and the last key looked at.
fn read_chunk(connection: &Connection, table: &Table, after: Option<Value>, shard: ShardId) -> Result<Chunk, OpError> {
    let (name, key, columns) = (table.name, table.key, table.columns.join(", "));
    let sql =
        format!("SELECT {key}, {columns} FROM {name} WHERE ?1 IS NULL OR {key} > ?1 ORDER BY {key} LIMIT {CHUNK}");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query([after])?;
    let (mut rows, mut last) = (Vec::new(), None);
    while let Some(row) = found.next()? {
        let key: Value = row.get(0)?;
        last = Some(key.clone());
        if shard.owns(unkey(row.get(1)?)) {
            let values: Result<Vec<Value>, _> = (1..=table.columns.len()).map(|at| row.get(at)).collect();
            rows.push((key, values?));
        }
    }
    Ok((rows, last))
}

fn put_as_is(connection: &Connection, table: &Table, row: &[Value], _: &mut Seen) -> Result<(), OpError> {
    let places = vec!["?"; row.len()].join(", ");
    let sql = format!("INSERT OR IGNORE INTO {} ({}) VALUES ({places})", table.name, table.columns.join(", "));
    connection.prepare_cached(&sql)?.execute(params_from_iter(row))?;
    Ok(())
}

/// Whichever file has written more events knows how far the channel is; the token is the greater one in any case.
fn put_channel(connection: &Connection, _: &Table, row: &[Value], _: &mut Seen) -> Result<(), OpError> {
    let sql = "INSERT INTO channels (channel, token, seq, read_to) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (channel) DO UPDATE SET token = max(token, excluded.token),
            read_to = CASE WHEN excluded.seq > seq OR read_to IS NULL THEN excluded.read_to ELSE read_to END,
            seq = max(seq, excluded.seq)";
    connection.prepare_cached(sql)?.execute(params_from_iter(row))?;
    Ok(())
}

/// Events get a new position here, behind what is there: their order within a channel stays.
fn put_event(connection: &Connection, table: &Table, row: &[Value], seen: &mut Seen) -> Result<(), OpError> {
    let id: Option<[u8; 16]> = match &row[1] {
        Value::Blob(id) => id.as_slice().try_into().ok(),
        _ => None,
    };
    let id = id.ok_or_else(|| OpError::Unreadable("an event's id is not 16 bytes long".to_owned()))?;
    if !seen.remember(connection, &id)? {
        // Known from an import that was cut short after the copy, or forgotten there and seen here.
        let there = format!("SELECT 1 FROM {} WHERE id = ?1", table.name);
        let stored = connection.prepare_cached(&there)?.query_row([id], |_| Ok(())).optional()?;
        if stored.is_some() {
            return Ok(());
        }
    }
    let places = vec!["?"; row.len() + 1].join(", ");
    let sql = format!("INSERT INTO {} ({}, position) VALUES ({places})", table.name, table.columns.join(", "));
    let position = Value::Integer(seen.next_position());
    connection.prepare_cached(&sql)?.execute(params_from_iter(row.iter().chain([&position])))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{clock::SystemClock, identity::ShardId, registry::Holder};

    const EVENTS: i64 = 20_000;

    /// Opens a slot's file as its next life does; how long it took until what lies elsewhere was there.
    async fn moved(dir: &std::path::Path, index: u32, count: u32, incarnation: u64) -> (Arc<SlotStore>, Duration) {
        let holder = Holder { worker: format!("box-{index}"), incarnation };
        let slot = SlotStore::open(dir, ShardId { index, count }, &holder, Arc::new(SystemClock)).expect("opened");
        let began = Instant::now();
        slot.import_foreign().await.expect("imported");
        (slot, began.elapsed())
    }

    async fn kept(slot: &SlotStore) -> (i64, i64) {
        let sql = "SELECT count(*), count(DISTINCT id) FROM kept";
        slot.read(|connection| Ok(connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?))
            .await
            .expect("read")
    }

    /// Events that went to and fro between layouts are known here, and looked for when they come back.
    #[tokio::test]
    async fn going_back_to_a_layout_takes_no_longer_for_all_the_events_that_were_there_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let (first, _) = moved(dir.path(), 1, 2, 1).await;
        let filled = first.write(|connection| {
            let sql = "INSERT INTO kept (position, id, channel, seq, at_ms, event) VALUES (?1, ?2, ?3, ?1, 0, x'00')";
            // Its first 32 bits are odd: the second of two shards has it.
            let channel = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0_u8];
            for number in 1..=EVENTS {
                let mut id = [0; 16];
                id[8..].copy_from_slice(&number.to_be_bytes());
                connection.prepare_cached(sql)?.execute(rusqlite::params![number, id, channel])?;
            }
            Ok(())
        });
        filled.await.expect("filled");
        drop(first);
        let mut took = Vec::new();
        for (life, (index, count)) in [(0, 1), (1, 2), (0, 1), (1, 2)].into_iter().enumerate() {
            let (slot, time) = moved(dir.path(), index, count, 2 + life as u64).await;
            assert_eq!(kept(&slot).await, (EVENTS, EVENTS), "move {life}");
            took.push(time);
        }
        assert!(took[3] < took[0] * 10 + Duration::from_secs(1), "{took:?}");
    }
}
