//! Where fetched files and profile pictures lie: a directory, one folder a channel. A file is whole or not there.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::identity::ChannelId;

/// A directory of files.
#[derive(Debug, Clone)]
pub(super) struct Files {
    dir: PathBuf,
}

/// A file that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// A file that is being written; it vanishes unless it is kept.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) path: PathBuf,
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It was kept under another name, or nobody needs it.
        let _ = fs::remove_file(&self.path);
    }
}

impl Draft {
    /// Opens it for reading and writing.
    pub(crate) fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.path)
    }
}

impl Files {
    /// Makes the directory for its owner alone, if it isn't there.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Removes kept files, and drafts that nobody finished. How many.
    pub(super) fn remove_older_than(&self, before: SystemTime) -> io::Result<usize> {
        let mut removed = 0;
        let mut remove = |path: &Path| {
            let is_old = fs::symlink_metadata(path).and_then(|meta| meta.modified()).is_ok_and(|at| at < before);
            // Another shard may be at it too.
            removed += usize::from(is_old && fs::remove_file(path).is_ok());
        };
        for entry in fs::read_dir(&self.dir)?.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    fs::read_dir(entry.path())?.flatten().for_each(|file| remove(&file.path()));
                }
                _ => remove(&entry.path()),
            }
        }
        Ok(removed)
    }

    /// Opens a file that was kept for a channel; no other, by whatever detour its path takes.
    pub(super) fn open_kept(&self, channel: ChannelId, path: &Path) -> io::Result<File> {
        let folder = self.dir.join(channel.to_string()).canonicalize()?;
        let path = path.canonicalize()?;
        if path.parent() != Some(folder.as_path()) || !path.is_file() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        File::open(path)
    }

    /// An empty file to write into.
    pub(super) fn draft(&self) -> io::Result<Draft> {
        let path = self.dir.join(format!(".{}", Uuid::new_v4()));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Draft { path })
    }

    /// Keeps a draft under its content's digest: fetched again it is the same file.
    pub(super) fn keep(&self, draft: &Draft, channel: ChannelId, extension: &str) -> io::Result<Stored> {
        let mut file = draft.open()?;
        let mut digest = Sha256::new();
        let size = io::copy(&mut file, &mut Hashing(&mut digest))?;
        file.sync_all()?;
        let sha256: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let folder = self.dir.join(channel.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let path = folder.join(format!("{sha256}.{extension}"));
        fs::rename(&draft.path, &path)?;
        File::open(&folder)?.sync_all()?;
        Ok(Stored { path, size, sha256 })
    }
}

struct Hashing<'a>(&'a mut Sha256);

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const TYPES: [(&str, &str); 10] = [
    ("image/jpeg", "jpg"),
    ("image/png", "png"),
    ("image/webp", "webp"),
    ("image/gif", "gif"),
    ("video/mp4", "mp4"),
    ("audio/ogg", "ogg"),
    ("audio/mpeg", "mp3"),
    ("audio/mp4", "m4a"),
    ("application/pdf", "pdf"),
    ("text/plain", "txt"),
];

/// The end of a file's name, by its type; nothing of what somebody else chose.
pub(super) fn extension(mime_type: Option<&str>) -> &'static str {
    let kind = mime_type.map(|kind| kind.split(';').next().unwrap_or(kind).trim());
    TYPES.iter().find(|(known, _)| Some(*known) == kind).map_or("bin", |(_, end)| end)
}

/// The type of a kept file, by the end of its name.
pub(super) fn type_of(path: &Path) -> Option<&'static str> {
    let end = path.extension()?.to_str()?;
    TYPES.iter().find(|(_, known)| *known == end).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_kept_under_its_digest_and_a_draft_vanishes() {
        let base = tempfile::tempdir().expect("directory");
        let files = Files::open(&base.path().join("media")).expect("opened");
        let channel = ChannelId::from_uuid(Uuid::from_u128(1));
        let keep = |text: &[u8]| {
            let draft = files.draft().expect("draft");
            draft.open().expect("opened").write_all(text).expect("written");
            files.keep(&draft, channel, extension(Some("image/jpeg"))).expect("kept")
        };
        let (first, again) = (keep(b"abc"), keep(b"abc"));
        assert_eq!(first, again);
        assert_eq!(first.size, 3);
        assert!(first.path.ends_with(format!("{}.jpg", first.sha256)));
        let read =
            |channel: ChannelId, path: &Path| files.open_kept(channel, path).map(|_| ()).map_err(|error| error.kind());
        assert_eq!(read(channel, &first.path), Ok(()));
        assert!(read(ChannelId::from_uuid(Uuid::from_u128(2)), &first.path).is_err(), "it is another channel's");
        let outside = base.path().join("outside");
        fs::write(&outside, "secret").expect("written");
        let link = first.path.with_file_name("link");
        std::os::unix::fs::symlink(&outside, &link).expect("linked");
        for path in [&outside, &link, &first.path.with_file_name("../../outside"), &first.path.with_file_name("..")] {
            assert_eq!(read(channel, path), Err(io::ErrorKind::PermissionDenied), "{}", path.display());
        }
        drop(files.draft().expect("draft"));
        let left: Vec<_> = fs::read_dir(base.path().join("media")).expect("listed").flatten().collect();
        assert_eq!(left.len(), 1, "only the channel's folder: {left:?}");
    }

    #[test]
    fn what_was_kept_for_long_enough_is_removed() {
        let base = tempfile::tempdir().expect("directory");
        let files = Files::open(base.path()).expect("opened");
        let channel = ChannelId::from_uuid(Uuid::from_u128(1));
        let keep = |text: &[u8]| {
            let draft = files.draft().expect("draft");
            draft.open().expect("opened").write_all(text).expect("written");
            files.keep(&draft, channel, "bin").expect("kept").path
        };
        let (old, young) = (keep(b"old"), keep(b"young"));
        let now = SystemTime::now();
        let (hour, day) = (std::time::Duration::from_secs(3600), std::time::Duration::from_secs(86_400));
        File::options().write(true).open(&old).and_then(|file| file.set_modified(now - day)).expect("aged");
        assert_eq!(files.remove_older_than(now - hour).expect("looked"), 1);
        assert!(!old.exists() && young.exists());
    }
}
