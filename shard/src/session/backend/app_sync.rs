//! App state: its keys, versions and mutation MACs.

use std::collections::HashMap;

use async_trait::async_trait;
use whatsapp_rust::wacore::{
    appstate::{hash::HashState, processor::AppStateMutationMAC},
    store::{
        error::Result,
        traits::{AppStateSyncKey, AppSyncStore},
    },
};

use super::{
    super::{
        device::DeviceSession,
        rows::{self, Change, Kind},
    },
    from_json, to_json,
};

const LATEST: &[u8] = b"latest";

#[async_trait]
impl AppSyncStore for DeviceSession {
    async fn get_sync_key(&self, key_id: &[u8]) -> Result<Option<AppStateSyncKey>> {
        self.get(Kind::SyncKey, b"", key_id).await?.map(|bytes| from_json(&bytes)).transpose()
    }

    async fn set_sync_key(&self, key_id: &[u8], key: AppStateSyncKey) -> Result<()> {
        let key = self.put_of(Kind::SyncKey, b"", key_id, 0, &to_json(&key)?)?;
        let latest = self.put_of(Kind::SyncKeyLatest, b"", LATEST, 0, key_id)?;
        self.change_whole(vec![key, latest]).await
    }

    async fn get_version(&self, name: &str) -> Result<HashState> {
        let found = self.get(Kind::SyncVersion, b"", name.as_bytes()).await?;
        Ok(found.map(|bytes| from_json(&bytes)).transpose()?.unwrap_or_default())
    }

    async fn set_version(&self, name: &str, state: HashState) -> Result<()> {
        self.put(Kind::SyncVersion, b"", name.as_bytes(), &to_json(&state)?).await
    }

    async fn put_mutation_macs(&self, name: &str, _version: u64, mutations: &[AppStateMutationMAC]) -> Result<()> {
        let put = |mac: &AppStateMutationMAC| {
            self.put_of(Kind::MutationMac, name.as_bytes(), &mac.index_mac, 0, &mac.value_mac)
        };
        self.change(mutations.iter().map(put).collect::<Result<_>>()?).await
    }

    async fn get_mutation_mac(&self, name: &str, index_mac: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(Kind::MutationMac, name.as_bytes(), index_mac).await
    }

    async fn get_mutation_macs(&self, name: &str, index_macs: &[[u8; 32]]) -> Result<HashMap<[u8; 32], Vec<u8>>> {
        let channel = self.channel();
        let place = |mac: &[u8; 32]| self.place(Kind::MutationMac, name.as_bytes(), mac);
        let places: Vec<_> = index_macs.iter().map(place).collect();
        let found = self
            .read(move |connection| {
                let found = places.iter().map(|place| rows::get(connection, channel, place));
                found.collect::<std::result::Result<Vec<_>, _>>()
            })
            .await?;
        let rows = index_macs.iter().zip(found).filter_map(|(mac, row)| row.map(|row| (*mac, row)));
        rows.map(|(mac, row)| Ok((mac, self.open(&row)?.value))).collect()
    }

    async fn delete_mutation_macs(&self, name: &str, index_macs: &[Vec<u8>]) -> Result<()> {
        let delete = |mac: &Vec<u8>| Change::Delete(self.place(Kind::MutationMac, name.as_bytes(), mac));
        self.change(index_macs.iter().map(delete).collect()).await
    }

    async fn clear_mutation_macs(&self, name: &str) -> Result<()> {
        let scope = self.scope(Kind::MutationMac, name.as_bytes());
        self.change(vec![Change::DeleteScope { kind: Kind::MutationMac, scope }]).await
    }

    async fn get_latest_sync_key_id(&self) -> Result<Option<Vec<u8>>> {
        self.get(Kind::SyncKeyLatest, b"", LATEST).await
    }
}
