//! History: what the phone sends at pairing and when asked, told in batches; and from where to ask further back.
//!
//! It is inflated and read on a blocking thread, conversation by conversation, and stored piece by piece, so that a storm
//! of it neither fills the memory nor holds up anybody's messages. The phone gives what is older than a message we name:
//! the first one known of each chat is kept with the session.

use std::{collections::HashSet, sync::Arc, sync::Mutex};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, mpsc};
use whatsapp_rust::{
    types::events::{InboundMessage, LazyHistorySync},
    wacore::proto_helpers::MessageExt,
    waproto::whatsapp as wa,
};

use super::content::plain;
use crate::{
    event::{Event, EventKind},
    identity::ChannelId,
    platform::{Inbox, PlatformKind},
    session::{Anchor, DeviceSession, HistoryName, history_name},
};

/// Messages in one event.
const PIECE: usize = 50;
/// Chats of which it is remembered that their anchor is stored.
const REMEMBERED: usize = 1024;

/// Keeps the first known message of each chat.
pub(super) struct Anchors {
    session: Arc<DeviceSession>,
    known: Mutex<HashSet<String>>,
}

impl Anchors {
    pub(super) fn new(session: Arc<DeviceSession>) -> Arc<Self> {
        Arc::new(Self { session, known: Mutex::default() })
    }

    /// Takes in what was received. An anchor that can't be stored breaks the session, which ends the connection.
    pub(super) async fn note(&self, batch: &[InboundMessage]) {
        let mut new = Vec::new();
        {
            let mut known = self.known.lock().expect("known");
            if known.len() >= REMEMBERED {
                known.clear();
            }
            for item in batch {
                let chat = plain(&item.info.source.chat);
                if known.insert(chat.clone()) {
                    let anchor = Anchor {
                        message_id: item.info.id.clone(),
                        from_me: item.info.source.is_from_me,
                        timestamp_ms: item.info.timestamp.timestamp_millis(),
                    };
                    new.push((chat, anchor));
                }
            }
        }
        for (chat, anchor) in new {
            if self.session.keep_anchor(&chat, &anchor).await.is_err() {
                return;
            }
        }
    }
}

/// Reads histories and stores them, beside everything else.
///
/// The phone has been told by then that it need not send one again, so that it is kept with the session until it is told
/// whole: what a death or a full disk breaks off goes on with the next connection.
pub(super) struct Histories {
    channel: ChannelId,
    inbox: Arc<dyn Inbox>,
    session: Arc<DeviceSession>,
    shared: Arc<UnderWay>,
}

/// Which histories are being read in this shard, and how many at a time.
pub(super) struct UnderWay {
    room: Semaphore,
    names: Mutex<HashSet<(ChannelId, HistoryName)>>,
}

impl UnderWay {
    pub(super) fn new(at_a_time: usize) -> Arc<Self> {
        Arc::new(Self { room: Semaphore::new(at_a_time), names: Mutex::default() })
    }
}

impl Histories {
    pub(super) fn new(
        channel: ChannelId,
        inbox: &Arc<dyn Inbox>,
        session: &Arc<DeviceSession>,
        shared: &Arc<UnderWay>,
    ) -> Arc<Self> {
        let (inbox, session, shared) = (inbox.clone(), session.clone(), shared.clone());
        Arc::new(Self { channel, inbox, session, shared })
    }

    /// Takes one that came. Kept before this returns, or the session is broken.
    pub(super) async fn take(self: &Arc<Self>, history: LazyHistorySync) {
        let name = history_name(&history);
        if self.session.keep_history(&name, &history).await.is_ok() {
            self.read_beside(name, history);
        }
    }

    /// Goes on with those that an earlier connection did not tell whole.
    pub(super) async fn go_on(self: &Arc<Self>) {
        for (name, history) in self.session.kept_histories().await.unwrap_or_default() {
            self.read_beside(name, history);
        }
    }

    fn read_beside(self: &Arc<Self>, name: HistoryName, history: LazyHistorySync) {
        let (this, key) = (self.clone(), (self.channel, name));
        if !self.shared.names.lock().expect("names").insert(key) {
            return;
        }
        tokio::spawn(async move {
            if this.tell(history).await {
                // Should it stay, it is told again under the same ids.
                let _ = this.session.forget_history(&name).await;
            }
            this.shared.names.lock().expect("names").remove(&key);
        });
    }

    /// Whether nothing of it is left to tell.
    async fn tell(&self, history: LazyHistorySync) -> bool {
        let Ok(_permit) = self.shared.room.acquire().await else { return false };
        let (channel, (sender, mut pieces)) = (self.channel, mpsc::channel(2));
        let read = tokio::task::spawn_blocking(move || read(channel, &history, &sender));
        while let Some(Piece { event, chat, oldest }) = pieces.recv().await {
            if self.inbox.store(vec![event], None).await.is_err() {
                // Not ours any more, or no disk.
                return false;
            }
            if let Some(oldest) = oldest
                && self.session.move_anchor(&chat, &oldest).await.is_err()
            {
                return false;
            }
        }
        match read.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(%channel, %error, "a history could not be read to its end");
                true
            }
            Err(_) => false,
        }
    }
}

struct Piece {
    event: Event,
    chat: String,
    /// The oldest message of the chat in this piece.
    oldest: Option<Anchor>,
}

fn read(channel: ChannelId, history: &LazyHistorySync, pieces: &mpsc::Sender<Piece>) -> Result<(), String> {
    let mut stream = history.stream();
    while let Some(conversation) = stream.next_conversation().map_err(|error| error.to_string())? {
        for messages in conversation.messages.chunks(PIECE) {
            let told: Vec<Value> = messages.iter().filter_map(|message| told(message.message.as_option()?)).collect();
            if told.is_empty() {
                continue;
            }
            let oldest = messages.iter().filter_map(|message| anchor(message.message.as_option()?));
            let oldest = oldest.min_by_key(|anchor| anchor.timestamp_ms);
            let piece =
                Piece { event: event(channel, history, &conversation.id, told), chat: conversation.id.clone(), oldest };
            if pieces.blocking_send(piece).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn event(channel: ChannelId, history: &LazyHistorySync, chat: &str, messages: Vec<Value>) -> Event {
    let first = messages.first().and_then(|message| message["message_id"].as_str()).unwrap_or_default().to_owned();
    let mut data = Map::new();
    data.insert("chat_id".to_owned(), chat.into());
    data.insert("sync_type".to_owned(), history.sync_type().into());
    data.insert("progress".to_owned(), history.progress().into());
    data.insert("messages".to_owned(), messages.into());
    let key = format!("history/{chat}/{first}");
    Event::new(
        channel,
        PlatformKind::Whatsapp,
        Some(chat.to_owned()),
        Timestamp::now(),
        &key,
        EventKind::HistoryBatch(data),
    )
}

fn anchor(info: &wa::WebMessageInfo) -> Option<Anchor> {
    let key = info.key.as_option()?;
    Some(Anchor {
        message_id: key.id.clone()?,
        from_me: key.from_me.unwrap_or_default(),
        timestamp_ms: i64::try_from(info.message_timestamp?).ok()?.saturating_mul(1000),
    })
}

fn told(info: &wa::WebMessageInfo) -> Option<Value> {
    let key = info.key.as_option()?;
    let message = info.message.as_option()?.get_base_message();
    let text = message.text_content().or_else(|| message.get_caption());
    Some(json!({
        "message_id": key.id,
        "from_me": key.from_me.unwrap_or_default(),
        "from": info.participant.clone().or_else(|| key.participant.clone()),
        "name": info.push_name,
        "timestamp": info.message_timestamp,
        "text": text,
    }))
}
