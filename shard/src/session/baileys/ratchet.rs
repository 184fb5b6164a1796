//! A ratchet in the form of libsignal for Node, turned into the library's own record.

use bytes::Bytes;
use serde_json::{Map, Value};
use whatsapp_rust::wacore::libsignal::protocol::{
    IdentityKey, LegacyIndexedSessionV1, LegacySessionBaseKeyRoleV1, LegacySessionChainCounterV1,
    LegacySessionChainKeyV1, LegacySessionChainRoleV1, LegacySessionChainV1, LegacySessionDispositionV1,
    LegacySessionIndexV1, LegacySessionKeyPairV1, LegacySessionLocalContext, LegacySessionMessageKeyV1,
    LegacySessionPendingPreKeyV1, LegacySessionRatchetV1, LegacySessionRecordV1, LegacySessionV1,
};

use super::json::{bytes, number};

/// What is our own in every ratchet.
#[derive(Clone, Copy)]
pub(super) struct Context {
    pub(super) identity_key: IdentityKey,
    pub(super) registration_id: u32,
}

/// The record, and the identity that the peer has shown.
pub(super) fn record(value: &Value, context: Context) -> Option<(Vec<u8>, [u8; 32])> {
    let sessions = value["_sessions"].as_object()?;
    let mut identity = None;
    let mut indexed = Vec::with_capacity(sessions.len());
    for (key, session) in sessions {
        let index_key = shared(&Value::String(key.clone()))?;
        let session = one(session)?;
        let is_current = matches!(session.index.disposition, LegacySessionDispositionV1::Current);
        if is_current || identity.is_none() {
            let key = &session.index.remote_identity_key;
            identity = key.strip_prefix(&[5]).unwrap_or(key).try_into().ok();
        }
        indexed.push(LegacyIndexedSessionV1 { index_key, session });
    }
    let record = LegacySessionRecordV1::from_indexed_sessions(indexed).ok()?;
    let local =
        LegacySessionLocalContext { identity_key: context.identity_key, registration_id: context.registration_id };
    let record = record.into_session_record(local).ok()?.serialize().ok()?;
    Some((record, identity?))
}

fn shared(value: &Value) -> Option<Bytes> {
    bytes(value).map(Bytes::from)
}

fn one(value: &Value) -> Option<LegacySessionV1> {
    let (ratchet, index) = (&value["currentRatchet"], &value["indexInfo"]);
    let pair = &ratchet["ephemeralKeyPair"];
    let chains = value["_chains"].as_object().map(chains).unwrap_or_else(|| Some(Vec::new()))?;
    let role = LegacySessionBaseKeyRoleV1::try_from(number(&index["baseKeyType"])?).ok()?;
    Some(LegacySessionV1 {
        registration_id: number(&value["registrationId"]).unwrap_or_default(),
        ratchet: LegacySessionRatchetV1 {
            key_pair: LegacySessionKeyPairV1 { public: shared(&pair["pubKey"])?, private: shared(&pair["privKey"])? },
            last_remote_ephemeral_key: shared(&ratchet["lastRemoteEphemeralKey"])?,
            previous_counter: ratchet["previousCounter"].as_i64().unwrap_or_default(),
            root_key: shared(&ratchet["rootKey"])?,
        },
        index: LegacySessionIndexV1 {
            base_key: shared(&index["baseKey"])?,
            base_key_role: role,
            disposition: LegacySessionDispositionV1::from_closed_timestamp(index["closed"].as_i64()?).ok()?,
            used_at_ms: index["used"].as_u64().unwrap_or_default(),
            created_at_ms: index["created"].as_u64().unwrap_or_default(),
            remote_identity_key: shared(&index["remoteIdentityKey"])?,
        },
        chains,
        pending_pre_key: pending(&value["pendingPreKey"]),
    })
}

fn chains(chains: &Map<String, Value>) -> Option<Vec<LegacySessionChainV1>> {
    let chain = |(key, chain): (&String, &Value)| {
        let role = LegacySessionChainRoleV1::try_from(number(&chain["chainType"])?).ok()?;
        let skipped = chain["messageKeys"].as_object();
        let skipped = skipped
            .into_iter()
            .flatten()
            .map(|(index, seed)| Some(LegacySessionMessageKeyV1 { index: index.parse().ok()?, seed: shared(seed)? }));
        Some(LegacySessionChainV1 {
            ratchet_key: shared(&Value::String(key.clone()))?,
            role,
            chain_key: LegacySessionChainKeyV1 {
                counter: LegacySessionChainCounterV1::new(chain["chainKey"]["counter"].as_i64()?).ok()?,
                key: shared(&chain["chainKey"]["key"]),
            },
            message_keys: skipped.collect::<Option<_>>()?,
        })
    };
    chains.iter().map(chain).collect()
}

fn pending(value: &Value) -> Option<LegacySessionPendingPreKeyV1> {
    Some(LegacySessionPendingPreKeyV1 {
        pre_key_id: number(&value["preKeyId"]),
        signed_pre_key_id: number(&value["signedKeyId"])?,
        base_key: shared(&value["baseKey"])?,
    })
}
