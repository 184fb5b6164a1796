//! Links by code and media that is uploaded again: the two secrets that a phone shares with a device outside of messages.

use std::sync::Arc;

use tokio::sync::oneshot;
use wacore::{
    crypto::{generate_curve_key_pair, hkdf_sha256},
    libsignal::{
        crypto::{aes_256_gcm_decrypt, aes_256_gcm_encrypt},
        protocol::{KeyPair, PublicKey},
    },
    pair_code::PairCodeUtils,
};
use wacore_binary::Node;
use waproto::whatsapp::{MediaRetryNotification, media_retry_notification::ResultType};

use super::{actor::Actor, attachment};
use crate::whatsapp::{
    Server,
    address::Address,
    certificate::public,
    node::{SERVER, attr, bytes, child_bytes, el, now},
    pairing::{self, Code, Pairing, PairingRefused},
};

type Linked = oneshot::Sender<Result<Address, PairingRefused>>;

/// A link by code that is under way.
pub(super) struct Linking {
    ephemeral: KeyPair,
    theirs: [u8; 32],
    reference: String,
    done: Linked,
}

impl Actor {
    /// Somebody types the digits: the device is told, in a way that only one with the same digits understands.
    pub(super) async fn link(&mut self, server: &Arc<Server>, digits: String, done: Linked) {
        let asked = |pairing: &Pairing| {
            let asked = pairing.by_code.clone().filter(|asked| asked.number == self.me.number)?;
            Some((pairing.wire.clone(), asked))
        };
        let Some((wire, asked)) = server.state().pairings.values().find_map(asked) else {
            let _ = done.send(Err(PairingRefused::NobodyAsked));
            return;
        };
        let ephemeral = generate_curve_key_pair();
        let (mine, wrapped) = (public(&ephemeral), asked.wrapped);
        // Keys from digits take long to derive, on purpose.
        let derived = tokio::task::spawn_blocking(move || {
            let theirs = PairCodeUtils::decrypt_primary_ephemeral_pub(&wrapped, &digits).ok()?;
            Some((theirs, PairCodeUtils::encrypt_ephemeral_pub(&mine, &digits)))
        });
        let Some((theirs, wrapped)) = derived.await.ok().flatten() else {
            let _ = done.send(Err(PairingRefused::NotACode));
            return;
        };
        let identity =
            server.state().account(&self.me.number).map(|account| public(&account.identity)).unwrap_or_default();
        let hello = el("link_code_companion_reg").attr("stage", "primary_hello").children([
            el("link_code_pairing_wrapped_primary_ephemeral_pub").bytes(wrapped.to_vec()).build(),
            el("primary_identity_pub").bytes(identity.to_vec()).build(),
            el("link_code_pairing_ref").bytes(asked.reference.clone().into_bytes()).build(),
        ]);
        let notification = el("notification").attr("type", "link_code_companion_reg").attr("from", SERVER);
        let notification = notification.attr("id", server.next_id()).attr("t", now().to_string());
        wire.send(notification.children([hello.build()]).build());
        self.linking = Some(Linking { ephemeral, theirs, reference: asked.reference, done });
    }

    /// The device has answered: what both sides know proves that they saw the same digits.
    pub(super) fn code_finished(&mut self, server: &Arc<Server>, registration: &Node) {
        let Some(linking) = self.linking.take() else { return };
        let reference = String::from_utf8(child_bytes(registration, "link_code_pairing_ref")).unwrap_or_default();
        let account = server.state().account(&self.me.number).map(|account| account.identity.clone());
        let linked =
            account.filter(|_| reference == linking.reference).ok_or(PairingRefused::Gone).and_then(|identity| {
                let code = read(&linking, &identity, registration).ok_or(PairingRefused::WrongCode)?;
                pairing::accept(server, &self.me.number, &code)
            });
        let _ = linking.done.send(linked);
    }

    /// A device can't find media any more: it is uploaded again, if the phone still has it.
    pub(super) fn reupload(&mut self, server: &Arc<Server>, device: &Address, receipt: &Node) {
        let Some(id) = attr(receipt, "id") else { return };
        let received = self.inbox.find(|received| (received.id == id).then(|| Arc::clone(&received.message)));
        let sent = || self.sent.iter().find(|sent| sent.id == id).map(|sent| Arc::new(sent.message.clone()));
        let located = received.or_else(sent).and_then(|message| attachment::locate(&message));
        let lost = server.state().account(&self.me.number).is_none_or(|account| account.lost_media);
        let renewed =
            located.as_ref().filter(|_| !lost).and_then(|media| server.media.renew(media.kind.mms_type(), &media.path));
        let mut answers = Vec::new();
        match located.and_then(|media| seal_answer(&media.key, &id, renewed)) {
            Some((sealed, iv)) => {
                let parts = [el("enc_p").bytes(sealed).build(), el("enc_iv").bytes(iv.to_vec()).build()];
                answers.push(el("encrypt").children(parts).build());
            }
            None => answers.push(el("error").attr("code", "2").build()),
        }
        answers.extend(receipt.get_optional_child("rmr").cloned());
        let notification = el("notification").attr("type", "mediaretry").attr("from", self.me.account()).attr("id", id);
        let notification = notification.attr("t", now().to_string()).children(answers).build();
        server.deliver(&mut server.state(), device, notification);
    }
}

/// What the device sent under the shared secret: its identity, and the secret that the phone proves itself with.
fn read(linking: &Linking, identity: &KeyPair, registration: &Node) -> Option<Code> {
    let sealed = child_bytes(registration, "link_code_pairing_wrapped_key_bundle");
    let (salt, rest) = sealed.split_at_checked(32)?;
    let (iv, rest) = rest.split_at_checked(12)?;
    let agreed = |key: &KeyPair, with: &[u8]| {
        let with = PublicKey::from_djb_public_key_bytes(with).ok()?;
        key.private_key.calculate_agreement(&with).ok()
    };
    let shared = agreed(&linking.ephemeral, &linking.theirs)?;
    let key = hkdf_sha256(&shared, 32, Some(salt), b"link_code_pairing_key_bundle_encryption_key").ok()?;
    let mut bundle = Vec::new();
    aes_256_gcm_decrypt(key.as_slice().try_into().ok()?, iv.try_into().ok()?, b"", rest, &mut bundle).ok()?;
    let (theirs, rest) = bundle.split_at_checked(32)?;
    let (mine, random) = rest.split_at_checked(32)?;
    if mine != public(identity) || theirs != registration.get_optional_child("companion_identity_public").map(bytes)? {
        return None;
    }
    let secret = [&shared[..], &agreed(identity, theirs)?, random].concat();
    let secret = hkdf_sha256(&secret, 32, None, b"adv_secret").ok()?;
    Some(Code { reference: linking.reference.clone(), identity: theirs.to_vec(), secret })
}

fn seal_answer(media_key: &[u8], id: &str, path: Option<String>) -> Option<(Vec<u8>, [u8; 12])> {
    use buffa::Message as _;

    let result = if path.is_some() { ResultType::SUCCESS } else { ResultType::NOT_FOUND };
    let answer = MediaRetryNotification {
        stanza_id: Some(id.to_owned()),
        direct_path: path,
        result: Some(result),
        ..Default::default()
    };
    let key = hkdf_sha256(media_key, 32, None, b"WhatsApp Media Retry Notification").ok()?;
    let iv: [u8; 12] = rand::random();
    let mut sealed = Vec::new();
    let plain = answer.encode_to_vec();
    aes_256_gcm_encrypt(key.as_slice().try_into().ok()?, &iv, id.as_bytes(), &plain, &mut sealed).ok()?;
    Some((sealed, iv))
}
