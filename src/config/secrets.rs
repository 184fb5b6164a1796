//! Secrets come from files alone: the one a setting names, or a systemd credential. Never from the configuration file,
//! a variable or a flag, where other processes, crash reports and process lists can see them.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use shard::secret::Secret;

use super::{
    keys::Key,
    problem::Problem,
    reader::Reader,
    sources::{Sources, plain},
};

/// The largest file that is taken for a secret.
const MAX_BYTES: u64 = 64 * 1024;

/// Reads the secrets of a setting: one a line, the first the one in use. Empty when none is configured.
pub(super) fn read(key: &Key, reader: &mut Reader<'_>, sources: &Sources) -> Vec<Secret> {
    let (path, origin) = match (reader.value(key), credential(key, sources)) {
        (Some(value), _) => (PathBuf::from(&value.text), value.origin.to_string()),
        (None, Some((path, name))) => (path, format!("credential {name}")),
        (None, None) => return Vec::new(),
    };
    match lines(&path) {
        Ok(secrets) => secrets,
        Err(problem) => {
            reader.problems.push(Problem::SecretFile { origin, path: path.display().to_string(), problem });
            Vec::new()
        }
    }
}

/// What the credentials are called that the unit takes from the directory of credentials as a whole.
const FROM_DIRECTORY: &str = "shardvisor_";

/// The file of a key's systemd credential, when the unit loads one.
fn credential(key: &Key, sources: &Sources) -> Option<(PathBuf, &'static str)> {
    let name = key.credential?;
    let loaded = Path::new(sources.env.get("CREDENTIALS_DIRECTORY")?);
    let paths = [loaded.join(name), loaded.join(format!("{FROM_DIRECTORY}{name}"))];
    paths.into_iter().find(|path| path.exists()).map(|path| (path, name))
}

/// One secret from a file, for commands.
pub(crate) fn file_with_one(path: &Path) -> Result<Secret, String> {
    only(lines(path)?)
}

fn only(secrets: Vec<Secret>) -> Result<Secret, String> {
    <[Secret; 1]>::try_from(secrets)
        .map(|[secret]| secret)
        .map_err(|several| format!("holds {} lines: expected one", several.len()))
}

/// The secrets of a text, one a line, or what is wrong with it.
pub(crate) fn of_text(text: &str) -> Result<Vec<Secret>, String> {
    let secrets: Vec<Secret> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Secret::new).collect();
    if secrets.is_empty() {
        return Err("is empty: expected a secret on its first line".to_owned());
    }
    Ok(secrets)
}

/// The secrets of a file, one a line.
pub(crate) fn lines(path: &Path) -> Result<Vec<Secret>, String> {
    let about = std::fs::metadata(path).map_err(|error| plain(&error))?;
    if !about.is_file() {
        return Err("is no regular file".to_owned());
    }
    // Readable by others is left to the operator (container platforms mount secrets so); writable by others is not,
    // since whoever can write it chooses the key.
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(format!("mode {mode:04o} lets others write it: expected 0600"));
    }
    if about.len() > MAX_BYTES {
        return Err(format!("{} bytes are too many for a secret", about.len()));
    }
    let text = std::fs::read(path).map_err(|error| plain(&error))?;
    let text = String::from_utf8(text).map_err(|_| "is not UTF-8".to_owned())?;
    of_text(&text)
}
