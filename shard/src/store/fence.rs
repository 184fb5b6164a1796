//! The fencing token of a channel, as its slot's file knows it.

use rusqlite::{Connection, OptionalExtension};

use super::{OpError, key};
use crate::registry::Fence;

/// Refuses a writer whose token is older than one that has written, and remembers a newer one. Part of the transaction
/// of the write that it judges.
pub(crate) fn check_fence(connection: &Connection, fence: &Fence) -> Result<(), OpError> {
    let channel = key(fence.channel);
    let token = fence.token as i64;
    let stored: Option<i64> = connection
        .prepare_cached("SELECT token FROM channels WHERE channel = ?1")?
        .query_row([channel], |row| row.get(0))
        .optional()?;
    match stored {
        Some(stored) if stored > token => return Err(OpError::ChannelFenced(fence.channel)),
        Some(stored) if stored == token => {}
        Some(_) => {
            connection
                .prepare_cached("UPDATE channels SET token = ?2 WHERE channel = ?1")?
                .execute((channel, token))?;
        }
        None => {
            connection
                .prepare_cached("INSERT INTO channels (channel, token) VALUES (?1, ?2)")?
                .execute((channel, token))?;
        }
    }
    Ok(())
}
