//! A phone's end of the encryption: sessions with devices, and a key of its own for each group.

use rand_signal::rngs::StdRng;
use wacore::{
    crypto::generate_curve_key_pair,
    libsignal::{
        protocol::{
            CiphertextMessage, GenericSignedPreKey as _, IdentityKey, IdentityKeyPair, KeyPair, PreKeyBundle, PreKeyId,
            PreKeyRecord, PreKeySignalMessage, PreKeyStore as _, ProtocolAddress, SenderKeyDistributionMessage,
            SessionStore as _, SignalMessage, SignalProtocolError, SignedPreKeyId, SignedPreKeyRecord, Timestamp,
            UsePQRatchet, create_sender_key_distribution_message, group_decrypt, group_encrypt, message_decrypt_prekey,
            message_decrypt_signal, message_encrypt, process_prekey_bundle, process_sender_key_distribution_message,
        },
        store::sender_key_name::SenderKeyName,
    },
};
use wacore_binary::Node;

use super::{
    PhoneError,
    store::{Identities, PreKeys, SenderKeys, Sessions, SignedPreKey},
};
use crate::whatsapp::{
    account::Bundle,
    address::Address,
    certificate::{public, sign},
    node::child_bytes,
    query::keys::{key_node, read_key},
};

/// How many strangers may write to a phone before its one-time keys are used up; after that they do without.
const ONE_TIME_KEYS: u32 = 20;
/// The id of the one signed key.
const SIGNED: u32 = 1;

/// What a phone keeps to read and to write.
pub(super) struct Signal {
    sessions: Sessions,
    identities: Identities,
    pre_keys: PreKeys,
    signed: SignedPreKey,
    sender_keys: SenderKeys,
    rng: StdRng,
}

impl Signal {
    /// The keys of a new phone, and what it leaves with the server.
    pub(super) fn new(identity: &KeyPair, registration: u32) -> (Self, Bundle) {
        let signed = generate_curve_key_pair();
        let signature = sign(identity, &signed.public_key.serialize());
        let mut pre_keys = PreKeys::default();
        let mut one_time = std::collections::VecDeque::new();
        for id in 1..=ONE_TIME_KEYS {
            let key = generate_curve_key_pair();
            one_time.push_back(key_node("key", id, &public(&key), None));
            pre_keys.put(id, PreKeyRecord::new(PreKeyId::from(id), &key));
        }
        let bundle = Bundle {
            registration: registration.to_be_bytes().to_vec(),
            identity: public(identity).to_vec(),
            signed: Some(key_node("skey", SIGNED, &public(&signed), Some(&signature))),
            one_time,
            device_identity: Vec::new(),
        };
        let own = IdentityKeyPair::new(IdentityKey::new(identity.public_key), identity.private_key.clone());
        let record =
            SignedPreKeyRecord::new(SignedPreKeyId::from(SIGNED), Timestamp::from_epoch_millis(0), &signed, &signature);
        let signal = Self {
            sessions: Sessions::default(),
            identities: Identities::new(own, registration),
            pre_keys,
            signed: SignedPreKey(record),
            sender_keys: SenderKeys::default(),
            rng: rand_signal::make_rng(),
        };
        (signal, bundle)
    }

    pub(super) async fn has_session(&self, with: &Address) -> bool {
        self.sessions.has_session(&protocol_address(with)).await.unwrap_or_default()
    }

    pub(super) fn forget_session(&mut self, with: &Address) {
        self.sessions.forget(&protocol_address(with));
    }

    /// Begins a session with a device from the keys that it left.
    pub(super) async fn begin(&mut self, with: &Address, keys: &[Node]) -> Result<(), PhoneError> {
        let bundle = read_bundle(with, keys).ok_or(PhoneError::NoKeys)?;
        let address = protocol_address(with);
        let begun = process_prekey_bundle(
            &address,
            &mut self.sessions,
            &mut self.identities,
            &bundle,
            &mut self.rng,
            UsePQRatchet::No,
        );
        begun.await.map(drop).map_err(PhoneError::from)
    }

    /// Encrypts for one device: the kind of the message, and its bytes.
    pub(super) async fn encrypt(&mut self, to: &Address, plain: &[u8]) -> Result<(&'static str, Vec<u8>), PhoneError> {
        let address = protocol_address(to);
        let sealed = message_encrypt(plain, &address, &mut self.sessions, &mut self.identities).await?;
        let kind = if matches!(sealed, CiphertextMessage::PreKeySignalMessage(_)) { "pkmsg" } else { "msg" };
        Ok((kind, sealed.serialize().to_vec()))
    }

    /// Reads what one device encrypted for this one.
    pub(super) async fn decrypt(&mut self, from: &Address, kind: &str, sealed: &[u8]) -> Result<Vec<u8>, PhoneError> {
        let address = protocol_address(from);
        if kind == "pkmsg" {
            let message = PreKeySignalMessage::try_from(sealed)?;
            let read = message_decrypt_prekey(
                &message,
                &address,
                &mut self.sessions,
                &mut self.identities,
                &mut self.pre_keys,
                &self.signed,
                &mut self.rng,
                UsePQRatchet::No,
            );
            let read = read.await?;
            if let Some(used) = read.consumed_prekey_id {
                self.pre_keys.remove_pre_key(used).await?;
            }
            return Ok(read.plaintext);
        }
        let message = SignalMessage::try_from(sealed)?;
        let (sessions, identities) = (&mut self.sessions, &mut self.identities);
        Ok(message_decrypt_signal(&message, &address, sessions, identities, &mut self.rng).await?.plaintext)
    }

    /// Reads what a member encrypted for a group.
    pub(super) async fn decrypt_group(
        &mut self,
        group: &str,
        from: &Address,
        sealed: &[u8],
    ) -> Result<Vec<u8>, PhoneError> {
        Ok(group_decrypt(sealed, &mut self.sender_keys, &sender_key(group, from)).await?)
    }

    /// Encrypts for a group: the message, and the key that members need to read it.
    pub(super) async fn encrypt_group(
        &mut self,
        group: &str,
        me: &Address,
        plain: &[u8],
    ) -> Result<(Vec<u8>, Vec<u8>), PhoneError> {
        let name = sender_key(group, me);
        let key = create_sender_key_distribution_message(&name, &mut self.sender_keys, &mut self.rng).await?;
        let sealed = group_encrypt(&mut self.sender_keys, &name, plain, &mut self.rng).await?;
        Ok((sealed.serialized().to_vec(), key.serialized().to_vec()))
    }

    /// Learns a member's key.
    pub(super) async fn learn(&mut self, group: &str, from: &Address, key: &[u8]) -> Result<(), PhoneError> {
        let key = SenderKeyDistributionMessage::try_from(key)?;
        Ok(process_sender_key_distribution_message(&sender_key(group, from), &key, &mut self.sender_keys).await?)
    }

    pub(super) fn registration(&self) -> u32 {
        self.identities.registration
    }

    /// Keys for one who could not read: without a one-time key, for those lie with the server.
    pub(super) fn introduction(&self) -> Result<[Node; 2], PhoneError> {
        let record = &self.signed.0;
        let (value, signature) = (record.public_key()?, record.signature()?);
        let identity = crate::whatsapp::node::el("identity");
        Ok([
            identity.bytes(self.identities.own.public_key().public_key_bytes().to_vec()).build(),
            key_node("skey", SIGNED, value.public_key_bytes(), Some(&signature)),
        ])
    }
}

fn protocol_address(address: &Address) -> ProtocolAddress {
    ProtocolAddress::new(&address.number, u32::from(address.device).into())
}

fn sender_key(group: &str, member: &Address) -> SenderKeyName {
    SenderKeyName::from_parts(group, &member.to_string())
}

fn read_bundle(of: &Address, keys: &[Node]) -> Option<PreKeyBundle> {
    use wacore::libsignal::protocol::PublicKey;

    let find = |tag: &str| keys.iter().find(|node| node.tag == tag);
    let point = |bytes: &[u8]| PublicKey::from_djb_public_key_bytes(bytes).ok();
    let bytes = |tag: &str| find(tag).map(crate::whatsapp::node::bytes);
    let registration = u32::from_be_bytes(bytes("registration")?.try_into().ok()?);
    let (id, signed, _) = read_key(find("skey")?)?;
    let signature = child_bytes(find("skey")?, "signature");
    let one_time = find("key").and_then(read_key).and_then(|(id, key, _)| Some((PreKeyId::from(id), point(&key)?)));
    let identity = IdentityKey::new(point(&bytes("identity")?)?);
    let device = u32::from(of.device).into();
    PreKeyBundle::new(registration, device, one_time, SignedPreKeyId::from(id), point(&signed)?, signature, identity)
        .ok()
}

impl From<SignalProtocolError> for PhoneError {
    fn from(error: SignalProtocolError) -> Self {
        Self::Signal(error.to_string())
    }
}
