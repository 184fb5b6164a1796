//! The signature by which a receiver knows that a request is ours: HMAC-SHA256 over `<unix seconds>.<body>`.
//!
//! The time is signed with the body, so that a recorded request can't be replayed later. With two secrets there are two
//! `v1` entries: a receiver that knows either one accepts, which is how a secret is changed without a gap.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::secret::Secret;

/// The header's name.
pub const SIGNATURE_HEADER: &str = "shardvisor-signature";

/// The header's value: `t=<seconds>,v1=<hex>[,v1=<hex>…]`; `None` when there is no secret to sign with.
pub fn sign(secrets: &[Secret], unix_seconds: i64, body: &[u8]) -> Option<String> {
    if secrets.is_empty() {
        return None;
    }
    let time = unix_seconds.to_string();
    let mut value = format!("t={time}");
    for secret in secrets {
        // HMAC takes a key of any length: the error of this constructor can't happen.
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).ok()?;
        mac.update(time.as_bytes());
        mac.update(b".");
        mac.update(body);
        value.push_str(",v1=");
        push_hex(&mut value, &mac.finalize().into_bytes());
    }
    Some(value)
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract: E1. The expected value is what `hmac.new(b"whsec_1", b"1700000000.{}", "sha256")` gives in Python.
    #[test]
    fn a_signature_is_the_hmac_of_time_and_body() {
        let one = sign(&[Secret::new("whsec_1")], 1_700_000_000, b"{}").expect("signed");
        assert_eq!(one, "t=1700000000,v1=c8cf6ed9fd9120874a1792902ffdf5b69559118b76d10974da8a20cf21f94bc5");
        let two = sign(&[Secret::new("whsec_1"), Secret::new("whsec_2")], 1_700_000_000, b"{}").expect("signed");
        assert!(two.starts_with(&one) && two.matches(",v1=").count() == 2, "{two}");
        assert_ne!(sign(&[Secret::new("whsec_1")], 1_700_000_001, b"{}"), Some(one));
        assert_eq!(sign(&[], 1_700_000_000, b"{}"), None);
    }
}
