//! The key of one channel's session, and what is sealed with it.
//!
//! Rows are found by keyed digests of their names, since the names are phone numbers; the name itself lies sealed beside
//! the value. A row opens in its place alone: nobody who can write the file can move one.

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::{
    identity::ChannelId,
    keyring::{Keyring, KeyringError},
};

const NONCE_BYTES: usize = 24;
/// What the key file seals it as.
const WHAT: &str = "session key";

/// A digest that stands for a name.
pub(super) type Blind = [u8; 16];

/// Where a row lies, its name hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: u8,
    pub(super) scope: Blind,
    pub(super) name: Blind,
}

/// A row's name and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) name: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// It was changed, or belongs elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a value does not open: it was changed")]
pub(super) struct Damaged;

/// The key.
pub(super) struct DataKey {
    channel: ChannelId,
    key: Zeroizing<[u8; 32]>,
    rows: XChaCha20Poly1305,
    snapshots: XChaCha20Poly1305,
    names: Zeroizing<[u8; 32]>,
}

impl DataKey {
    /// A new one.
    pub(super) fn make(channel: ChannelId) -> Result<Self, getrandom::Error> {
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *key)?;
        Ok(Self::new(channel, key))
    }

    fn new(channel: ChannelId, key: Zeroizing<[u8; 32]>) -> Self {
        let derived = |what: &str| Zeroizing::new(digest(&key, &[what.as_bytes()]));
        let cipher = |what| XChaCha20Poly1305::new((&*derived(what)).into());
        Self { channel, rows: cipher("rows"), snapshots: cipher("snapshots"), names: derived("names"), key }
    }

    /// Sealed with the key file's newest key.
    pub(super) fn wrap(&self, keyring: &Keyring) -> Result<Vec<u8>, KeyringError> {
        keyring.seal_bytes(self.channel, WHAT, &*self.key)
    }

    /// Opens a wrapped one.
    pub(super) fn unwrap(
        channel: ChannelId,
        keyring: &Keyring,
        key_id: &str,
        sealed: &[u8],
    ) -> Result<Self, KeyringError> {
        let opened = keyring.unseal_bytes(channel, WHAT, key_id, sealed)?;
        let mut key = Zeroizing::new([0; 32]);
        // What the key file opened was written by `wrap`: it has this length.
        let bytes = opened.len().min(32);
        key[..bytes].copy_from_slice(&opened[..bytes]);
        Ok(Self::new(channel, key))
    }

    /// What stands for a name.
    pub(super) fn blind(&self, kind: u8, name: &[u8]) -> Blind {
        let whole = digest(&self.names, &[&[kind], name]);
        let mut blind = [0; 16];
        blind.copy_from_slice(&whole[..16]);
        blind
    }

    /// Seals a row into its place.
    pub(super) fn seal(&self, place: &Place, name: &[u8], value: &[u8]) -> Result<Vec<u8>, Damaged> {
        let mut plain = Zeroizing::new(Vec::with_capacity(2 + name.len() + value.len()));
        let length = u16::try_from(name.len()).map_err(|_| Damaged)?;
        plain.extend_from_slice(&length.to_le_bytes());
        plain.extend_from_slice(name);
        plain.extend_from_slice(value);
        seal(&self.rows, &plain, &self.aad(place))
    }

    /// Opens a row.
    pub(super) fn open(&self, place: &Place, sealed: &[u8]) -> Result<Plain, Damaged> {
        let plain = open(&self.rows, sealed, &self.aad(place))?;
        let (length, rest) = plain.split_at_checked(2).ok_or(Damaged)?;
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let (name, value) = rest.split_at_checked(length).ok_or(Damaged)?;
        Ok(Plain { name: name.to_vec(), value: value.to_vec() })
    }

    /// Seals a snapshot's content under its header.
    pub(super) fn seal_snapshot(&self, header: &[u8], content: &[u8]) -> Result<Vec<u8>, Damaged> {
        seal(&self.snapshots, content, header)
    }

    /// Opens a snapshot's content.
    pub(super) fn open_snapshot(&self, header: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Damaged> {
        open(&self.snapshots, sealed, header)
    }

    fn aad(&self, place: &Place) -> [u8; 49] {
        let mut aad = [0; 49];
        aad[..16].copy_from_slice(self.channel.uuid().as_bytes());
        aad[16] = place.kind;
        aad[17..33].copy_from_slice(&place.scope);
        aad[33..].copy_from_slice(&place.name);
        aad
    }
}

fn seal(cipher: &XChaCha20Poly1305, plain: &[u8], aad: &[u8]) -> Result<Vec<u8>, Damaged> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|_| Damaged)?;
    let sealed = cipher.encrypt(&XNonce::from(nonce), Payload { msg: plain, aad }).map_err(|_| Damaged)?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn open(cipher: &XChaCha20Poly1305, sealed: &[u8], aad: &[u8]) -> Result<Zeroizing<Vec<u8>>, Damaged> {
    let (nonce, sealed) = sealed.split_at_checked(NONCE_BYTES).ok_or(Damaged)?;
    let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| Damaged)?;
    let opened = cipher.decrypt(&XNonce::from(nonce), Payload { msg: sealed, aad }).map_err(|_| Damaged)?;
    Ok(Zeroizing::new(opened))
}

fn digest(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = Zeroizing::new([0; 64]);
    block[..32].copy_from_slice(key);
    // A key that is shorter than HMAC's block is filled up with zeros: it is the same key.
    let mut mac = <Hmac<Sha256> as KeyInit>::new((&*block).into());
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(last: u128) -> DataKey {
        DataKey::make(ChannelId::from_uuid(uuid::Uuid::from_u128(last))).expect("random")
    }

    #[test]
    fn a_row_opens_in_its_place_alone_and_shows_no_name() {
        let key = key(1);
        let place = Place { kind: 1, scope: key.blind(1, b"a"), name: key.blind(1, b"4915") };
        let sealed = key.seal(&place, b"4915", b"secret").expect("sealed");
        assert!(!sealed.windows(4).any(|part| part == b"4915"));
        let opened = key.open(&place, &sealed).expect("opened");
        assert_eq!((opened.name.as_slice(), opened.value.as_slice()), (b"4915".as_slice(), b"secret".as_slice()));
        assert_eq!(key.open(&Place { kind: 2, ..place }, &sealed), Err(Damaged));
        assert_eq!(key.open(&Place { scope: [0; 16], ..place }, &sealed), Err(Damaged));
        let mut changed = sealed.clone();
        changed[40] ^= 1;
        assert_eq!(key.open(&place, &changed), Err(Damaged));
        assert_eq!(super::tests::key(1).open(&place, &sealed), Err(Damaged), "another key");
    }

    #[test]
    fn a_name_has_another_digest_for_each_kind_and_channel() {
        let (one, two) = (key(1), key(2));
        assert_eq!(one.blind(1, b"a"), one.blind(1, b"a"));
        assert_ne!(one.blind(1, b"a"), one.blind(2, b"a"));
        assert_ne!(one.blind(1, b"a"), two.blind(1, b"a"));
    }
}
