//! The secrets of messages, by which later reactions, votes and edits of them are opened.

use async_trait::async_trait;
use whatsapp_rust::wacore::store::{
    error::{Result, StoreError},
    traits::{MsgSecretEntry, MsgSecretStore, merge_msg_secret_expiry, merge_msg_secret_message_ts},
};

use super::super::{
    device::DeviceSession,
    rows::{self, Kind},
};

/// Rows looked up and merged in one piece of work.
const CHUNK: usize = 256;

fn scope(chat: &str, sender: &str) -> Vec<u8> {
    [chat.as_bytes(), b"\0", sender.as_bytes()].concat()
}

/// The value: when the message was written, then its secret.
fn value(message_ts: i64, secret: &[u8]) -> Vec<u8> {
    [message_ts.to_le_bytes().as_slice(), secret].concat()
}

fn parse(value: &[u8]) -> Result<(i64, Vec<u8>)> {
    let (time, secret) =
        value.split_at_checked(8).ok_or_else(|| StoreError::Validation("a stored secret is too short".to_owned()))?;
    Ok((time.try_into().map(i64::from_le_bytes).unwrap_or_default(), secret.to_vec()))
}

#[async_trait]
impl MsgSecretStore for DeviceSession {
    async fn put_msg_secrets(&self, entries: Vec<MsgSecretEntry>) -> Result<usize> {
        let count = entries.len();
        for chunk in entries.chunks(CHUNK) {
            let channel = self.channel();
            let place = |entry: &MsgSecretEntry| {
                self.place(Kind::MsgSecret, &scope(&entry.chat, &entry.sender), entry.msg_id.as_bytes())
            };
            let places: Vec<_> = chunk.iter().map(place).collect();
            let there = self
                .read(move |connection| {
                    let there = places.iter().map(|place| rows::get(connection, channel, place));
                    there.collect::<std::result::Result<Vec<_>, _>>()
                })
                .await?;
            let mut changes = Vec::with_capacity(chunk.len());
            for (entry, there) in chunk.iter().zip(there) {
                let (mut expires_at, mut message_ts) = (entry.expires_at, entry.message_ts);
                if let Some(row) = there {
                    expires_at = merge_msg_secret_expiry(row.at, expires_at);
                    message_ts = merge_msg_secret_message_ts(parse(&self.open(&row)?.value)?.0, message_ts);
                }
                let value = value(message_ts, &entry.secret);
                let scope = scope(&entry.chat, &entry.sender);
                changes.push(self.put_of(Kind::MsgSecret, &scope, entry.msg_id.as_bytes(), expires_at, &value)?);
            }
            self.change(changes).await?;
        }
        Ok(count)
    }

    async fn get_msg_secret(&self, chat: &str, sender: &str, msg_id: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.get_msg_secret_with_ts(chat, sender, msg_id).await?.map(|(secret, _)| secret))
    }

    async fn get_msg_secret_with_ts(&self, chat: &str, sender: &str, msg_id: &str) -> Result<Option<(Vec<u8>, i64)>> {
        let found = self.get(Kind::MsgSecret, &scope(chat, sender), msg_id.as_bytes()).await?;
        found.map(|value| parse(&value).map(|(time, secret)| (secret, time))).transpose()
    }

    async fn delete_expired_msg_secrets(&self, cutoff_timestamp: i64) -> Result<u32> {
        // Here a deadline that is the cutoff itself has passed.
        self.expire(Kind::MsgSecret, cutoff_timestamp.saturating_add(1)).await
    }
}
