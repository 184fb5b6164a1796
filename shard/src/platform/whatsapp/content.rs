//! From a decrypted message to the event that tells of it. Pure.
//!
//! What has no word in the vocabulary is still told: as a message whose `raw` holds the platform's own form, so that
//! nothing that somebody wrote is lost. What the account's other devices sent is no message to answer, and is told as
//! `platform.other`.

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use whatsapp_rust::{
    Jid,
    types::message::{MessageInfo, MessageSource},
    wacore::proto_helpers::MessageExt,
    wacore_binary::JidExt,
    waproto::{
        codec::message_to_vec,
        whatsapp::{self as wa, message::protocol_message},
    },
};

use crate::{
    event::{Author, Event, EventKind, Location, Media, Message, MessageRef, Other, Reaction},
    identity::ChannelId,
    platform::PlatformKind,
};

/// A person or group without the number of a device.
pub(super) fn plain(jid: &Jid) -> String {
    jid.to_non_ad_string()
}

/// Whether it comes from a channel that everybody may read, which is not encrypted.
pub(super) fn is_channel(source: &MessageSource) -> bool {
    source.chat.is_newsletter()
}

/// What a message tells; `None` for what the devices tell one another.
pub(super) fn event(channel: ChannelId, message: &wa::Message, info: &MessageInfo) -> Option<Event> {
    let kind = kind(message, info)?;
    let chat = plain(&info.source.chat);
    let at = Timestamp::from_second(info.timestamp.timestamp()).unwrap_or_default();
    let key = format!("message/{chat}/{}/{}", plain(&info.source.sender), info.id);
    Some(Event::new(channel, PlatformKind::Whatsapp, Some(chat), at, &key, kind))
}

fn kind(message: &wa::Message, info: &MessageInfo) -> Option<EventKind> {
    let base = message.get_base_message();
    let chat_id = plain(&info.source.chat);
    let from = Some(author(info));
    if let Some(reaction) = base.reaction_message.as_option() {
        let emoji: Vec<String> = reaction.text.clone().filter(|text| !text.is_empty()).into_iter().collect();
        let message_id = key_id(reaction.key.as_option())?;
        return Some(EventKind::Reaction(Reaction { chat_id, message_id, from, emoji, removed: None }));
    }
    if let Some(protocol) = base.protocol_message.as_option() {
        let message_id = key_id(protocol.key.as_option());
        return match protocol.r#type {
            Some(protocol_message::Type::REVOKE) => {
                Some(EventKind::Revoked(MessageRef { chat_id, message_id: message_id? }))
            }
            Some(protocol_message::Type::MESSAGE_EDIT) => {
                let edited = protocol.edited_message.as_option()?;
                let told = Message { message_id: message_id?, ..told(edited.get_base_message(), info) };
                Some(EventKind::MessageEdited(told))
            }
            // Keys, history and settings among the account's own devices.
            _ => None,
        };
    }
    let told = told(base, info);
    if told.text.is_none() && told.media.is_none() && told.location.is_none() && is_technical(base) {
        return None;
    }
    if info.source.is_from_me {
        let raw = serde_json::to_value(&told).unwrap_or_default();
        return Some(EventKind::Other(Other { update: "message.sent_elsewhere".to_owned(), raw }));
    }
    Some(EventKind::MessageReceived(told))
}

/// A sender key alone: it comes with a group's messages, and with nobody's words.
fn is_technical(message: &wa::Message) -> bool {
    let mut rest = message.clone();
    rest.sender_key_distribution_message = Default::default();
    rest.message_context_info = Default::default();
    message_to_vec(&rest).is_empty()
}

fn told(message: &wa::Message, info: &MessageInfo) -> Message {
    let text = message.text_content().or_else(|| message.get_caption()).map(str::to_owned);
    let context = context(message);
    let media = media(message, info);
    let location = location(message);
    let mut raw = Map::new();
    if text.is_none() && media.is_none() && location.is_none() {
        raw.insert("message".to_owned(), STANDARD.encode(message_to_vec(message)).into());
    }
    if let Some(context) = context
        && !context.mentioned_jid.is_empty()
    {
        raw.insert("mentions".to_owned(), json!(context.mentioned_jid));
    }
    if let Some(alt) = &info.source.sender_alt {
        raw.insert("sender_alt".to_owned(), plain(alt).into());
    }
    Message {
        message_id: info.id.clone(),
        chat_id: plain(&info.source.chat),
        from: Some(author(info)),
        chat_type: Some(chat_type(&info.source).to_owned()),
        text,
        reply_to: context.and_then(|context| context.stanza_id.clone()).filter(|id| !id.is_empty()),
        thread_id: None,
        media,
        location,
        raw: (!raw.is_empty()).then_some(Value::Object(raw)),
    }
}

fn author(info: &MessageInfo) -> Author {
    let name = Some(info.push_name.clone()).filter(|name| !name.is_empty());
    Author { id: plain(&info.source.sender), name, username: None, is_bot: false }
}

fn chat_type(source: &MessageSource) -> &'static str {
    if source.chat.is_newsletter() || source.chat.is_status_broadcast() {
        "channel"
    } else if source.is_group || source.chat.is_group() {
        "group"
    } else {
        "private"
    }
}

fn key_id(key: Option<&wa::MessageKey>) -> Option<String> {
    key.and_then(|key| key.id.clone()).filter(|id| !id.is_empty())
}

fn context(message: &wa::Message) -> Option<&wa::ContextInfo> {
    let contexts = [
        message.extended_text_message.as_option().map(|part| &part.context_info),
        message.image_message.as_option().map(|part| &part.context_info),
        message.video_message.as_option().map(|part| &part.context_info),
        message.audio_message.as_option().map(|part| &part.context_info),
        message.document_message.as_option().map(|part| &part.context_info),
        message.sticker_message.as_option().map(|part| &part.context_info),
        message.location_message.as_option().map(|part| &part.context_info),
    ];
    contexts.into_iter().flatten().find_map(|context| context.as_option())
}

fn location(message: &wa::Message) -> Option<Location> {
    if let Some(place) = message.location_message.as_option() {
        return Some(Location {
            latitude: place.degrees_latitude?,
            longitude: place.degrees_longitude?,
            title: place.name.clone().filter(|name| !name.is_empty()),
            address: place.address.clone().filter(|address| !address.is_empty()),
        });
    }
    let place = message.live_location_message.as_option()?;
    Some(Location {
        latitude: place.degrees_latitude?,
        longitude: place.degrees_longitude?,
        title: None,
        address: None,
    })
}

/// What `download_media` needs again, besides the reference.
fn extra(key: &Option<Vec<u8>>, sum: &Option<Vec<u8>>, sealed_sum: &Option<Vec<u8>>, info: &MessageInfo) -> Value {
    let encoded = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| STANDARD.encode(bytes));
    json!({
        "media_key": encoded(key),
        "file_sha256": encoded(sum),
        "file_enc_sha256": encoded(sealed_sum),
        "sender": plain(&info.source.sender),
        "from_me": info.source.is_from_me,
    })
}

fn media(message: &wa::Message, info: &MessageInfo) -> Option<Media> {
    // The kinds differ in their type and in who has a name.
    macro_rules! media {
        ($part:expr, $kind:expr, $name:expr) => {
            Media {
                kind: $kind.to_owned(),
                mime_type: $part.mimetype.clone(),
                file_name: $name,
                size: $part.file_length,
                reference: $part.direct_path.clone().or_else(|| $part.url.clone()).unwrap_or_default(),
                extra: Some(extra(&$part.media_key, &$part.file_sha256, &$part.file_enc_sha256, info)),
            }
        };
    }
    if let Some(part) = message.image_message.as_option() {
        return Some(media!(part, "image", None));
    }
    if let Some(part) = message.video_message.as_option() {
        return Some(media!(part, "video", None));
    }
    if let Some(part) = message.ptv_message.as_option() {
        return Some(media!(part, "video_note", None));
    }
    if let Some(part) = message.audio_message.as_option() {
        return Some(media!(part, if part.ptt == Some(true) { "voice" } else { "audio" }, None));
    }
    if let Some(part) = message.document_message.as_option() {
        return Some(media!(part, "document", part.file_name.clone()));
    }
    let part = message.sticker_message.as_option()?;
    Some(media!(part, "sticker", None))
}
