//! Files, both ways, and profile pictures.
//!
//! A file is fetched, sealed and passed on piece by piece through the disk; it is never whole in memory, and no longer than
//! is allowed. Few are under way at a time.

use std::{
    io::{self, BufWriter, Read, Seek, Write},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use url::Url;
use whatsapp_rust::{
    Jid,
    download::{DownloadParams, MediaType},
    features::{MediaRetryResult, MediaReuploadRequest},
    http::HttpStatusError,
    media::{self, AudioOptions, DocumentOptions, ImageOptions, VideoOptions},
    request::IqError,
    upload::UploadResponse,
    wacore::{
        iq::contacts::{ProfilePictureSpec, ProfilePictureType},
        upload::{UploadSource, encrypt_media_streaming},
    },
    waproto::{
        buffa::MessageField,
        whatsapp::{self as wa, message::StickerMessage},
    },
};

use super::super::line::Link;
use super::{WhatsappSender, outcome, recipient, refused, retry, text};
use crate::{
    identity::ChannelId,
    job::{DownloadMedia, FetchAvatar, Job, MediaKind, SendMedia},
    media::{Draft, Stored, blocking, disk},
    platform::{Done, Failed},
};

/// How long a file may take, one way.
const TRANSFER: Duration = Duration::from_secs(600);
/// How long the server of a file may take to begin, or a piece of it to come.
const PIECE: Duration = Duration::from_secs(60);

/// A file that is sealed for the platform.
struct Sealed(Draft);

impl UploadSource for Sealed {
    fn len(&self) -> u64 {
        self.0.open().and_then(|file| file.metadata()).map(|meta| meta.len()).unwrap_or_default()
    }

    fn reader_from(&self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let mut file = self.0.open()?;
        file.seek(io::SeekFrom::Start(offset))?;
        Ok(Box::new(file))
    }
}

impl WhatsappSender {
    /// Passes the file of a `send_media` to the platform; the message that shows it.
    pub(super) async fn uploaded(
        &self,
        link: &Link,
        channel: ChannelId,
        data: &SendMedia,
    ) -> Result<wa::Message, Failed> {
        let chat = recipient(&data.chat_id)?;
        let media = &self.shared.media;
        let _room = media.room().await?;
        let source = media.source(channel, &data.url).await?;
        let mime_type = source.mime_type.clone().or_else(|| data.mime_type.clone());
        let plain = source.into_file(media).await?;
        let kind = media_type(data.kind);
        let sealed = media.draft()?;
        let (sealed, info) = blocking(move || {
            let mut writer = BufWriter::new(sealed.open()?);
            let info =
                encrypt_media_streaming(io::BufReader::new(plain), &mut writer, kind).map_err(io::Error::other)?;
            writer.flush()?;
            drop(writer);
            Ok((Sealed(sealed), info))
        })
        .await?
        .map_err(|error: io::Error| disk(&error))?;
        link.held()?;
        let uploaded = timeout(TRANSFER, link.client.upload_stream(sealed, info, kind)).await;
        let uploaded = uploaded.map_err(|_| super::late())?.map_err(|error| media_error(&error))?;
        let context = text::context(&chat, data.reply_to.as_deref(), &[], link)?.map(Box::new);
        Ok(message(uploaded, data, mime_type, context))
    }

    /// Fetches a received file. One that is gone from the servers is asked of the phone, once.
    pub(super) async fn download(&self, link: &Link, job: &Job, data: &DownloadMedia) -> Result<Done, Failed> {
        let channel = job.channel;
        let announced = Announced::read(&data.media)?;
        self.shared.media.wants(announced.mime_type.as_deref(), announced.size)?;
        let _room = self.shared.media.room().await?;
        let stored = match self.fetch_received(link, channel, &announced, &announced.path).await {
            Err(Missing::Gone) => {
                let path = self.ask_phone(link, data, &announced).await?;
                let again = self.fetch_received(link, channel, &announced, &path).await;
                again.map_err(|missing| missing.failed())?
            }
            other => other.map_err(|missing| missing.failed())?,
        };
        let result = stored.told(announced.mime_type.as_deref());
        Ok(Done { provider_id: None, result: Some(result) })
    }

    async fn fetch_received(
        &self,
        link: &Link,
        channel: ChannelId,
        announced: &Announced,
        path: &str,
    ) -> Result<Stored, Missing> {
        link.held().map_err(Missing::Other)?;
        let draft = self.shared.media.draft().map_err(Missing::Other)?;
        let file = draft.open().map_err(|error| Missing::Other(disk(&error)))?;
        let params = announced.params(path);
        let fetched = timeout(TRANSFER, link.client.download_from_params_to_writer(&params, file)).await;
        let fetched = fetched.map_err(|_| Missing::Other(super::late()))?;
        fetched.map_err(|error| match status(&error) {
            Some(404 | 410) => Missing::Gone,
            _ => Missing::Other(media_error(&error)),
        })?;
        self.shared.media.keep(draft, channel, announced.mime_type.as_deref()).await.map_err(Missing::Other)
    }

    /// Has the phone upload a file again; where it lies then.
    async fn ask_phone(&self, link: &Link, data: &DownloadMedia, announced: &Announced) -> Result<String, Failed> {
        let chat = recipient(&data.chat_id)?;
        let sender = announced.sender.as_deref().map(recipient).transpose()?;
        use whatsapp_rust::wacore_binary::JidExt;
        let participant = sender.filter(|_| chat.is_group());
        link.held()?;
        let request = MediaReuploadRequest {
            msg_id: &data.message_id,
            chat_jid: &chat,
            media_key: &announced.media_key,
            is_from_me: announced.from_me,
            participant: participant.as_ref(),
        };
        match link.client.media_reupload().request(&request).await {
            Ok(MediaRetryResult::Success { direct_path }) => Ok(direct_path),
            // The phone was asked and doesn't have it, or doesn't answer: asking again and again changes nothing.
            Ok(_) => Err(refused("rejected", "the file is gone from the servers, and the phone can't give it again")),
            Err(_) => {
                Err(refused("rejected", "the file is gone from the servers, and the phone did not give it again"))
            }
        }
    }

    /// Fetches a profile picture. That it is hidden and that there is none are results too.
    pub(super) async fn avatar(&self, link: &Link, job: &Job, data: &FetchAvatar) -> Result<Done, Failed> {
        let result = self.picture(link, job.channel, data).await?;
        Ok(Done { provider_id: None, result: Some(result) })
    }

    async fn picture(&self, link: &Link, channel: ChannelId, data: &FetchAvatar) -> Result<Value, Failed> {
        let whose = recipient(&data.chat_id)?;
        link.held()?;
        let found = link.client.contacts().get_profile_picture(&whose, data.preview).await;
        let picture = match found {
            Ok(Some(picture)) => picture,
            Ok(None) => return self.no_avatar(link, &whose, data).await,
            Err(error) => return Err(retry(&error)),
        };
        let url = Url::parse(&picture.url).map_err(|_| refused("rejected", "the picture's address is none"))?;
        let _room = self.shared.media.room().await?;
        let request = whatsapp_rust::http::HttpRequest::get(url.as_str());
        let answer = timeout(PIECE, self.shared.http.execute(request)).await;
        let answer = answer.map_err(|_| super::late())?.map_err(|error| media_error(&error))?;
        if answer.status_code != 200 {
            let error = format!("the picture's host answered {}", answer.status_code);
            return Err(Failed::Retry { error, after: None });
        }
        let draft = self.shared.media.draft()?;
        let draft = blocking(move || draft.open()?.write_all(&answer.body).map(|()| draft)).await?;
        let draft = draft.map_err(|error| disk(&error))?;
        let kind = Some("image/jpeg");
        let mut result = self.shared.media.keep(draft, channel, kind).await?.told(kind);
        result["status"] = "stored".into();
        result["picture_id"] = picture.id.into();
        Ok(result)
    }

    /// The library takes a hidden picture and none for the same; the server doesn't.
    async fn no_avatar(&self, link: &Link, whose: &Jid, data: &FetchAvatar) -> Result<Value, Failed> {
        let kind = if data.preview { ProfilePictureType::Preview } else { ProfilePictureType::Full };
        let status = match link.client.execute(ProfilePictureSpec::new(whose, kind)).await {
            Err(IqError::ServerError { code: 401 | 403, .. }) => "hidden",
            Ok(_) | Err(IqError::ServerError { code: 404, .. }) => "none",
            Err(error) => return Err(outcome::iq(&error).repeatable()),
        };
        Ok(json!({ "status": status }))
    }
}

/// Why a received file did not come.
enum Missing {
    /// The servers don't have it any more.
    Gone,
    Other(Failed),
}

impl Missing {
    fn failed(self) -> Failed {
        match self {
            Self::Gone => refused("rejected", "the file is gone from the servers"),
            Self::Other(failed) => failed,
        }
    }
}

/// The `media` object of the event that announced a file.
struct Announced {
    kind: MediaType,
    path: String,
    mime_type: Option<String>,
    size: Option<u64>,
    media_key: Vec<u8>,
    sum: Vec<u8>,
    sealed_sum: Vec<u8>,
    sender: Option<String>,
    from_me: bool,
}

impl Announced {
    fn read(media: &Map<String, Value>) -> Result<Self, Failed> {
        let wrong = || refused("rejected", "the media object is not the one that an event announced");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let extra = media.get("extra").and_then(Value::as_object).ok_or_else(wrong)?;
        let bytes = |name: &str| extra.get(name).and_then(Value::as_str).and_then(|text| STANDARD.decode(text).ok());
        let kind = match media.get("kind").and_then(Value::as_str).ok_or_else(wrong)? {
            "image" => MediaType::Image,
            "video" | "video_note" => MediaType::Video,
            "audio" | "voice" => MediaType::Audio,
            "document" => MediaType::Document,
            "sticker" => MediaType::Sticker,
            _ => return Err(wrong()),
        };
        Ok(Self {
            kind,
            path: media.get("reference").and_then(text).ok_or_else(wrong)?,
            mime_type: media.get("mime_type").and_then(text),
            size: media.get("size").and_then(Value::as_u64),
            media_key: bytes("media_key").ok_or_else(wrong)?,
            sum: bytes("file_sha256").ok_or_else(wrong)?,
            sealed_sum: bytes("file_enc_sha256").ok_or_else(wrong)?,
            sender: extra.get("sender").and_then(text),
            from_me: extra.get("from_me").and_then(Value::as_bool).unwrap_or_default(),
        })
    }

    fn params(&self, path: &str) -> DownloadParams {
        let size = self.size.unwrap_or_default();
        DownloadParams::encrypted(path, &self.media_key, &self.sum, &self.sealed_sum, size, self.kind)
    }
}

fn media_type(kind: MediaKind) -> MediaType {
    match kind {
        MediaKind::Image => MediaType::Image,
        MediaKind::Video => MediaType::Video,
        MediaKind::Audio | MediaKind::Voice => MediaType::Audio,
        MediaKind::Document => MediaType::Document,
        MediaKind::Sticker => MediaType::Sticker,
    }
}

fn message(
    upload: UploadResponse,
    data: &SendMedia,
    mime_type: Option<String>,
    context_info: Option<Box<wa::ContextInfo>>,
) -> wa::Message {
    let caption = data.caption.clone();
    let mimetype = mime_type;
    match data.kind {
        MediaKind::Image => {
            media::image_message(upload, ImageOptions { caption, mimetype, context_info, ..Default::default() })
        }
        MediaKind::Video => {
            media::video_message(upload, VideoOptions { caption, mimetype, context_info, ..Default::default() })
        }
        MediaKind::Audio => media::audio_message(
            upload,
            AudioOptions { mimetype, ptt: Some(false), context_info, ..Default::default() },
        ),
        // A voice message is shown as one only in this form.
        MediaKind::Voice => {
            media::audio_message(upload, AudioOptions { ptt: Some(true), context_info, ..Default::default() })
        }
        MediaKind::Document => {
            let file_name = data.file_name.clone();
            let options = DocumentOptions { caption, mimetype, file_name, context_info, ..Default::default() };
            media::document_message(upload, options)
        }
        MediaKind::Sticker => wa::Message {
            sticker_message: MessageField::some(StickerMessage {
                url: Some(upload.url),
                direct_path: Some(upload.direct_path),
                media_key: Some(upload.media_key.to_vec()),
                file_sha256: Some(upload.file_sha256.to_vec()),
                file_enc_sha256: Some(upload.file_enc_sha256.to_vec()),
                file_length: Some(upload.file_length),
                media_key_timestamp: Some(upload.media_key_timestamp),
                mimetype: Some(mimetype.unwrap_or_else(|| "image/webp".to_owned())),
                context_info: context_info.map(|context| MessageField::some(*context)).unwrap_or_default(),
                ..Default::default()
            }),
            ..Default::default()
        },
    }
}

/// The HTTP status behind an error of the library, if that is what it is about.
fn status(error: &whatsapp_rust::anyhow::Error) -> Option<u16> {
    error.chain().find_map(|cause| cause.downcast_ref::<HttpStatusError>()).map(|error| error.status)
}

fn media_error(error: &whatsapp_rust::anyhow::Error) -> Failed {
    let text = match status(error) {
        Some(status) => format!("the media server answered {status}"),
        None => "the media server could not be reached, or gave something else".to_owned(),
    };
    Failed::Retry { error: text, after: None }
}
