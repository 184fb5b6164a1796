//! From a message of the platform to ours. Pure.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use teloxide_core::types::{
    Chat, FileMeta, Location as TelegramLocation, MediaKind, Message as TelegramMessage, MessageKind, PhotoSize, User,
};

use super::update::value;
use crate::event::{Author, Location, Media, Message};

/// The parts of a message that have a place in ours. One that holds more is told together with its own form.
const TOLD: [&str; 20] = [
    "message_id",
    "message_thread_id",
    "is_topic_message",
    "from",
    "sender_chat",
    "chat",
    "date",
    "edit_date",
    "text",
    "caption",
    "animation",
    "audio",
    "document",
    "photo",
    "sticker",
    "video",
    "video_note",
    "voice",
    "location",
    "venue",
];

/// What a person said; `None` for what only tells of the chat itself (somebody joined, a title changed).
pub(super) fn message(said: &TelegramMessage, content: &RawValue) -> Option<Message> {
    let said_something = match &said.kind {
        MessageKind::Common(common) => !matches!(common.media_kind, MediaKind::Migration(_)),
        kind => matches!(kind, MessageKind::Dice(_) | MessageKind::WebAppData(_)),
    };
    if !said_something {
        return None;
    }
    let keys: BTreeMap<String, &RawValue> = serde_json::from_str(content.get()).ok()?;
    let has_more = keys.keys().any(|key| !TOLD.contains(&key.as_str()));
    // Outside forums a thread is only what replies to one message: nothing can be sent into it.
    let thread = said.thread_id.filter(|_| said.is_topic_message);
    let reply_to = said.reply_to_message().filter(|root| thread.is_none_or(|thread| thread.0 != root.id));
    Some(Message {
        message_id: said.id.0.to_string(),
        chat_id: said.chat.id.to_string(),
        from: said.sender_chat.as_ref().map(chat_as_author).or(said.from.as_ref().map(user)),
        chat_type: Some(chat_type(&said.chat).to_owned()),
        text: said.text().or(said.caption()).map(str::to_owned),
        reply_to: reply_to.map(|root| root.id.0.to_string()),
        thread_id: thread.map(|thread| thread.0.0.to_string()),
        media: media(said),
        location: location(said),
        raw: has_more.then(|| value(content)),
    })
}

/// A person or bot as an author.
pub(super) fn user(user: &User) -> Author {
    Author {
        id: user.id.to_string(),
        name: Some(user.full_name()).filter(|name| !name.is_empty()),
        username: user.username.clone(),
        is_bot: user.is_bot,
    }
}

/// A channel or group that speaks for itself.
pub(super) fn chat_as_author(chat: &Chat) -> Author {
    Author {
        id: chat.id.to_string(),
        name: chat.title().map(str::to_owned),
        username: chat.username().map(str::to_owned),
        is_bot: false,
    }
}

fn chat_type(chat: &Chat) -> &'static str {
    match () {
        () if chat.is_private() => "private",
        () if chat.is_channel() => "channel",
        () => "group",
    }
}

fn location(said: &TelegramMessage) -> Option<Location> {
    let place = |location: &TelegramLocation| Location {
        latitude: location.latitude,
        longitude: location.longitude,
        title: None,
        address: None,
    };
    match said.venue() {
        Some(venue) => Some(Location {
            title: Some(venue.title.clone()),
            address: Some(venue.address.clone()),
            ..place(&venue.location)
        }),
        None => said.location().map(place),
    }
}

fn media(said: &TelegramMessage) -> Option<Media> {
    let file = |kind: &str, meta: &FileMeta| Media {
        kind: kind.to_owned(),
        // The size of a file that the platform didn't tell reads as the greatest there is.
        size: Some(u64::from(meta.size)).filter(|size| *size != u64::from(u32::MAX)),
        reference: meta.id.to_string(),
        ..Media::default()
    };
    let named = |media: Media, mime_type: Option<String>, file_name: Option<&String>| Media {
        mime_type,
        file_name: file_name.cloned(),
        ..media
    };
    let MessageKind::Common(common) = &said.kind else { return None };
    let media = match &common.media_kind {
        MediaKind::Photo(photo) => {
            let size = |photo: &&PhotoSize| u64::from(photo.width) * u64::from(photo.height);
            file("image", &photo.photo.iter().max_by_key(size)?.file)
        }
        MediaKind::Video(media) => {
            let video = &media.video;
            named(
                file("video", &video.file),
                video.mime_type.as_ref().map(ToString::to_string),
                video.file_name.as_ref(),
            )
        }
        MediaKind::Audio(media) => {
            let audio = &media.audio;
            named(
                file("audio", &audio.file),
                audio.mime_type.as_ref().map(ToString::to_string),
                audio.file_name.as_ref(),
            )
        }
        MediaKind::Document(media) => {
            let document = &media.document;
            let mime_type = document.mime_type.as_ref().map(ToString::to_string);
            named(file("document", &document.file), mime_type, document.file_name.as_ref())
        }
        MediaKind::Animation(media) => {
            let animation = &media.animation;
            let mime_type = animation.mime_type.as_ref().map(ToString::to_string);
            named(file("animation", &animation.file), mime_type, animation.file_name.as_ref())
        }
        MediaKind::Voice(media) => {
            let mime_type = media.voice.mime_type.as_ref().map(ToString::to_string);
            named(file("voice", &media.voice.file), mime_type, None)
        }
        MediaKind::VideoNote(media) => file("video_note", &media.video_note.file),
        MediaKind::Sticker(media) => file("sticker", &media.sticker.file),
        _ => return None,
    };
    Some(media)
}
