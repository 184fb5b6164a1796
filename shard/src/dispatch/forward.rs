//! Messages on their way to another queue: one channel's one after another, since their order is all that says which of
//! them comes first there; channels side by side.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tracing::warn;

use crate::{
    identity::{ChannelId, QueueName},
    queue::{Key, Message, Queue, QueueError, Receipt},
};

/// How long to leave a queue alone that can't be written to.
const PAUSE: Duration = Duration::from_secs(1);

/// A message that belongs elsewhere.
pub(super) struct Parcel {
    pub(super) channel: ChannelId,
    pub(super) receipt: Receipt,
    pub(super) to: QueueName,
    pub(super) message: Message,
    /// The delivery whose lane waits for it.
    pub(super) key: Option<Key>,
}

/// What is on its way, or waits for its channel's turn.
#[derive(Default)]
pub(super) struct Forwarding {
    lines: HashMap<ChannelId, VecDeque<Parcel>>,
    parcels: usize,
}

impl Forwarding {
    /// Takes a parcel in; it comes back when it can go at once.
    pub(super) fn enter(&mut self, parcel: Parcel) -> Option<Parcel> {
        self.parcels += 1;
        match self.lines.get_mut(&parcel.channel) {
            Some(line) => {
                line.push_back(parcel);
                None
            }
            None => {
                self.lines.insert(parcel.channel, VecDeque::new());
                Some(parcel)
            }
        }
    }

    /// A channel's parcel has arrived: the next one may go.
    pub(super) fn next(&mut self, channel: ChannelId) -> Option<Parcel> {
        self.parcels -= 1;
        let next = self.lines.get_mut(&channel).and_then(VecDeque::pop_front);
        if next.is_none() {
            self.lines.remove(&channel);
        }
        next
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.parcels
    }

    /// Gives back what has not set off.
    pub(super) fn give_up(&mut self) -> Vec<Receipt> {
        let waiting: Vec<_> = self.lines.values_mut().flat_map(std::mem::take).map(|parcel| parcel.receipt).collect();
        self.parcels -= waiting.len();
        waiting
    }
}

/// To another queue, which is declared should it not be there yet.
async fn forward(queue: &dyn Queue, receipt: &Receipt, to: QueueName, message: Message) -> Result<(), QueueError> {
    match queue.forward(again(receipt), to, message.clone()).await {
        Err(QueueError::Missing { .. }) => {
            queue.declare(to).await?;
            queue.forward(again(receipt), to, message).await
        }
        done => done,
    }
}

/// The same, to where it is read before the queue itself.
pub(super) async fn forward_straggler(
    queue: &dyn Queue,
    receipt: &Receipt,
    to: QueueName,
    message: Message,
) -> Result<(), QueueError> {
    match queue.forward_straggler(again(receipt), to, message.clone()).await {
        Err(QueueError::Missing { .. }) => {
            queue.declare(to).await?;
            queue.forward_straggler(again(receipt), to, message).await
        }
        done => done,
    }
}

fn again(receipt: &Receipt) -> Receipt {
    Receipt { queue: receipt.queue, tag: receipt.tag, session: receipt.session }
}

/// The same for as long as it takes: that another queue can't be written to is no reason to end the session of ours.
pub(super) async fn forward_whatever_it_takes(
    queue: &dyn Queue,
    receipt: Receipt,
    to: QueueName,
    message: Message,
) -> Result<(), QueueError> {
    let mut told = false;
    loop {
        match forward(queue, &receipt, to, message.clone()).await {
            Ok(()) => return Ok(()),
            Err(error @ (QueueError::Stale { .. } | QueueError::Fenced { .. })) => return Err(error),
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    warn!(from = %receipt.queue, %to, %error, "a job can't be forwarded; trying until it can");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
