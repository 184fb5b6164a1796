//! The server's identity: its long-lived key and the chain that vouches for it.
//!
//! The chain is signed in earnest, with a root of its own: a client that holds it against the platform's root refuses it,
//! and one that is told of this root accepts it.

use buffa::{Message as _, MessageField};
use wacore::{crypto::generate_curve_key_pair, libsignal::protocol::KeyPair};
use waproto::whatsapp::{
    CertChain,
    cert_chain::{NoiseCertificate, noise_certificate::Details},
};

/// From the spring of 2024 to that of 2033.
const VALID: (u64, u64) = (1_711_929_600, 1_995_926_400);

/// The keys of one simulator.
pub(super) struct Identity {
    pub(super) key: KeyPair,
    pub(super) chain: Vec<u8>,
    root: [u8; 32],
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    pub(super) fn new() -> Self {
        let (root, intermediate, key) =
            (generate_curve_key_pair(), generate_curve_key_pair(), generate_curve_key_pair());
        let vouched = |serial, issuer_serial, subject: &KeyPair, by: &KeyPair| {
            let details = Details {
                serial: Some(serial),
                issuer_serial: Some(issuer_serial),
                key: Some(public(subject).to_vec()),
                not_before: Some(VALID.0),
                not_after: Some(VALID.1),
            };
            let details = details.encode_to_vec();
            MessageField::some(NoiseCertificate { signature: Some(sign(by, &details)), details: Some(details) })
        };
        let chain =
            CertChain { intermediate: vouched(1, 0, &intermediate, &root), leaf: vouched(2, 1, &key, &intermediate) };
        Self { chain: chain.encode_to_vec(), root: public(&root), key }
    }

    /// What a client has to trust.
    pub(super) fn root(&self) -> [u8; 32] {
        self.root
    }
}

/// The half of a key that others know.
pub(super) fn public(key: &KeyPair) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(key.public_key.public_key_bytes());
    bytes
}

/// Signs as the platform does.
pub(super) fn sign(key: &KeyPair, message: &[u8]) -> Vec<u8> {
    let signature = key.private_key.calculate_signature(message, &mut rand_signal::rng());
    signature.map(|signature| signature.to_vec()).unwrap_or_else(|error| panic!("a fresh key signs: {error}"))
}
