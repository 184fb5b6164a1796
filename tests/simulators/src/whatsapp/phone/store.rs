//! What a phone's Signal implementation keeps, in memory: a phone of the simulator never restarts.

use std::collections::HashMap;

use async_trait::async_trait;
use wacore::libsignal::{
    protocol::{
        Direction, IdentityChange, IdentityKey, IdentityKeyPair, IdentityKeyStore, PreKeyId, PreKeyRecord, PreKeyStore,
        ProtocolAddress, SenderKeyRecord, SenderKeyStore, SessionRecord, SessionStore, SignalProtocolError,
        SignedPreKeyId, SignedPreKeyRecord, SignedPreKeyStore,
    },
    store::sender_key_name::SenderKeyName,
};

type Result<T> = std::result::Result<T, SignalProtocolError>;

#[derive(Default)]
pub(super) struct Sessions(HashMap<String, SessionRecord>);

impl Sessions {
    pub(super) fn forget(&mut self, address: &ProtocolAddress) {
        self.0.remove(address.as_str());
    }
}

#[async_trait]
impl SessionStore for Sessions {
    async fn load_session(&self, address: &ProtocolAddress) -> Result<Option<SessionRecord>> {
        Ok(self.0.get(address.as_str()).cloned())
    }

    async fn has_session(&self, address: &ProtocolAddress) -> Result<bool> {
        Ok(self.0.contains_key(address.as_str()))
    }

    async fn store_session(&mut self, address: &ProtocolAddress, record: SessionRecord) -> Result<()> {
        self.0.insert(address.as_str().to_owned(), record);
        Ok(())
    }
}

/// Everybody is believed: whoever relinks a device has a new identity, and that is what tests do.
pub(super) struct Identities {
    pub(super) own: IdentityKeyPair,
    pub(super) registration: u32,
    known: HashMap<String, IdentityKey>,
}

impl Identities {
    pub(super) fn new(own: IdentityKeyPair, registration: u32) -> Self {
        Self { own, registration, known: HashMap::new() }
    }
}

#[async_trait]
impl IdentityKeyStore for Identities {
    async fn get_identity_key_pair(&self) -> Result<IdentityKeyPair> {
        Ok(self.own.clone())
    }

    async fn get_local_registration_id(&self) -> Result<u32> {
        Ok(self.registration)
    }

    async fn save_identity(&mut self, address: &ProtocolAddress, identity: &IdentityKey) -> Result<IdentityChange> {
        let before = self.known.insert(address.as_str().to_owned(), *identity);
        Ok(IdentityChange::from_changed(before.is_some_and(|before| before != *identity)))
    }

    async fn is_trusted_identity(&self, _: &ProtocolAddress, _: &IdentityKey, _: Direction) -> Result<bool> {
        Ok(true)
    }

    async fn get_identity(&self, address: &ProtocolAddress) -> Result<Option<IdentityKey>> {
        Ok(self.known.get(address.as_str()).copied())
    }
}

#[derive(Default)]
pub(super) struct PreKeys(HashMap<u32, PreKeyRecord>);

impl PreKeys {
    pub(super) fn put(&mut self, id: u32, record: PreKeyRecord) {
        self.0.insert(id, record);
    }
}

#[async_trait]
impl PreKeyStore for PreKeys {
    async fn get_pre_key(&self, id: PreKeyId) -> Result<PreKeyRecord> {
        self.0.get(&u32::from(id)).cloned().ok_or(SignalProtocolError::InvalidPreKeyId)
    }

    async fn save_pre_key(&mut self, id: PreKeyId, record: &PreKeyRecord) -> Result<()> {
        self.0.insert(u32::from(id), record.clone());
        Ok(())
    }

    async fn remove_pre_key(&mut self, id: PreKeyId) -> Result<()> {
        self.0.remove(&u32::from(id));
        Ok(())
    }
}

pub(super) struct SignedPreKey(pub(super) SignedPreKeyRecord);

#[async_trait]
impl SignedPreKeyStore for SignedPreKey {
    async fn get_signed_pre_key(&self, _: SignedPreKeyId) -> Result<SignedPreKeyRecord> {
        Ok(self.0.clone())
    }

    async fn save_signed_pre_key(&mut self, _: SignedPreKeyId, record: &SignedPreKeyRecord) -> Result<()> {
        self.0 = record.clone();
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct SenderKeys(HashMap<String, SenderKeyRecord>);

#[async_trait]
impl SenderKeyStore for SenderKeys {
    async fn store_sender_key(&mut self, name: &SenderKeyName, record: SenderKeyRecord) -> Result<()> {
        self.0.insert(name.cache_key().to_owned(), record);
        Ok(())
    }

    async fn load_sender_key(&self, name: &SenderKeyName) -> Result<Option<SenderKeyRecord>> {
        Ok(self.0.get(name.cache_key()).cloned())
    }
}
