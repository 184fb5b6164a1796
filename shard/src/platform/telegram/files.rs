//! Files: those that a message showed are fetched, and those that lie here are uploaded.

use reqwest::multipart::{Form, Part};
use serde::{Deserialize, Serialize};
use serde_json::{
    Value, json,
    value::{RawValue, to_value},
};
use teloxide_core::requests::Payload;

use super::{
    outcome::failed,
    send::{FETCHING, Failure, PATIENCE, TelegramSender, refused},
};
use crate::{
    identity::ChannelId,
    job::{DownloadMedia, MediaKind, SendMedia},
    platform::{Done, Failed},
};

/// What `getFile` says.
#[derive(Deserialize)]
struct Place {
    file_path: Option<String>,
    file_size: Option<u64>,
}

impl TelegramSender {
    /// Fetches a received file.
    pub(super) async fn download(&self, channel: ChannelId, data: &DownloadMedia) -> Result<Done, Failed> {
        let rejected = |error: &str| Failed::Permanent { reason: "rejected", error: error.to_owned() };
        let text = |name: &str| data.media.get(name).and_then(Value::as_str);
        let id =
            text("reference").ok_or_else(|| rejected("the media object is not the one that an event announced"))?;
        let kind = text("mime_type").or_else(|| of_kind(text("kind")));
        self.media.wants(kind, data.media.get("size").and_then(Value::as_u64))?;
        let again = |error| failed(error).repeatable();
        let asked = self.api.post(self.token.as_ref(), "getFile", &json!({ "file_id": id }), PATIENCE).await;
        let place: Option<Place> = serde_json::from_str(asked.map_err(again)?.get()).ok();
        let (path, size) = place.map(|place| (place.file_path, place.file_size)).unwrap_or_default();
        let path = path.ok_or_else(|| rejected("the Bot API does not give the file: it is larger than 20 MB"))?;
        self.media.wants(kind, size)?;
        let _room = self.media.room().await?;
        let response = self.api.file(self.token.as_ref(), &path).await.map_err(again)?;
        Ok(Done { provider_id: None, result: Some(self.media.take(response, channel, kind).await?) })
    }

    /// Makes a call that shows a file: with its address, which the platform fetches, or with a file that lies here in place of it.
    pub(super) async fn show<P: Payload + Serialize>(
        &self,
        channel: ChannelId,
        data: &SendMedia,
        payload: P,
    ) -> Result<Box<RawValue>, Failure> {
        if !data.url.starts_with("file:") {
            return Ok(self.call(payload, FETCHING).await?);
        }
        let source = self.media.source(channel, &data.url).await.map_err(Failure::Own)?;
        let field = match data.kind {
            MediaKind::Image => "photo",
            MediaKind::Video => "video",
            MediaKind::Audio => "audio",
            MediaKind::Voice => "voice",
            MediaKind::Document => "document",
            MediaKind::Sticker => "sticker",
        };
        let mut form = Form::new();
        let params = to_value(&payload).unwrap_or_default();
        for (name, value) in params.as_object().into_iter().flatten().filter(|(name, _)| *name != field) {
            form = match value {
                Value::Null => form,
                Value::String(text) => form.text(name.clone(), text.clone()),
                other => form.text(name.clone(), other.to_string()),
            };
        }
        let name = data.file_name.clone().or_else(|| data.url.rsplit('/').next().map(str::to_owned));
        let (length, kind) = (source.length, source.mime_type.clone().or_else(|| data.mime_type.clone()));
        let mut part = Part::stream_with_length(source.into_body(), length).file_name(name.unwrap_or_default());
        if let Some(kind) = &kind {
            part = part.mime_str(kind).map_err(|_| refused("rejected", "the file's MIME type is none"))?;
        }
        Ok(self.api.upload::<P>(self.token.as_ref(), form.part(field, part), FETCHING).await?)
    }
}

/// Photos and stickers come without a type: they have always the same.
fn of_kind(kind: Option<&str>) -> Option<&'static str> {
    match kind {
        Some("image") => Some("image/jpeg"),
        Some("video_note") => Some("video/mp4"),
        Some("voice") => Some("audio/ogg"),
        _ => None,
    }
}
