//! The key file: one key a line, the newest last. What is sealed names its key, so that a new one can be added and the
//! old ones still open what they closed. It seals tokens, handler secrets and the keys of device sessions.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::{identity::ChannelId, secret::Secret};

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// The key file can't be used, or what is sealed doesn't open with it. One line for people, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key file {path}: {problem}")]
pub struct KeyringError {
    path: String,
    problem: String,
}

/// The keys of a file, the newest last.
pub struct Keyring {
    path: PathBuf,
    keys: Vec<(String, XChaCha20Poly1305)>,
}

fn refused(path: &Path, problem: impl std::fmt::Display) -> KeyringError {
    KeyringError { path: path.display().to_string(), problem: problem.to_string() }
}

impl Keyring {
    /// Reads the key file; made with one key if there is none.
    pub fn open(path: &Path) -> Result<Self, KeyringError> {
        let text = match read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(path).map_err(|error| refused(path, format!("can't be made: {error}")))?;
                read(path)
            }
            other => other,
        };
        let text = text.map_err(|error| refused(path, format!("can't be read: {error}")))?;
        let mut keys = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bytes = STANDARD.decode(line).map(Zeroizing::new);
            let bytes = bytes.map_err(|_| refused(path, format!("line {} is not base64", at + 1)))?;
            if bytes.len() != KEY_BYTES {
                let problem = format!("line {} holds {} bytes; a key has {KEY_BYTES}", at + 1, bytes.len());
                return Err(refused(path, problem));
            }
            let id: String = Sha256::digest(&*bytes).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            let cipher = XChaCha20Poly1305::new_from_slice(&bytes).map_err(|error| refused(path, error))?;
            keys.push((id, cipher));
        }
        if keys.is_empty() {
            return Err(refused(path, "holds no key; remove it to have one made, unless something is sealed already"));
        }
        Ok(Self { path: path.to_owned(), keys })
    }

    /// A ring that opens and seals nothing, for who only looks and must make no file.
    pub fn without_keys() -> Self {
        Self { path: PathBuf::new(), keys: Vec::new() }
    }

    /// The id of the newest key.
    pub fn newest(&self) -> &str {
        self.keys.last().map_or("", |(id, _)| id.as_str())
    }

    /// Seals a secret with the newest key. It opens for this channel and purpose alone.
    pub fn seal(&self, channel: ChannelId, what: &str, secret: &Secret) -> Result<Vec<u8>, KeyringError> {
        self.seal_bytes(channel, what, secret.expose().as_bytes())
    }

    /// The same for what is no text.
    pub(crate) fn seal_bytes(&self, channel: ChannelId, what: &str, plain: &[u8]) -> Result<Vec<u8>, KeyringError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| refused(&self.path, error))?;
        let Some((_, cipher)) = self.keys.last() else { return Err(refused(&self.path, "holds no key")) };
        let aad = aad(channel, what);
        let payload = Payload { msg: plain, aad: &aad };
        let sealed =
            cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| refused(&self.path, "the cipher refused"))?;
        Ok([nonce.as_slice(), &sealed].concat())
    }

    /// Opens what was sealed.
    pub(crate) fn unseal(
        &self,
        channel: ChannelId,
        what: &str,
        key_id: &str,
        sealed: &[u8],
    ) -> Result<Secret, KeyringError> {
        let opened = self.unseal_bytes(channel, what, key_id, sealed)?;
        let text = std::str::from_utf8(&opened).map_err(|_| self.damaged(channel, what))?;
        Ok(Secret::new(text))
    }

    /// The same for what is no text.
    pub(crate) fn unseal_bytes(
        &self,
        channel: ChannelId,
        what: &str,
        key_id: &str,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
        let Some((_, cipher)) = self.keys.iter().find(|(id, _)| id == key_id) else {
            let problem = format!("does not hold key {key_id}, with which channel {channel} is sealed; restore it");
            return Err(refused(&self.path, problem));
        };
        let damaged = || self.damaged(channel, what);
        let (nonce, sealed) = sealed.split_at_checked(NONCE_BYTES).ok_or_else(damaged)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| damaged())?;
        let aad = aad(channel, what);
        let opened = cipher.decrypt(&XNonce::from(nonce), Payload { msg: sealed, aad: &aad }).map_err(|_| damaged())?;
        Ok(Zeroizing::new(opened))
    }

    /// Opens what somebody else sealed who did not say with which key.
    pub(crate) fn unseal_by_any(&self, channel: ChannelId, what: &str, sealed: &[u8]) -> Result<Secret, KeyringError> {
        let ids = self.keys.iter().rev().map(|(id, _)| id.as_str());
        let mut opened = ids.filter_map(|id| self.unseal(channel, what, id, sealed).ok());
        opened.next().ok_or_else(|| refused(&self.path, format!("opens the {what} of channel {channel} with no key")))
    }

    fn damaged(&self, channel: ChannelId, what: &str) -> KeyringError {
        refused(&self.path, format!("the {what} of channel {channel} does not open: it was changed"))
    }
}

fn aad(channel: ChannelId, what: &str) -> Vec<u8> {
    [channel.uuid().as_bytes().as_slice(), what.as_bytes()].concat()
}

fn read(path: &Path) -> io::Result<Zeroizing<String>> {
    let mut file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!("mode {mode:04o} lets others in; chmod 600 it")));
    }
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Makes the file whole or not at all; of two processes that do so at the same moment one wins.
fn make(path: &Path) -> io::Result<()> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    getrandom::fill(&mut *key).map_err(io::Error::other)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::other("names no file"))?.to_string_lossy().into_owned();
    let draft = dir.join(format!(".{name}.{}", uuid::Uuid::new_v4()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(Zeroizing::new(format!("{}\n", STANDARD.encode(*key))).as_bytes())?;
        file.sync_all()?;
        match std::fs::hard_link(&draft, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => File::open(dir)?.sync_all(),
        }
    })();
    let _ = std::fs::remove_file(&draft);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(last: u8) -> ChannelId {
        ChannelId::from_uuid(uuid::Uuid::from_bytes([last; 16]))
    }

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode");
    }

    fn error(path: &Path) -> String {
        match Keyring::open(path) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("accepted"),
        }
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let base = tempfile::tempdir().expect("directory");
        let path = base.path().join("secret.key");
        let first = Keyring::open(&path).expect("made");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        let second = Keyring::open(&path).expect("read");
        assert_eq!(first.newest(), second.newest());
        assert_eq!(base.path().read_dir().expect("read").count(), 1, "no draft is left");
        let sealed = first.seal(channel(1), "token", &Secret::new("123:abc")).expect("sealed");
        assert!(!sealed.windows(3).any(|part| part == b"123"));
        let opened = second.unseal(channel(1), "token", first.newest(), &sealed).expect("opened");
        assert_eq!(opened.expose(), "123:abc");
    }

    #[test]
    fn what_is_sealed_opens_for_its_channel_and_purpose_alone() {
        let base = tempfile::tempdir().expect("directory");
        let keys = Keyring::open(&base.path().join("secret.key")).expect("made");
        let sealed = keys.seal(channel(1), "token", &Secret::new("123:abc")).expect("sealed");
        let mut changed = sealed.clone();
        changed[30] ^= 1;
        let id = keys.newest();
        assert!(keys.unseal(channel(2), "token", id, &sealed).is_err());
        assert!(keys.unseal(channel(1), "secret", id, &sealed).is_err());
        assert!(keys.unseal(channel(1), "token", id, &changed).is_err());
        assert!(keys.unseal(channel(1), "token", id, &sealed[..10]).is_err());
        assert!(keys.unseal_by_any(channel(1), "token", &sealed).is_ok());
        assert!(keys.unseal_by_any(channel(2), "token", &sealed).is_err());
    }

    #[test]
    fn a_new_key_seals_and_the_old_ones_still_open() {
        let base = tempfile::tempdir().expect("directory");
        let path = base.path().join("secret.key");
        let old = Keyring::open(&path).expect("made");
        let sealed = old.seal(channel(1), "token", &Secret::new("old")).expect("sealed");
        let text = std::fs::read_to_string(&path).expect("read");
        write(&path, &format!("{text}# rotated\n{}\n", STANDARD.encode([7; 32])), 0o600);
        let rotated = Keyring::open(&path).expect("read");
        assert_ne!(rotated.newest(), old.newest());
        assert_eq!(rotated.unseal(channel(1), "token", old.newest(), &sealed).expect("opened").expose(), "old");
        write(&path, &format!("{}\n", STANDARD.encode([7; 32])), 0o600);
        let lost = Keyring::open(&path).expect("read").unseal(channel(1), "token", old.newest(), &sealed);
        assert!(lost.expect_err("lost").to_string().contains(old.newest()));
    }

    #[test]
    fn a_key_file_that_is_not_right_is_one_clear_line() {
        let base = tempfile::tempdir().expect("directory");
        let path = base.path().join("secret.key");
        for (text, mode, says) in [
            (STANDARD.encode([1; 32]), 0o640, "mode 0640"),
            (STANDARD.encode([1; 32]), 0o604, "mode 0604"),
            (STANDARD.encode([1; 16]), 0o600, "16 bytes"),
            ("not base64!".to_owned(), 0o600, "line 1 is not base64"),
            (String::new(), 0o600, "holds no key"),
        ] {
            write(&path, &text, mode);
            let line = error(&path);
            assert!(line.contains(says) && line.contains("secret.key") && !line.contains('\n'), "{line}");
        }
        assert!(error(base.path()).contains("can't be read"), "a directory is no key file");
        assert!(error(&base.path().join("a/secret.key")).contains("can't be made"));
    }
}
