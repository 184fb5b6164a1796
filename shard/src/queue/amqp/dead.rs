//! Dead letters on a broker: looked through one by one, and put back by closing the channel that held them.
//!
//! Two processes that look at the same time each see a part; who does not find what it looks for looks again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lapin::{
    Channel,
    options::{BasicAckOptions, BasicGetOptions},
};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::{
    super::{DeadLetter, Headers, Message},
    config::AmqpConfig,
    error::{Cause, answered},
    ledger::Tag,
    link::Link,
    publisher::Publisher,
    wire::{self, Place},
};
use crate::identity::QueueName;

/// How often to look for a letter that is not found.
const LOOKS: usize = 3;

/// The dead letters of all queues.
pub(super) struct DeadLetters {
    link: Arc<Link>,
    config: Arc<AmqpConfig>,
    /// One look at a time within this process.
    turn: Mutex<()>,
}

impl DeadLetters {
    pub(super) fn new(link: Arc<Link>, config: Arc<AmqpConfig>) -> Self {
        Self { link, config, turn: Mutex::new(()) }
    }

    /// The letters after a number, oldest first.
    pub(super) async fn list(&self, queue: QueueName, after: u64, limit: usize) -> Result<Vec<DeadLetter>, Cause> {
        let _turn = self.turn.lock().await;
        let channel = self.link.live().await?.channel().await?;
        // All are looked at: they need not lie in the order of their numbers.
        let mut letters = BTreeMap::new();
        while let Some((_, letter)) = self.next(&channel, queue).await? {
            if letter.number > after {
                letters.insert(letter.number, letter);
                if letters.len() > limit {
                    letters.pop_last();
                }
            }
        }
        let _ = channel.close(200, "".into()).await;
        Ok(letters.into_values().collect())
    }

    /// Takes a letter out, after it has been published to `to` should there be one. `false` when it is not there.
    pub(super) async fn take(
        &self,
        queue: QueueName,
        number: u64,
        to: Option<(QueueName, &Publisher)>,
    ) -> Result<bool, Cause> {
        let _turn = self.turn.lock().await;
        for look in 0..LOOKS {
            if look > 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let channel = self.link.live().await?.channel().await?;
            let mut found = None;
            while found.is_none() {
                let Some((tag, letter)) = self.next(&channel, queue).await? else { break };
                found = (letter.number == number).then_some((tag, letter));
            }
            if let Some((tag, letter)) = found {
                let moved = self.end(&channel, tag, letter, to).await;
                let _ = channel.close(200, "".into()).await;
                return moved.map(|()| true);
            }
            let _ = channel.close(200, "".into()).await;
        }
        Ok(false)
    }

    async fn end(
        &self,
        channel: &Channel,
        tag: Tag,
        letter: DeadLetter,
        to: Option<(QueueName, &Publisher)>,
    ) -> Result<(), Cause> {
        if let Some((to, publisher)) = to {
            let headers = Headers { foreign: letter.message.headers.foreign, ..Headers::default() };
            let properties = wire::encode(&headers, &Place::default());
            publisher.publish(to.to_string(), properties, letter.message.body).await?;
        }
        answered(self.config.answer_timeout, channel.basic_ack(tag, BasicAckOptions::default())).await
    }

    async fn next(&self, channel: &Channel, queue: QueueName) -> Result<Option<(Tag, DeadLetter)>, Cause> {
        let got = channel.basic_get(queue.dead().as_str().into(), BasicGetOptions::default());
        let Some(got) = answered(self.config.answer_timeout, got).await? else { return Ok(None) };
        let raw = got.delivery;
        let (message, place) = wire::decode(raw.properties, raw.data);
        let number = place.number.unwrap_or_else(|| number_of(&message));
        Ok(Some((raw.delivery_tag, DeadLetter { number, message })))
    }
}

/// A number for a letter that was not buried by us: the same whenever it is looked at, and before all of ours.
fn number_of(message: &Message) -> u64 {
    let digest = Sha256::digest(&message.body);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    (u64::from_be_bytes(first) >> 24).max(1)
}
