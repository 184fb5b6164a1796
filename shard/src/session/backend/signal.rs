//! Identities, sessions, pre-keys and sender keys.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use whatsapp_rust::wacore::store::{
    error::{Result, StoreError},
    traits::SignalStore,
};

use super::super::{
    device::DeviceSession,
    rows::{self, Change, Kind},
};

/// The user of an address `user@server` or `user:device@server`: the scope by which all of its devices are found.
fn user(address: &str) -> &[u8] {
    address.split(['@', ':']).next().unwrap_or_default().as_bytes()
}

fn key_id(name: &[u8]) -> Result<u32> {
    let bytes = name.try_into().map_err(|_| StoreError::Validation("a stored key id has no four bytes".to_owned()))?;
    Ok(u32::from_be_bytes(bytes))
}

/// Marks a pre-key that the server has.
const UPLOADED: i64 = 1;

#[async_trait]
impl SignalStore for DeviceSession {
    async fn put_identity(&self, address: &str, key: [u8; 32]) -> Result<()> {
        self.put(Kind::Identity, user(address), address.as_bytes(), &key).await
    }

    async fn put_identities_batch(&self, identities: &[(Arc<str>, [u8; 32])]) -> Result<()> {
        let put = |(address, key): &(Arc<str>, [u8; 32])| {
            self.put_of(Kind::Identity, user(address), address.as_bytes(), 0, key)
        };
        self.change(identities.iter().map(put).collect::<Result<_>>()?).await
    }

    async fn load_identity(&self, address: &str) -> Result<Option<[u8; 32]>> {
        let found = self.get(Kind::Identity, user(address), address.as_bytes()).await?;
        let key = found.map(|bytes| bytes.try_into());
        key.transpose().map_err(|_| StoreError::Validation("a stored identity has no 32 bytes".to_owned()))
    }

    async fn delete_identity(&self, address: &str) -> Result<()> {
        self.delete(Kind::Identity, user(address), address.as_bytes()).await
    }

    async fn get_session(&self, address: &str) -> Result<Option<Bytes>> {
        Ok(self.get(Kind::Session, user(address), address.as_bytes()).await?.map(Bytes::from))
    }

    async fn put_session(&self, address: &str, session: &[u8]) -> Result<()> {
        self.put(Kind::Session, user(address), address.as_bytes(), session).await
    }

    async fn put_sessions_batch(&self, sessions: &[(Arc<str>, Bytes)]) -> Result<()> {
        let put = |(address, session): &(Arc<str>, Bytes)| {
            self.put_of(Kind::Session, user(address), address.as_bytes(), 0, session)
        };
        self.change(sessions.iter().map(put).collect::<Result<_>>()?).await
    }

    async fn delete_session(&self, address: &str) -> Result<()> {
        self.delete(Kind::Session, user(address), address.as_bytes()).await
    }

    async fn has_signal_state_for_user(&self, user: &str) -> Result<bool> {
        let channel = self.channel();
        let of = |kind| (kind, self.scope(kind, user.as_bytes()));
        let places = [of(Kind::Session), of(Kind::Identity)];
        self.read(move |connection| {
            for (kind, scope) in &places {
                if rows::has_scope(connection, channel, *kind, scope)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }

    async fn store_prekey(&self, id: u32, record: &[u8], uploaded: bool) -> Result<()> {
        let change = self.put_of(Kind::PreKey, b"", &id.to_be_bytes(), i64::from(uploaded), record)?;
        self.change(vec![change]).await
    }

    async fn store_prekeys_batch(&self, keys: &[(u32, Bytes)], uploaded: bool) -> Result<()> {
        let put = |(id, record): &(u32, Bytes)| {
            self.put_of(Kind::PreKey, b"", &id.to_be_bytes(), i64::from(uploaded), record)
        };
        self.change(keys.iter().map(put).collect::<Result<_>>()?).await
    }

    async fn load_prekey(&self, id: u32) -> Result<Option<Bytes>> {
        Ok(self.get(Kind::PreKey, b"", &id.to_be_bytes()).await?.map(Bytes::from))
    }

    async fn load_prekeys_batch(&self, ids: &[u32]) -> Result<Vec<(u32, Bytes)>> {
        let channel = self.channel();
        let places: Vec<_> = ids.iter().map(|id| self.place(Kind::PreKey, b"", &id.to_be_bytes())).collect();
        let found = self
            .read(move |connection| {
                let found = places.iter().map(|place| rows::get(connection, channel, place));
                found.collect::<std::result::Result<Vec<_>, _>>()
            })
            .await?;
        let rows = ids.iter().zip(found).filter_map(|(id, row)| row.map(|row| (*id, row)));
        rows.map(|(id, row)| Ok((id, Bytes::from(self.open(&row)?.value)))).collect()
    }

    async fn mark_prekeys_uploaded(&self, ids: &[u32]) -> Result<()> {
        let mark = |id: &u32| Change::Mark { place: self.place(Kind::PreKey, b"", &id.to_be_bytes()), at: UPLOADED };
        self.change(ids.iter().map(mark).collect()).await
    }

    async fn remove_prekey(&self, id: u32) -> Result<()> {
        self.delete(Kind::PreKey, b"", &id.to_be_bytes()).await
    }

    async fn get_max_prekey_id(&self) -> Result<u32> {
        let keys = self.list(Kind::PreKey, None).await?;
        keys.iter().try_fold(0, |most, (row, _)| Ok(key_id(&row.name)?.max(most)))
    }

    async fn store_signed_prekey(&self, id: u32, record: &[u8]) -> Result<()> {
        self.put(Kind::SignedPreKey, b"", &id.to_be_bytes(), record).await
    }

    async fn load_signed_prekey(&self, id: u32) -> Result<Option<Vec<u8>>> {
        self.get(Kind::SignedPreKey, b"", &id.to_be_bytes()).await
    }

    async fn load_all_signed_prekeys(&self) -> Result<Vec<(u32, Vec<u8>)>> {
        let keys = self.list(Kind::SignedPreKey, None).await?;
        keys.into_iter().map(|(row, _)| Ok((key_id(&row.name)?, row.value))).collect()
    }

    async fn remove_signed_prekey(&self, id: u32) -> Result<()> {
        self.delete(Kind::SignedPreKey, b"", &id.to_be_bytes()).await
    }

    async fn put_sender_key(&self, address: &str, record: &[u8]) -> Result<()> {
        self.put(Kind::SenderKey, b"", address.as_bytes(), record).await
    }

    async fn put_sender_keys_batch(&self, sender_keys: &[(Arc<str>, Bytes)]) -> Result<()> {
        let put =
            |(address, record): &(Arc<str>, Bytes)| self.put_of(Kind::SenderKey, b"", address.as_bytes(), 0, record);
        self.change(sender_keys.iter().map(put).collect::<Result<_>>()?).await
    }

    async fn get_sender_key(&self, address: &str) -> Result<Option<Vec<u8>>> {
        self.get(Kind::SenderKey, b"", address.as_bytes()).await
    }

    async fn delete_sender_key(&self, address: &str) -> Result<()> {
        self.delete(Kind::SenderKey, b"", address.as_bytes()).await
    }
}
