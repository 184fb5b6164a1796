//! What stands between a decrypted message and its acknowledgement: the outbox.
//!
//! The library calls it when the message and the ratchet step that opened it are on the disk, and acknowledges only after
//! it has returned. Told twice after a death in between, an event has the same id, and is stored once.

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use whatsapp_rust::{Client, InboundDurabilityHook, anyhow, async_trait, types::events::InboundMessage};

use super::{content, history::Anchors};
use crate::{
    identity::ChannelId,
    platform::{Closed, Inbox},
};

/// Stores what was received.
#[derive(Clone)]
pub(super) struct Hook {
    pub(super) channel: ChannelId,
    pub(super) inbox: Arc<dyn Inbox>,
    pub(super) anchors: Arc<Anchors>,
    refused: Arc<Mutex<Option<Closed>>>,
    stop: CancellationToken,
}

impl Hook {
    pub(super) fn new(channel: ChannelId, inbox: Arc<dyn Inbox>, anchors: Arc<Anchors>) -> Self {
        Self { channel, inbox, anchors, refused: Arc::default(), stop: CancellationToken::new() }
    }

    /// Cancelled when something could not be stored: the connection must end, so that it is told again.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Why.
    pub(super) fn refused(&self) -> Option<Closed> {
        self.refused.lock().expect("refused").clone()
    }
}

#[async_trait]
impl InboundDurabilityHook for Hook {
    async fn on_messages(&self, _: Arc<Client>, batch: &[InboundMessage]) -> anyhow::Result<()> {
        let told = batch.iter().filter_map(|item| content::event(self.channel, &item.message, &item.info));
        let events: Vec<_> = told.collect();
        if events.is_empty() {
            return Ok(());
        }
        if let Err(closed) = self.inbox.store(events, None).await {
            self.refused.lock().expect("refused").get_or_insert(closed);
            self.stop.cancel();
            return Err(anyhow::anyhow!("not stored"));
        }
        self.anchors.note(batch).await;
        Ok(())
    }
}
