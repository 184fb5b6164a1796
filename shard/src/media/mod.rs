//! Files: where those that are sent come from, and where those that are fetched lie.
//!
//! A file goes piece by piece; it is never whole in memory, and no larger than is allowed. Few are under way at a time.

mod fetch;
mod files;
mod source;

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    sync::{Semaphore, SemaphorePermit},
};
use url::Url;

use self::{
    fetch::Fetcher,
    files::{Files, extension},
};
pub(crate) use self::{
    files::{Draft, Stored},
    source::Source,
};
use crate::{identity::ChannelId, platform::Failed};

/// Files under way at a time in a shard: each takes a thread.
const ROOM: usize = 3;
/// How often old files are looked for.
const TIDY: Duration = Duration::from_secs(3600);

/// What may be sent and fetched, and where it lies.
#[derive(Debug, Clone)]
pub struct MediaConfig {
    /// Where fetched files and pictures lie.
    pub dir: PathBuf,
    /// No file that is sent or fetched is larger.
    pub largest_file: u64,
    /// Only files of these types are fetched: `image/png`, `image/`; all when it is empty.
    pub types: Vec<String>,
    /// Whether a file to be sent may come from a private or loopback address.
    pub private_addresses: bool,
}

impl MediaConfig {
    /// The defaults.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, largest_file: 64 << 20, types: vec![], private_addresses: false }
    }
}

/// Files can't be kept or fetched.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// The place for files is of no use.
    #[error("{dir}: files can't be kept there: {cause}")]
    Dir {
        /// Which.
        dir: String,
        /// Why.
        cause: String,
    },
    /// No HTTP client could be made.
    #[error("no HTTP client for files")]
    Client(#[source] reqwest::Error),
}

/// The files of all channels of a shard.
#[derive(Debug)]
pub struct Media {
    config: MediaConfig,
    files: Files,
    fetcher: Fetcher,
    room: Semaphore,
}

impl Media {
    /// Makes the directory for its owner alone, if it isn't there.
    pub fn open(config: MediaConfig) -> Result<Self, MediaError> {
        let files = Files::open(&config.dir)
            .map_err(|error| MediaError::Dir { dir: config.dir.display().to_string(), cause: error.to_string() })?;
        let fetcher = Fetcher::new(config.private_addresses).map_err(MediaError::Client)?;
        Ok(Self { config, files, fetcher, room: Semaphore::new(ROOM) })
    }

    /// Removes what was kept for longer than this, for as long as it is polled.
    pub async fn tidy(self: Arc<Self>, keep: Duration) {
        loop {
            let (files, before) = (self.files.clone(), SystemTime::now() - keep);
            match tokio::task::spawn_blocking(move || files.remove_older_than(before)).await {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(removed)) => tracing::info!(removed, "removed fetched files that were kept for long enough"),
                Ok(Err(error)) => tracing::warn!(%error, "could not look for fetched files that are old"),
            }
            tokio::time::sleep(TIDY).await;
        }
    }

    /// Waits until another file may be under way; it may be while what is returned lives.
    pub(crate) async fn room(&self) -> Result<SemaphorePermit<'_>, Failed> {
        self.room.acquire().await.map_err(|_| Failed::NotConnected)
    }

    /// The file of a `send_media`: by its URL, or one that was fetched for the same channel before (`file:` and its path).
    pub(crate) async fn source(&self, channel: ChannelId, url: &str) -> Result<Source, Failed> {
        let url = Url::parse(url).map_err(|_| refused("rejected", "the file's URL is none"))?;
        if url.scheme() == "file" {
            let files = self.files.clone();
            return self.checked(blocking(move || Source::stored(&files, channel, &url)).await??);
        }
        let response = self.fetcher.fetch(url).await?;
        let mime_type = mime_type(&response);
        let source = match response.content_length() {
            Some(length) => Source::web(response, length, mime_type),
            None => {
                let draft = self.spool(response).await?;
                Source::draft(&draft, mime_type).map_err(|error| disk(&error))?
            }
        };
        self.checked(source)
    }

    fn checked(&self, source: Source) -> Result<Source, Failed> {
        match source.length {
            0 => Err(refused("rejected", "the file is empty")),
            length if length > self.config.largest_file => Err(too_large()),
            _ => Ok(source),
        }
    }

    /// Refuses to fetch a file of which it is known beforehand that it is too large, or of a type that is not wanted.
    pub(crate) fn wants(&self, mime_type: Option<&str>, size: Option<u64>) -> Result<(), Failed> {
        if size.is_some_and(|size| size > self.config.largest_file) {
            return Err(too_large());
        }
        let fits = |wanted: &String| {
            mime_type.is_some_and(|is| is == wanted || (wanted.ends_with('/') && is.starts_with(wanted.as_str())))
        };
        if self.config.types.is_empty() || self.config.types.iter().any(fits) {
            return Ok(());
        }
        Err(refused("rejected", "files of this type are not fetched (media.types)"))
    }

    /// An empty file to write into.
    pub(crate) fn draft(&self) -> Result<Draft, Failed> {
        self.files.draft().map_err(|error| disk(&error))
    }

    /// Writes an answer's body into a file, as long as it is no larger than is allowed.
    pub(crate) async fn spool(&self, mut response: reqwest::Response) -> Result<Draft, Failed> {
        if response.content_length().is_some_and(|length| length > self.config.largest_file) {
            return Err(too_large());
        }
        let draft = self.draft()?;
        let mut file = tokio::fs::File::from_std(draft.open().map_err(|error| disk(&error))?);
        let mut length = 0;
        while let Some(piece) = response.chunk().await.map_err(unfinished)? {
            length += piece.len() as u64;
            if length > self.config.largest_file {
                return Err(too_large());
            }
            file.write_all(&piece).await.map_err(|error| disk(&error))?;
        }
        file.flush().await.map_err(|error| disk(&error))?;
        Ok(draft)
    }

    /// Keeps what was fetched for a channel, under its content's digest: fetched again it is the same file.
    pub(crate) async fn keep(
        &self,
        draft: Draft,
        channel: ChannelId,
        mime_type: Option<&str>,
    ) -> Result<Stored, Failed> {
        let (files, end) = (self.files.clone(), extension(mime_type));
        blocking(move || files.keep(&draft, channel, end)).await?.map_err(|error| disk(&error))
    }

    /// The whole of it: an answer's body becomes a kept file. What a job's result tells of it.
    pub(crate) async fn take(
        &self,
        response: reqwest::Response,
        channel: ChannelId,
        mime_type: Option<&str>,
    ) -> Result<Value, Failed> {
        let draft = self.spool(response).await?;
        Ok(self.keep(draft, channel, mime_type).await?.told(mime_type))
    }
}

impl Stored {
    /// What a job's result and its event tell.
    pub(crate) fn told(&self, mime_type: Option<&str>) -> Value {
        json!({
            "path": self.path.display().to_string(),
            "size": self.size,
            "sha256": self.sha256,
            "mime_type": mime_type,
        })
    }
}

/// The type that an answer's server names.
pub(crate) fn mime_type(response: &reqwest::Response) -> Option<String> {
    let value = response.headers().get(reqwest::header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or(value).trim().to_ascii_lowercase())
}

/// Runs what waits for the disk on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failed> {
    let failed = |_| Failed::Retry { error: "the work on a file was broken off".to_owned(), after: None };
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

fn refused(reason: &'static str, error: &str) -> Failed {
    Failed::Permanent { reason, error: error.to_owned() }
}

fn too_large() -> Failed {
    refused("too_large", "the file is larger than is allowed (media.largest_file)")
}

/// A full or broken disk may be better later.
pub(crate) fn disk(error: &io::Error) -> Failed {
    Failed::Retry { error: format!("the place for files: {error}"), after: None }
}

/// The address may hold a secret: it is not told.
fn unfinished(error: reqwest::Error) -> Failed {
    let error = fetch::cause(error);
    Failed::Retry { error: format!("the file's server: {error}"), after: None }
}

/// Files in a directory that goes with the process, for the platforms' tests.
#[cfg(test)]
pub(crate) fn for_tests(private_addresses: bool) -> Arc<Media> {
    let dir = std::env::temp_dir().join(format!("shardvisor-media-{}", std::process::id()));
    Arc::new(Media::open(MediaConfig { private_addresses, ..MediaConfig::new(dir) }).expect("a directory"))
}
