//! Telling the broker what is done with. An acknowledgement has no answer; so something is asked behind it that has one:
//! when that comes, the process may die and the message will not come again. Acknowledgements that wait share the question.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lapin::{Channel, options::BasicAckOptions};
use tokio::sync::Mutex as AsyncMutex;

use super::{
    Shared,
    index::{Ack, Source},
    reader::Held,
    topology,
};

/// Acknowledgements on one channel.
#[derive(Default)]
pub(super) struct Told {
    sent: AtomicU64,
    /// So many of them have certainly been heard.
    heard: AsyncMutex<u64>,
}

/// Those of all channels that are held.
pub(super) type AllTold = HashMap<Source, Arc<Told>>;

impl Held {
    fn way(&mut self, source: Source) -> Option<(Channel, Arc<Told>)> {
        Some((self.channel(source)?, self.told.entry(source).or_default().clone()))
    }
}

impl Shared {
    /// Tells the broker, and goes on.
    pub(super) async fn ack(&self, acks: impl IntoIterator<Item = Ack>) {
        for ack in acks {
            let channel = self.state().held.as_ref().and_then(|held| held.channel(ack.source));
            if let Some(channel) = channel {
                // Should it not get there, the message comes again, and it is known then.
                let _ = channel.basic_ack(ack.tag, BasicAckOptions::default()).await;
            }
        }
    }

    /// Tells the broker, and waits until it has heard. A channel that ends meanwhile may leave that open; the message comes
    /// again then, and is known as long as this process lives.
    pub(super) async fn settle(&self, ack: Ack) {
        let way = self.state().held.as_mut().and_then(|held| held.way(ack.source));
        let Some((channel, told)) = way else { return };
        if channel.basic_ack(ack.tag, BasicAckOptions::default()).await.is_err() {
            return;
        }
        let number = told.sent.fetch_add(1, Ordering::Relaxed) + 1;
        let mut heard = told.heard.lock().await;
        if *heard >= number {
            return;
        }
        let all = told.sent.load(Ordering::Relaxed);
        let queue = ack.source.map_or_else(|| self.names.main.clone(), |group| self.names.aside(group));
        if topology::count(&channel, &self.config, &queue).await.is_ok() {
            *heard = all;
        }
    }
}
