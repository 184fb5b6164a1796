//! What was said before a device was linked, as the phone hands it over: compressed, encrypted, and fetched from the
//! media host, or in the notification itself.

use buffa::MessageField;
use wacore::{download::MediaType, proto_helpers::MessageBuilderExt as _, upload::encrypt_media};
use waproto::whatsapp::{
    Conversation, HistorySync, HistorySyncMsg, Message, MessageKey, Pushname, WebMessageInfo,
    history_sync::HistorySyncType,
    message::{
        AppStateSyncKey, AppStateSyncKeyData, AppStateSyncKeyFingerprint, AppStateSyncKeyId, AppStateSyncKeyShare,
        HistorySyncNotification, ProtocolMessage, protocol_message,
    },
};

use super::PhoneError;
use crate::whatsapp::{Server, node::now};

/// A message of old times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Old {
    /// Its id.
    pub id: String,
    /// Whether the phone's owner wrote it.
    pub from_me: bool,
    /// What it says.
    pub text: String,
    /// When, in seconds since 1970.
    pub at: u64,
}

/// A chat of old times, oldest message first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The chat: `<number>@s.whatsapp.net` or `<id>@g.us`.
    pub chat: String,
    /// What the chat is called.
    pub name: String,
    /// What was said.
    pub messages: Vec<Old>,
}

impl History {
    /// A chat in which so many messages were said, one a minute, the last one a minute ago.
    pub fn of(chat: &str, name: &str, messages: usize) -> Self {
        let start = now().saturating_sub(60 * messages as u64);
        let old = |place: usize| Old {
            id: format!("OLD{place:08X}"),
            from_me: place % 2 == 1,
            text: format!("message {place} of old times"),
            at: start + 60 * place as u64,
        };
        Self { chat: chat.to_owned(), name: name.to_owned(), messages: (0..messages).map(old).collect() }
    }

    fn conversation(&self) -> Conversation {
        let last = self.messages.last().map(|old| old.at);
        Conversation {
            id: self.chat.clone(),
            name: Some(self.name.clone()),
            // The newest comes first.
            messages: self.messages.iter().rev().zip(1..).map(|(old, place)| self.message(old, place)).collect(),
            conversation_timestamp: last,
            last_msg_timestamp: last,
            ..Default::default()
        }
    }

    fn message(&self, old: &Old, place: u64) -> HistorySyncMsg {
        let key = MessageKey {
            remote_jid: Some(self.chat.clone()),
            from_me: Some(old.from_me),
            id: Some(old.id.clone()),
            ..Default::default()
        };
        let message = WebMessageInfo {
            key: MessageField::some(key),
            message: MessageField::some(Message::text(old.text.clone())),
            message_timestamp: Some(old.at),
            ..Default::default()
        };
        HistorySyncMsg { message: MessageField::some(message), msg_order_id: Some(place) }
    }
}

/// One portion of what is handed over.
pub(super) struct Portion<'a> {
    pub(super) kind: HistorySyncType,
    pub(super) chats: &'a [History],
    pub(super) number: &'a str,
    pub(super) name: &'a str,
    pub(super) chunk: u32,
    pub(super) progress: u32,
    /// The request that it answers.
    pub(super) request: Option<String>,
}

impl Portion<'_> {
    /// The notification of it; the portion itself lies on the media host from now on.
    pub(super) fn notification(&self, server: &Server) -> Result<Message, PhoneError> {
        let pushname =
            Pushname { id: Some(format!("{}@s.whatsapp.net", self.number)), pushname: Some(self.name.to_owned()) };
        let sync = HistorySync {
            sync_type: self.kind,
            conversations: self.chats.iter().map(History::conversation).collect(),
            chunk_order: Some(self.chunk),
            progress: Some(self.progress),
            pushnames: vec![pushname],
            ..Default::default()
        };
        let compressed = compress(&waproto::codec::history_sync_to_vec(&sync))?;
        let encrypted =
            encrypt_media(&compressed, MediaType::History).map_err(|error| PhoneError::Media(error.to_string()))?;
        let path = server.media.put("md-msg-hist", encrypted.data_to_upload);
        let notification = HistorySyncNotification {
            file_sha256: Some(encrypted.file_sha256.to_vec()),
            file_length: Some(compressed.len() as u64),
            media_key: Some(encrypted.media_key.to_vec()),
            file_enc_sha256: Some(encrypted.file_enc_sha256.to_vec()),
            direct_path: Some(path),
            sync_type: notified(self.kind),
            chunk_order: Some(self.chunk),
            progress: Some(self.progress),
            peer_data_request_session_id: self.request.clone(),
            ..Default::default()
        };
        Ok(protocol(ProtocolMessage {
            r#type: Some(protocol_message::Type::HISTORY_SYNC_NOTIFICATION),
            history_sync_notification: MessageField::some(notification),
            ..Default::default()
        }))
    }
}

/// The same kinds under the name that the notification has for them.
fn notified(kind: HistorySyncType) -> Option<waproto::whatsapp::message::HistorySyncType> {
    use waproto::whatsapp::message::HistorySyncType as Notified;
    Some(match kind {
        HistorySyncType::INITIAL_BOOTSTRAP => Notified::INITIAL_BOOTSTRAP,
        HistorySyncType::RECENT => Notified::RECENT,
        HistorySyncType::PUSH_NAME => Notified::PUSH_NAME,
        HistorySyncType::ON_DEMAND => Notified::ON_DEMAND,
        HistorySyncType::FULL => Notified::FULL,
        HistorySyncType::INITIAL_STATUS_V3 => Notified::INITIAL_STATUS_V3,
        HistorySyncType::NON_BLOCKING_DATA => Notified::NON_BLOCKING_DATA,
    })
}

/// The key that an account's devices encrypt with what they sync among themselves.
pub(super) fn key_share(id: &[u8], key: &[u8], raw_id: u32, indexes: Vec<u32>) -> Message {
    let fingerprint = AppStateSyncKeyFingerprint {
        raw_id: Some(raw_id),
        current_index: indexes.iter().max().copied(),
        device_indexes: indexes,
    };
    let data = AppStateSyncKeyData {
        key_data: Some(key.to_vec()),
        fingerprint: MessageField::some(fingerprint),
        timestamp: Some(i64::try_from(now() * 1000).unwrap_or_default()),
    };
    let key = AppStateSyncKey {
        key_id: MessageField::some(AppStateSyncKeyId { key_id: Some(id.to_vec()) }),
        key_data: MessageField::some(data),
    };
    protocol(ProtocolMessage {
        r#type: Some(protocol_message::Type::APP_STATE_SYNC_KEY_SHARE),
        app_state_sync_key_share: MessageField::some(AppStateSyncKeyShare { keys: vec![key] }),
        ..Default::default()
    })
}

/// A message of the protocol's own.
pub(super) fn protocol(message: ProtocolMessage) -> Message {
    Message { protocol_message: MessageField::some(message), ..Default::default() }
}

fn compress(plain: &[u8]) -> Result<Vec<u8>, PhoneError> {
    let mut output = vec![0; zlib_rs::compress_bound(plain.len())];
    let (written, code) = zlib_rs::compress_slice(&mut output, plain, zlib_rs::DeflateConfig::default());
    if code != zlib_rs::ReturnCode::Ok {
        return Err(PhoneError::Media(format!("history can't be compressed: {code:?}")));
    }
    let length = written.len();
    output.truncate(length);
    Ok(output)
}
