//! What the protocol remembers beside the keys: who has a sender key, which phone is which identity, which devices there
//! are, what was sent and may be asked for again, and what was decrypted and is not stored as an event yet.

use async_trait::async_trait;
use whatsapp_rust::wacore::store::{
    error::Result,
    traits::{DeviceListRecord, LidPnMappingEntry, PendingInboundKey, PendingInboundRow, ProtocolStore, TcTokenEntry},
};

use super::{
    super::{
        device::DeviceSession,
        rows::{self, Change, Kind},
    },
    from_json, text, to_json,
};

fn pending_scope(chat: &str, sender: &str) -> Vec<u8> {
    [chat.as_bytes(), b"\0", sender.as_bytes()].concat()
}

impl DeviceSession {
    /// A mapping in both directions. A phone number that moved to another identity is no longer found under the old one.
    fn mapping_changes(&self, entry: &LidPnMappingEntry) -> Result<[Change; 2]> {
        Ok([
            self.put_of(Kind::LidMapping, b"", entry.lid.as_bytes(), 0, &to_json(entry)?)?,
            self.put_of(Kind::PnMapping, b"", entry.phone_number.as_bytes(), 0, entry.lid.as_bytes())?,
        ])
    }
}

#[async_trait]
impl ProtocolStore for DeviceSession {
    async fn get_sender_key_devices(&self, group_jid: &str) -> Result<Vec<(String, bool)>> {
        let rows = self.list(Kind::SenderKeyDevice, Some(group_jid.as_bytes())).await?;
        rows.into_iter().map(|(row, _)| Ok((text(row.name)?, row.value == [1]))).collect()
    }

    async fn set_sender_key_status(&self, group_jid: &str, entries: &[(&str, bool)]) -> Result<()> {
        let put = |(device, has_key): &(&str, bool)| {
            self.put_of(Kind::SenderKeyDevice, group_jid.as_bytes(), device.as_bytes(), 0, &[u8::from(*has_key)])
        };
        self.change(entries.iter().map(put).collect::<Result<_>>()?).await
    }

    async fn clear_sender_key_devices(&self, group_jid: &str) -> Result<()> {
        let scope = self.scope(Kind::SenderKeyDevice, group_jid.as_bytes());
        self.change(vec![Change::DeleteScope { kind: Kind::SenderKeyDevice, scope }]).await
    }

    async fn delete_sender_key_device_rows(&self, device_jids: &[&str]) -> Result<()> {
        let channel = self.channel();
        let names: Vec<_> =
            device_jids.iter().map(|jid| self.place(Kind::SenderKeyDevice, b"", jid.as_bytes()).name).collect();
        let all = self.read(move |connection| rows::list(connection, channel, Kind::SenderKeyDevice, None)).await?;
        let gone = all.into_iter().filter(|row| names.contains(&row.place.name));
        self.change(gone.map(|row| Change::Delete(row.place)).collect()).await
    }

    async fn clear_all_sender_key_devices(&self) -> Result<()> {
        self.change(vec![Change::DeleteKind(Kind::SenderKeyDevice)]).await
    }

    async fn get_lid_mapping(&self, lid: &str) -> Result<Option<LidPnMappingEntry>> {
        self.get(Kind::LidMapping, b"", lid.as_bytes()).await?.map(|bytes| from_json(&bytes)).transpose()
    }

    async fn get_pn_mapping(&self, phone: &str) -> Result<Option<LidPnMappingEntry>> {
        let Some(lid) = self.get(Kind::PnMapping, b"", phone.as_bytes()).await? else { return Ok(None) };
        let entry = self.get_lid_mapping(&text(lid)?).await?;
        Ok(entry.filter(|entry| entry.phone_number == phone))
    }

    async fn put_lid_mapping(&self, entry: &LidPnMappingEntry) -> Result<()> {
        self.change_whole(self.mapping_changes(entry)?.into()).await
    }

    async fn put_lid_mappings(&self, entries: &[LidPnMappingEntry]) -> Result<()> {
        let mut changes = Vec::with_capacity(2 * entries.len());
        for entry in entries {
            changes.extend(self.mapping_changes(entry)?);
        }
        self.change(changes).await
    }

    async fn get_all_lid_mappings(&self) -> Result<Vec<LidPnMappingEntry>> {
        let rows = self.list(Kind::LidMapping, None).await?;
        rows.iter().map(|(row, _)| from_json(&row.value)).collect()
    }

    async fn save_base_key(&self, address: &str, message_id: &str, base_key: &[u8]) -> Result<()> {
        self.put(Kind::BaseKey, address.as_bytes(), message_id.as_bytes(), base_key).await
    }

    async fn has_same_base_key(&self, address: &str, message_id: &str, current_base_key: &[u8]) -> Result<bool> {
        let saved = self.get(Kind::BaseKey, address.as_bytes(), message_id.as_bytes()).await?;
        Ok(saved.is_some_and(|saved| saved == current_base_key))
    }

    async fn delete_base_key(&self, address: &str, message_id: &str) -> Result<()> {
        self.delete(Kind::BaseKey, address.as_bytes(), message_id.as_bytes()).await
    }

    async fn update_device_list(&self, record: DeviceListRecord) -> Result<()> {
        self.put(Kind::DeviceList, b"", record.user.as_bytes(), &to_json(&record)?).await
    }

    async fn update_device_lists(&self, records: Vec<DeviceListRecord>) -> Result<()> {
        let put = |record: &DeviceListRecord| {
            self.put_of(Kind::DeviceList, b"", record.user.as_bytes(), 0, &to_json(record)?)
        };
        self.change(records.iter().map(put).collect::<Result<_>>()?).await
    }

    async fn get_devices(&self, user: &str) -> Result<Option<DeviceListRecord>> {
        self.get(Kind::DeviceList, b"", user.as_bytes()).await?.map(|bytes| from_json(&bytes)).transpose()
    }

    async fn delete_devices(&self, user: &str) -> Result<()> {
        self.delete(Kind::DeviceList, b"", user.as_bytes()).await
    }

    async fn get_group_metadata(&self, group_jid: &str) -> Result<Option<Vec<u8>>> {
        self.get(Kind::GroupMetadata, b"", group_jid.as_bytes()).await
    }

    async fn put_group_metadata(&self, group_jid: &str, blob: &[u8]) -> Result<()> {
        self.put(Kind::GroupMetadata, b"", group_jid.as_bytes(), blob).await
    }

    async fn delete_group_metadata(&self, group_jid: &str) -> Result<()> {
        self.delete(Kind::GroupMetadata, b"", group_jid.as_bytes()).await
    }

    async fn get_tc_token(&self, jid: &str) -> Result<Option<TcTokenEntry>> {
        self.get(Kind::TcToken, b"", jid.as_bytes()).await?.map(|bytes| from_json(&bytes)).transpose()
    }

    async fn put_tc_token(&self, jid: &str, entry: &TcTokenEntry) -> Result<()> {
        self.put(Kind::TcToken, b"", jid.as_bytes(), &to_json(entry)?).await
    }

    async fn delete_tc_token(&self, jid: &str) -> Result<()> {
        self.delete(Kind::TcToken, b"", jid.as_bytes()).await
    }

    async fn get_all_tc_token_jids(&self) -> Result<Vec<String>> {
        let rows = self.list(Kind::TcToken, None).await?;
        rows.into_iter().map(|(row, _)| text(row.name)).collect()
    }

    async fn delete_expired_tc_tokens(&self, token_cutoff: i64, sender_cutoff: i64) -> Result<u32> {
        let mut gone = Vec::new();
        for (row, _) in self.list(Kind::TcToken, None).await? {
            let entry: TcTokenEntry = from_json(&row.value)?;
            let token_lives = !entry.token.is_empty() && entry.token_timestamp >= token_cutoff;
            let sender_lives = entry.sender_timestamp.is_some_and(|at| at >= sender_cutoff);
            if !token_lives && !sender_lives {
                gone.push(Change::Delete(self.place(Kind::TcToken, b"", &row.name)));
            }
        }
        let count = u32::try_from(gone.len()).unwrap_or(u32::MAX);
        self.change(gone).await?;
        Ok(count)
    }

    async fn touch_tc_token_sender_timestamp(&self, jid: &str, sender_timestamp: i64) -> Result<()> {
        self.merge_tc_token(jid, |there| match there {
            Some(entry) => {
                let latest = entry.sender_timestamp.map_or(sender_timestamp, |at| at.max(sender_timestamp));
                Some(TcTokenEntry { sender_timestamp: Some(latest), ..entry })
            }
            None => Some(TcTokenEntry {
                token: Vec::new(),
                token_timestamp: sender_timestamp,
                sender_timestamp: Some(sender_timestamp),
            }),
        })
        .await
    }

    async fn store_received_tc_token(&self, jid: &str, token: &[u8], token_timestamp: i64) -> Result<()> {
        self.merge_tc_token(jid, |there| {
            let fresher = |entry: &TcTokenEntry| !entry.token.is_empty() && token_timestamp < entry.token_timestamp;
            if there.as_ref().is_some_and(fresher) {
                return None;
            }
            let sender_timestamp = there.and_then(|entry| entry.sender_timestamp);
            Some(TcTokenEntry { token: token.to_vec(), token_timestamp, sender_timestamp })
        })
        .await
    }

    async fn store_sent_message(&self, chat_jid: &str, message_id: &str, payload: &[u8]) -> Result<()> {
        let now = self.now();
        let put = self.put_of(Kind::SentMessage, chat_jid.as_bytes(), message_id.as_bytes(), now, payload)?;
        self.change(vec![put]).await
    }

    async fn take_sent_message(&self, chat_jid: &str, message_id: &str) -> Result<Option<Vec<u8>>> {
        let place = self.place(Kind::SentMessage, chat_jid.as_bytes(), message_id.as_bytes());
        let fence = self.right().fence;
        let taken = self
            .write(move |connection| {
                let found = rows::get(connection, fence.channel, &place)?;
                if found.is_some() {
                    rows::change(connection, &fence, &[Change::Delete(place)])?;
                }
                Ok(found)
            })
            .await?;
        taken.map(|row| Ok(self.open(&row)?.value)).transpose()
    }

    async fn delete_expired_sent_messages(&self, cutoff_timestamp: i64) -> Result<u32> {
        self.expire(Kind::SentMessage, cutoff_timestamp).await
    }

    async fn store_pending_inbound(&self, chat: &str, sender: &str, id: &str, message: &[u8]) -> Result<()> {
        self.store_pending_inbound_batch(&[PendingInboundRow { chat, sender, id, message }]).await
    }

    async fn get_pending_inbound(&self, chat: &str, sender: &str, id: &str) -> Result<Option<Vec<u8>>> {
        self.get(Kind::PendingInbound, &pending_scope(chat, sender), id.as_bytes()).await
    }

    async fn delete_pending_inbound(&self, chat: &str, sender: &str, id: &str) -> Result<()> {
        self.delete_pending_inbound_batch(&[PendingInboundKey { chat, sender, id }]).await
    }

    async fn delete_expired_pending_inbound(&self, cutoff_timestamp: i64) -> Result<u32> {
        self.expire(Kind::PendingInbound, cutoff_timestamp).await
    }

    async fn store_pending_inbound_batch(&self, rows: &[PendingInboundRow<'_>]) -> Result<()> {
        let now = self.now();
        let put = |row: &PendingInboundRow<'_>| {
            let scope = pending_scope(row.chat, row.sender);
            self.put_of(Kind::PendingInbound, &scope, row.id.as_bytes(), now, row.message)
        };
        self.change_whole(rows.iter().map(put).collect::<Result<_>>()?).await
    }

    async fn delete_pending_inbound_batch(&self, keys: &[PendingInboundKey<'_>]) -> Result<()> {
        let delete = |key: &PendingInboundKey<'_>| {
            Change::Delete(self.place(Kind::PendingInbound, &pending_scope(key.chat, key.sender), key.id.as_bytes()))
        };
        self.change(keys.iter().map(delete).collect()).await
    }
}

impl DeviceSession {
    /// Reads, changes and writes one token. Whoever did so in between is seen, and the change made again on what is
    /// there then.
    async fn merge_tc_token(
        &self,
        jid: &str,
        merge: impl Fn(Option<TcTokenEntry>) -> Option<TcTokenEntry> + Send + Sync,
    ) -> Result<()> {
        let place = self.place(Kind::TcToken, b"", jid.as_bytes());
        let fence = self.right().fence;
        loop {
            let there = self.read(move |connection| rows::get(connection, fence.channel, &place)).await?;
            let before = there.as_ref().map(|row| self.open(row).and_then(|row| from_json(&row.value))).transpose()?;
            let Some(after) = merge(before) else { return Ok(()) };
            let put = self.put_of(Kind::TcToken, b"", jid.as_bytes(), 0, &to_json(&after)?)?;
            let done = self
                .write(move |connection| {
                    let is_same = rows::get(connection, fence.channel, &place)? == there;
                    if is_same {
                        rows::change(connection, &fence, &[put])?;
                    }
                    Ok(is_same)
                })
                .await?;
            if done {
                return Ok(());
            }
        }
    }
}
