//! Files in messages: encrypted before they are uploaded, decrypted after they are fetched.

use buffa::MessageField;
use wacore::{
    download::{DownloadUtils, MediaType},
    proto_helpers::MessageExt as _,
    upload::encrypt_media,
};
use waproto::whatsapp::{
    Message,
    message::{AudioMessage, DocumentMessage, ImageMessage, StickerMessage, VideoMessage},
};

use super::PhoneError;
use crate::whatsapp::Server;

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A picture.
    Image,
    /// A film.
    Video,
    /// Music.
    Audio,
    /// Something said into the microphone.
    Voice,
    /// Any file, with its name.
    Document,
    /// A sticker.
    Sticker,
}

impl Kind {
    fn media_type(self) -> MediaType {
        match self {
            Self::Image => MediaType::Image,
            Self::Video => MediaType::Video,
            Self::Audio | Self::Voice => MediaType::Audio,
            Self::Document => MediaType::Document,
            Self::Sticker => MediaType::Sticker,
        }
    }
}

/// A file to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// What it is.
    pub kind: Kind,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// What is said about it.
    pub caption: Option<String>,
    /// Its name, for documents.
    pub name: Option<String>,
    /// Its type on the web.
    pub mimetype: String,
}

impl Attachment {
    /// A file with nothing said about it.
    pub fn new(kind: Kind, bytes: Vec<u8>) -> Self {
        let mimetype = match kind {
            Kind::Image => "image/jpeg",
            Kind::Video => "video/mp4",
            Kind::Audio => "audio/mpeg",
            Kind::Voice => "audio/ogg; codecs=opus",
            Kind::Document => "application/octet-stream",
            Kind::Sticker => "image/webp",
        };
        Self { kind, bytes, caption: None, name: None, mimetype: mimetype.to_owned() }
    }

    /// With something said about it.
    pub fn with_caption(mut self, caption: &str) -> Self {
        self.caption = Some(caption.to_owned());
        self
    }

    /// Uploads the file. The message that carries it.
    pub(super) fn message(&self, server: &Server) -> Result<Message, PhoneError> {
        let kind = self.kind.media_type();
        let sealed = encrypt_media(&self.bytes, kind).map_err(|error| PhoneError::Media(error.to_string()))?;
        let path = server.media.put(kind.mms_type(), sealed.data_to_upload);
        let url = Some(format!("https://{}{path}", server.media_host()));
        macro_rules! filled {
            ($message:ident $(, $field:ident: $value:expr)*) => {
                MessageField::some($message {
                    url,
                    direct_path: Some(path),
                    mimetype: Some(self.mimetype.clone()),
                    media_key: Some(sealed.media_key.to_vec()),
                    file_sha256: Some(sealed.file_sha256.to_vec()),
                    file_enc_sha256: Some(sealed.file_enc_sha256.to_vec()),
                    file_length: Some(self.bytes.len() as u64),
                    $($field: $value,)*
                    ..Default::default()
                })
            };
        }
        let caption = self.caption.clone();
        Ok(match self.kind {
            Kind::Image => Message { image_message: filled!(ImageMessage, caption: caption), ..Default::default() },
            Kind::Video => Message { video_message: filled!(VideoMessage, caption: caption), ..Default::default() },
            Kind::Audio => Message { audio_message: filled!(AudioMessage, ptt: Some(false)), ..Default::default() },
            Kind::Voice => Message { audio_message: filled!(AudioMessage, ptt: Some(true)), ..Default::default() },
            Kind::Document => {
                let file_name = self.name.clone();
                Message {
                    document_message: filled!(DocumentMessage, caption: caption, file_name: file_name),
                    ..Default::default()
                }
            }
            Kind::Sticker => Message { sticker_message: filled!(StickerMessage), ..Default::default() },
        })
    }
}

/// Where a file lies, and its key.
pub(super) struct Located {
    pub(super) path: String,
    pub(super) key: Vec<u8>,
    pub(super) kind: MediaType,
}

/// What is attached to a message.
pub(super) fn locate(message: &Message) -> Option<Located> {
    let message = message.get_base_message();
    macro_rules! located {
        ($($field:ident => $kind:ident),*) => {
            $(if let Some(file) = message.$field.as_option() {
                let (path, key) = (file.direct_path.clone()?, file.media_key.clone()?);
                return Some(Located { path, key, kind: MediaType::$kind });
            })*
        };
    }
    located!(image_message => Image, video_message => Video, audio_message => Audio, document_message => Document,
        sticker_message => Sticker);
    None
}

/// Fetches and decrypts what is attached to a message.
pub(super) fn open(server: &Server, message: &Message) -> Result<Vec<u8>, PhoneError> {
    let failed = |why: &str| PhoneError::Media(why.to_owned());
    let located = locate(message).ok_or_else(|| failed("nothing is attached"))?;
    let path = located.path.split('?').next().unwrap_or_default();
    let sealed = server.media.get(path).ok_or_else(|| failed("it is gone"))?;
    DownloadUtils::verify_and_decrypt(&sealed, &located.key, located.kind).map_err(|error| failed(&error.to_string()))
}
