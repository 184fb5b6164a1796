//! A file that is about to be sent.

use std::{fs::File, io};

use reqwest::{Body, Response};
use url::Url;

use super::{
    disk,
    files::{Draft, Files, type_of},
    refused,
};
use crate::{identity::ChannelId, platform::Failed};

/// A file that is about to be sent: on its way from somewhere, or on the disk.
#[derive(Debug)]
pub(crate) struct Source {
    /// How long it is.
    pub(crate) length: u64,
    /// Its type, as the place that it comes from says.
    pub(crate) mime_type: Option<String>,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Web(Response),
    File(File),
}

impl Source {
    pub(super) fn web(response: Response, length: u64, mime_type: Option<String>) -> Self {
        Self { length, mime_type, bytes: Bytes::Web(response) }
    }

    /// Goes on to be readable when the draft is gone.
    pub(super) fn draft(draft: &Draft, mime_type: Option<String>) -> io::Result<Self> {
        let file = draft.open()?;
        Ok(Self { length: file.metadata()?.len(), mime_type, bytes: Bytes::File(file) })
    }

    /// A file that was kept for this channel. Nothing else of the disk is shown to whoever asks for it.
    pub(super) fn stored(files: &Files, channel: ChannelId, url: &Url) -> Result<Self, Failed> {
        let none = || refused("rejected", "no file of this channel is stored there");
        let path = url.to_file_path().map_err(|()| none())?;
        let file = files.open_kept(channel, &path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => none(),
            _ => disk(&error),
        })?;
        let length = file.metadata().map_err(|error| disk(&error))?.len();
        Ok(Self { length, mime_type: type_of(&path).map(str::to_owned), bytes: Bytes::File(file) })
    }

    /// To be passed on as it comes.
    pub(crate) fn into_body(self) -> Body {
        match self.bytes {
            Bytes::Web(response) => Body::wrap_stream(response.bytes_stream()),
            Bytes::File(file) => tokio::fs::File::from_std(file).into(),
        }
    }

    /// On the disk, for a network that seals it first.
    #[cfg(feature = "whatsapp")]
    pub(crate) async fn into_file(self, media: &super::Media) -> Result<File, Failed> {
        match self.bytes {
            Bytes::Web(response) => media.spool(response).await?.open().map_err(|error| disk(&error)),
            Bytes::File(file) => Ok(file),
        }
    }
}
