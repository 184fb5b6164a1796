//! The ids of events that have been stored, so that one told again is skipped: what is still there, and what was stored
//! within the last half day or so.
//!
//! Two tables take turns: ids go into the younger one, and when that is full or old enough the older one is emptied and
//! becomes the younger. Forgetting is then one statement, not one for each id.

use rusqlite::Connection;

use super::OpError;

/// A generation ends after this time,
const GENERATION_MS: i64 = 12 * 3600 * 1000;
/// or after so many events.
const GENERATION_EVENTS: i64 = 500_000;

/// The positions that a transaction gives, and where the ids of its events go.
pub(crate) struct Seen {
    generation: i64,
    /// The last position given.
    pub(crate) last_position: i64,
}

impl Seen {
    /// Begins: makes room first when a generation has ended.
    pub(crate) fn begin(connection: &Connection, now_ms: i64) -> Result<Self, OpError> {
        let (last_position, generation, since_ms, began_at): (i64, i64, i64, i64) = connection
            .prepare_cached("SELECT last_position, generation, since_ms, began_at FROM outbox_state")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        let mut seen = Self { generation, last_position };
        // Also when the wall clock was set back by more than a generation.
        let old = now_ms.abs_diff(since_ms) > GENERATION_MS as u64;
        if old || last_position - began_at > GENERATION_EVENTS {
            seen.generation = 1 - generation;
            let table = seen.table(seen.generation);
            connection.execute(&format!("DELETE FROM {table}"), [])?;
            // What still lies there from before the generation that becomes the older one would be forgotten otherwise.
            for source in ["outbox WHERE position <= ?1", "kept WHERE position <= ?1", "dead_events WHERE ?1 = ?1"] {
                connection.execute(&format!("INSERT OR IGNORE INTO {table} SELECT id FROM {source}"), [began_at])?;
            }
            connection.execute(
                "UPDATE outbox_state SET generation = ?1, since_ms = ?2, began_at = last_position",
                (seen.generation, now_ms),
            )?;
        }
        Ok(seen)
    }

    fn table(&self, generation: i64) -> &'static str {
        if generation == 0 { "seen_0" } else { "seen_1" }
    }

    /// Remembers an id; `false` when it is known.
    pub(crate) fn remember(&self, connection: &Connection, id: &[u8; 16]) -> Result<bool, OpError> {
        let sql = if self.generation == 0 {
            "INSERT OR IGNORE INTO seen_0 SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM seen_1 WHERE id = ?1)"
        } else {
            "INSERT OR IGNORE INTO seen_1 SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM seen_0 WHERE id = ?1)"
        };
        Ok(connection.prepare_cached(sql)?.execute([id])? > 0)
    }

    /// The next position.
    pub(crate) fn next_position(&mut self) -> i64 {
        self.last_position += 1;
        self.last_position
    }

    /// Stores how far positions have been given.
    pub(crate) fn end(self, connection: &Connection) -> Result<(), OpError> {
        connection.prepare_cached("UPDATE outbox_state SET last_position = ?1")?.execute([self.last_position])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{open::connect, schema::Kind};

    fn remember(connection: &Connection, id: u8, now_ms: i64) -> bool {
        let mut seen = Seen::begin(connection, now_ms).expect("begun");
        let fresh = seen.remember(connection, &[id; 16]).expect("remembered");
        let position = seen.next_position();
        if fresh && id == 1 {
            let sql = "INSERT INTO outbox (position, id, channel, seq, handler, at_ms, event)
                 VALUES (?1, ?2, x'00', 1, 0, 0, x'00')";
            connection.execute(sql, (position, [id; 16])).expect("stored");
        }
        seen.end(connection).expect("ended");
        fresh
    }

    #[test]
    fn an_id_is_known_for_a_generation_and_as_long_as_its_event_is_stored() {
        let base = tempfile::tempdir().expect("directory");
        let connection = connect(&base.path().join("queue.db"), Kind::Slot, true).expect("opened");
        let start = 1_900_000_000_000;
        assert!(remember(&connection, 1, start), "stored and never delivered");
        assert!(remember(&connection, 2, start), "delivered at once");
        assert!(!remember(&connection, 2, start + GENERATION_MS));
        let mut now = start;
        for turn in 0..4 {
            now += GENERATION_MS + 1;
            assert!(!remember(&connection, 1, now), "turn {turn}");
        }
        assert!(remember(&connection, 2, now), "forgotten by then");
    }
}
