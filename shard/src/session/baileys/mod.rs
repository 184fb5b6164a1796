//! A multi-file auth state that Baileys kept, read into a session: nobody has to scan again.
//!
//! Taken are the login, the keys that were handed out, and the ratchets with each peer, which go on where they stood.
//! What is fetched anew or sent again by itself is left: lists of devices, state of the app, senders' keys of groups.
//! From then on the folder must not be used any more: two clients with one ratchet lose messages.

mod json;
mod ratchet;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use whatsapp_rust::{
    Jid,
    wacore::{
        libsignal::{
            protocol::{IdentityKey, KeyPair, PrivateKey, PublicKey},
            store::record_helpers::new_pre_key_record,
        },
        store::{
            Device,
            traits::{AppStateSyncKey, LidPnMappingEntry},
        },
        types::jid::JidExt,
    },
    waproto::{codec::pre_key_record_to_vec, whatsapp as wa},
};

use self::json::{bytes, key_pair, number};
use super::{rows::Kind, transfer::ForeignRow};

/// Why the folder is of no use.
#[derive(Debug, thiserror::Error)]
pub enum BaileysError {
    /// A file can't be read.
    #[error("{path}: {cause}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// Something is missing, or is not what Baileys writes.
    #[error("{path}: {what}")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What.
        what: &'static str,
    },
}

/// A session that another client kept.
pub struct ForeignSession {
    pub(super) rows: Vec<ForeignRow>,
    /// What was not taken, for people.
    pub left_out: Vec<String>,
}

/// Reads the folder.
pub fn read_baileys(dir: &Path) -> Result<ForeignSession, BaileysError> {
    let path = dir.join("creds.json");
    let creds = parse(&path)?;
    let device = device(&creds).map_err(|what| BaileysError::Content { path: path.clone(), what })?;
    let identity = IdentityKey::new(device.identity_key.public_key);
    let context = ratchet::Context { identity_key: identity, registration_id: device.registration_id };
    let saved = serde_json::to_vec(&device);
    let saved = saved.map_err(|_| BaileysError::Content { path, what: "the login can't be written down" })?;
    let mut rows = vec![row(Kind::Device, b"", b"device", saved)];
    let (mut groups, mut unread) = (0, 0);
    let entries =
        fs::read_dir(dir).map_err(|error| BaileysError::File { path: dir.to_owned(), cause: error.to_string() })?;
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        let Some(stem) = name.strip_suffix(".json").filter(|stem| *stem != "creds") else { continue };
        let taken = if let Some(id) = stem.strip_prefix("pre-key-") {
            pre_key(id, &parse(&dir.join(&name))?)
        } else if let Some(peer) = stem.strip_prefix("session-") {
            session(peer, &parse(&dir.join(&name))?, context)
        } else if let Some(id) = stem.strip_prefix("app-state-sync-key-") {
            sync_key(id, &parse(&dir.join(&name))?)
        } else if let Some(phone) = stem.strip_prefix("lid-mapping-").filter(|rest| !rest.ends_with("_reverse")) {
            mapping(phone, &parse(&dir.join(&name))?)
        } else {
            groups += usize::from(stem.starts_with("sender-key-") && !stem.starts_with("sender-key-memory"));
            continue;
        };
        match taken {
            Some(taken) => rows.extend(taken),
            None => unread += 1,
        }
    }
    let mut left_out = Vec::new();
    if groups > 0 {
        left_out.push(format!("{groups} senders' keys of groups: they are sent again"));
    }
    if unread > 0 {
        left_out.push(format!("{unread} files that are not as Baileys writes them: those peers are asked again"));
    }
    Ok(ForeignSession { rows, left_out })
}

fn parse(path: &Path) -> Result<Value, BaileysError> {
    let text =
        fs::read(path).map_err(|error| BaileysError::File { path: path.to_owned(), cause: error.to_string() })?;
    // The error's text would repeat parts of a key.
    serde_json::from_slice(&text).map_err(|_| BaileysError::Content { path: path.to_owned(), what: "is not JSON" })
}

fn row(kind: Kind, scope: &[u8], name: &[u8], value: Vec<u8>) -> ForeignRow {
    ForeignRow { kind, scope: scope.to_vec(), name: name.to_vec(), at: 0, value }
}

/// The login.
fn device(creds: &Value) -> Result<Device, &'static str> {
    let mut device = Device::new();
    let own = |name: &str| creds["me"][name].as_str().and_then(|jid| jid.parse::<Jid>().ok());
    device.pn = Some(own("id").ok_or("holds no account: the device was never linked")?);
    device.lid = own("lid");
    device.push_name = creds["me"]["name"].as_str().unwrap_or_default().to_owned();
    device.registration_id = number(&creds["registrationId"]).ok_or("holds no registration id")?;
    device.noise_key = key_pair(&creds["noiseKey"]).ok_or("holds no noise key")?;
    device.identity_key = key_pair(&creds["signedIdentityKey"]).ok_or("holds no identity key")?;
    let signed = &creds["signedPreKey"];
    device.signed_pre_key = key_pair(&signed["keyPair"]).ok_or("holds no signed pre-key")?;
    device.signed_pre_key_id = number(&signed["keyId"]).ok_or("holds no signed pre-key")?;
    let signature = bytes(&signed["signature"]).and_then(|bytes| bytes.try_into().ok());
    device.signed_pre_key_signature = signature.ok_or("holds no signature of its pre-key")?;
    let secret = bytes(&creds["advSecretKey"]).and_then(|bytes| bytes.try_into().ok());
    device.adv_secret_key = secret.ok_or("holds no secret of the link")?;
    let account = &creds["account"];
    device.account = Some(Arc::new(wa::ADVSignedDeviceIdentity {
        details: Some(bytes(&account["details"]).ok_or("holds no proof of the link")?),
        account_signature_key: bytes(&account["accountSignatureKey"]),
        account_signature: Some(bytes(&account["accountSignature"]).ok_or("holds no proof of the link")?),
        device_signature: Some(bytes(&account["deviceSignature"]).ok_or("holds no proof of the link")?),
    }));
    device.next_pre_key_id = number(&creds["nextPreKeyId"]).unwrap_or(1);
    device.first_unupload_pre_key_id = number(&creds["firstUnuploadedPreKeyId"]).unwrap_or(1);
    device.server_has_prekeys = device.next_pre_key_id > 1;
    device.edge_routing_info = bytes(&creds["routingInfo"]);
    Ok(device)
}

fn pre_key(id: &str, value: &Value) -> Option<Vec<ForeignRow>> {
    let id: u32 = id.parse().ok()?;
    let record = pre_key_record_to_vec(&new_pre_key_record(id, &key_pair(value)?));
    Some(vec![ForeignRow { at: 1, ..row(Kind::PreKey, b"", &id.to_be_bytes(), record) }])
}

/// A ratchet with a peer, and whom it has shown itself to be.
fn session(peer: &str, value: &Value, context: ratchet::Context) -> Option<Vec<ForeignRow>> {
    let address = address(peer)?;
    let (record, identity) = ratchet::record(value, context)?;
    let user = address.split(['@', ':']).next()?.as_bytes().to_vec();
    Some(vec![
        row(Kind::Session, &user, address.as_bytes(), record),
        row(Kind::Identity, &user, address.as_bytes(), identity.to_vec()),
    ])
}

/// From `4915….3`, or `1000…_1.3` for a hidden id, to the name under which the library looks.
fn address(peer: &str) -> Option<String> {
    let (user, device) = peer.rsplit_once('.')?;
    let (user, server) = match user.rsplit_once('_') {
        None => (user, "s.whatsapp.net"),
        Some((user, "1")) => (user, "lid"),
        Some(_) => return None,
    };
    let whole = match device.parse::<u16>().ok()? {
        0 => format!("{user}@{server}"),
        device => format!("{user}:{device}@{server}"),
    };
    Some(whole.parse::<Jid>().ok()?.to_protocol_address_string())
}

fn sync_key(id: &str, value: &Value) -> Option<Vec<ForeignRow>> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    // A file's name has no slash.
    let id = STANDARD.decode(id.replace("__", "/")).ok()?;
    let key = AppStateSyncKey {
        key_data: bytes(&value["keyData"])?,
        fingerprint: Vec::new(),
        timestamp: value["timestamp"]
            .as_i64()
            .or_else(|| value["timestamp"].as_str()?.parse().ok())
            .unwrap_or_default(),
    };
    let saved = serde_json::to_vec(&key).ok()?;
    Some(vec![row(Kind::SyncKey, b"", &id, saved), row(Kind::SyncKeyLatest, b"", b"latest", id.clone())])
}

fn mapping(phone: &str, value: &Value) -> Option<Vec<ForeignRow>> {
    let lid = value.as_str()?;
    let entry = LidPnMappingEntry {
        lid: lid.to_owned(),
        phone_number: phone.to_owned(),
        created_at: 0,
        updated_at: 0,
        learning_source: "import".to_owned(),
    };
    let saved = serde_json::to_vec(&entry).ok()?;
    Some(vec![
        row(Kind::LidMapping, b"", lid.as_bytes(), saved),
        row(Kind::PnMapping, b"", phone.as_bytes(), lid.as_bytes().to_vec()),
    ])
}

/// A key pair of the library's.
fn pair(public: &[u8], private: &[u8]) -> Option<KeyPair> {
    // With or without the byte that tells the kind of key.
    let public = if public.len() == 33 { public.strip_prefix(&[5])? } else { public };
    let public = PublicKey::from_djb_public_key_bytes(public).ok()?;
    Some(KeyPair::new(public, PrivateKey::deserialize(private).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_file_is_found_under_the_librarys_name() {
        assert_eq!(address("4915112345678.0").as_deref(), Some("4915112345678@c.us.0"));
        assert_eq!(address("100000012345678_1.3").as_deref(), Some("100000012345678:3@lid.0"));
        assert_eq!(address("somebody"), None);
    }

    #[test]
    fn a_folder_that_is_none_of_baileys_is_refused_in_one_line() {
        let dir = tempfile::tempdir().expect("directory");
        let refused = |text: Option<&str>| {
            if let Some(text) = text {
                fs::write(dir.path().join("creds.json"), text).expect("written");
            }
            match read_baileys(dir.path()) {
                Err(error) => error.to_string(),
                Ok(_) => panic!("taken"),
            }
        };
        for (text, says) in [
            (None, "creds.json"),
            (Some("{"), "is not JSON"),
            (Some("{}"), "was never linked"),
            (Some(r#"{"me":{"id":"4915:1@s.whatsapp.net"},"registrationId":5}"#), "no noise key"),
        ] {
            let line = refused(text);
            assert!(line.contains(says) && !line.contains('\n'), "{line}");
        }
    }
}
