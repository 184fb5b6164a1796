//! Where fetched files and profile pictures lie: a directory, one folder a channel. A file is whole or not there.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use uuid::Uuid;
use whatsapp_rust::wacore::upload::UploadSource;

use super::WhatsappError;
use crate::identity::ChannelId;

/// A directory of files.
#[derive(Debug, Clone)]
pub(super) struct Files {
    dir: PathBuf,
}

/// A file that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) sha256: String,
}

/// A file that is being written; it vanishes unless it is kept.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) path: PathBuf,
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It was kept under another name, or nobody needs it.
        let _ = fs::remove_file(&self.path);
    }
}

impl Draft {
    /// Opens it for reading and writing.
    pub(super) fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.path)
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.path)?.len())
    }
}

impl UploadSource for Draft {
    fn len(&self) -> u64 {
        Draft::len(self).unwrap_or_default()
    }

    fn reader_from(&self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let mut file = File::open(&self.path)?;
        file.seek(io::SeekFrom::Start(offset))?;
        Ok(Box::new(file))
    }
}

impl Files {
    /// Makes the directory for its owner alone, if it isn't there.
    pub(super) fn open(dir: &Path) -> Result<Self, WhatsappError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|error| WhatsappError::Files { dir: dir.display().to_string(), cause: error.to_string() })?;
        Ok(Self { dir: dir.to_owned() })
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

/// The end of a file's name, by its type; nothing of what somebody else chose.
pub(super) fn extension(mime_type: Option<&str>) -> &'static str {
    match mime_type.map(|kind| kind.split(';').next().unwrap_or(kind).trim()).unwrap_or_default() {
        "image/jpeg" => "jpg",
        "image/png" => "png",
        "image/webp" => "webp",
        "image/gif" => "gif",
        "video/mp4" => "mp4",
        "audio/ogg" => "ogg",
        "audio/mpeg" => "mp3",
        "audio/mp4" => "m4a",
        "application/pdf" => "pdf",
        "text/plain" => "txt",
        _ => "bin",
    }
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
        drop(files.draft().expect("draft"));
        let left: Vec<_> = fs::read_dir(base.path().join("media")).expect("listed").flatten().collect();
        assert_eq!(left.len(), 1, "only the channel's folder: {left:?}");
    }
}
