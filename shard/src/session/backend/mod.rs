//! The library's storage traits, on a session's rows. One file a trait.
//!
//! What the library calls a batch is one piece of the writer's work and one commit; a default that would loop over single
//! writes is not left in place where it costs a commit a row.

mod app_sync;
mod protocol;
mod secrets;
mod signal;

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use whatsapp_rust::wacore::store::{
    Device,
    error::{Result, StoreError},
    traits::DeviceStore,
};

use super::{device::DeviceSession, rows::Kind};

/// The one device of a session.
const DEVICE: &[u8] = b"device";

pub(super) fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| StoreError::Serialization(Box::new(error)))
}

pub(super) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    // The error's text would repeat parts of the value.
    serde_json::from_slice(bytes)
        .map_err(|error| StoreError::Validation(format!("a stored value does not parse ({:?})", error.classify())))
}

pub(super) fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| StoreError::Validation("a stored name is not UTF-8".to_owned()))
}

#[async_trait]
impl DeviceStore for DeviceSession {
    async fn save(&self, device: &Device) -> Result<()> {
        self.put(Kind::Device, b"", DEVICE, &to_json(device)?).await
    }

    async fn load(&self) -> Result<Option<Device>> {
        self.get(Kind::Device, b"", DEVICE).await?.map(|bytes| from_json(&bytes)).transpose()
    }

    async fn exists(&self) -> Result<bool> {
        Ok(self.get(Kind::Device, b"", DEVICE).await?.is_some())
    }

    async fn create(&self) -> Result<i32> {
        if !self.exists().await? {
            self.save(&Device::new()).await?;
        }
        Ok(1)
    }
}
