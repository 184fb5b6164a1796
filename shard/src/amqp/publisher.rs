//! The one way into the broker: everything is published in the order of the calls, persistent, mandatory and confirmed,
//! many at a time.
//!
//! The client hands a message that came back to whichever confirm it completes next, which need not be that of the same
//! message. So each carries a key, and an outcome is told when all confirms of its batch are there and what came back among them
//! has found its owner: a message to a queue that is missing is never taken for a stored one.

use std::{
    collections::{HashMap, HashSet},
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use lapin::{BasicProperties, Channel, Confirmation, options::BasicPublishOptions, options::ConfirmSelectOptions};
use tokio::sync::{mpsc, oneshot};

use super::{
    config::AmqpConfig,
    error::{Cause, answered},
    link::Link,
};

struct Letter {
    queue: String,
    properties: BasicProperties,
    body: Bytes,
    done: oneshot::Sender<Result<(), Cause>>,
}

/// Publishes for everybody.
pub(crate) struct Publisher {
    link: Arc<Link>,
    config: Arc<AmqpConfig>,
    letters: OnceLock<mpsc::UnboundedSender<Letter>>,
}

impl Publisher {
    pub(crate) fn new(link: Arc<Link>, config: Arc<AmqpConfig>) -> Self {
        Self { link, config, letters: OnceLock::new() }
    }

    /// Whether the broker has stopped taking messages.
    pub(crate) fn is_blocked(&self) -> bool {
        self.link.is_blocked()
    }

    /// Puts a message at the end of a queue; it is there, durably, when what is returned becomes `Ok`. Its place is that of
    /// this call, whenever the outcome is waited for.
    pub(crate) fn publish(
        &self,
        queue: String,
        properties: BasicProperties,
        body: Bytes,
    ) -> impl Future<Output = Result<(), Cause>> + Send + use<> {
        let (done, outcome) = oneshot::channel();
        let letters = self.letters.get_or_init(|| {
            let (letters, box_) = mpsc::unbounded_channel();
            tokio::spawn(Press::new(self.link.clone(), self.config.answer_timeout).run(box_));
            letters
        });
        let _ = letters.send(Letter { queue, properties, body, done });
        let (within, link) = (self.config.confirm_timeout, self.link.clone());
        async move {
            match tokio::time::timeout(within, outcome).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => Err(Cause::Unavailable("publishing has ended".to_owned())),
                Err(_) if link.is_blocked() => {
                    Err(Cause::Unavailable("the broker takes nothing more, for want of memory or disk".to_owned()))
                }
                Err(_) => Err(Cause::Unavailable(format!("the broker did not confirm in {} s", within.as_secs()))),
            }
        }
    }
}

type Confirming = Pin<Box<dyn Future<Output = (u64, Result<Confirmation, lapin::Error>)> + Send>>;

/// Works the letters off.
struct Press {
    link: Arc<Link>,
    within: Duration,
    channel: Option<Channel>,
    confirming: FuturesUnordered<Confirming>,
    waiting: HashMap<u64, oneshot::Sender<Result<(), Cause>>>,
    /// Came back, and their own confirms have not come yet.
    returned: HashSet<u64>,
    next_key: u64,
}

impl Press {
    fn new(link: Arc<Link>, within: Duration) -> Self {
        Self {
            link,
            within,
            channel: None,
            confirming: FuturesUnordered::new(),
            waiting: HashMap::new(),
            returned: HashSet::new(),
            next_key: 0,
        }
    }

    async fn run(mut self, mut letters: mpsc::UnboundedReceiver<Letter>) {
        loop {
            tokio::select! {
                letter = letters.recv() => match letter {
                    Some(letter) => self.take(letter).await,
                    None => break,
                },
                Some(first) = self.confirming.next() => self.confirmed(first),
            }
        }
        while let Some(first) = self.confirming.next().await {
            self.confirmed(first);
        }
    }

    async fn take(&mut self, letter: Letter) {
        if letter.done.is_closed() {
            // Whoever asked has been told that it did not happen.
            return;
        }
        let channel = match self.channel().await {
            Ok(channel) => channel,
            Err(error) => return drop(letter.done.send(Err(error))),
        };
        let key = self.next_key;
        self.next_key += 1;
        let properties = letter.properties.with_correlation_id(key.to_string().as_str().into());
        let mut confirming = Box::pin(publish(channel, key, letter.queue, properties, letter.body));
        self.waiting.insert(key, letter.done);
        // Polled once here, so that it is written before the next one.
        match confirming.as_mut().now_or_never() {
            Some(outcome) => self.confirmed(outcome),
            None => self.confirming.push(confirming),
        }
    }

    async fn channel(&mut self) -> Result<Channel, Cause> {
        if let Some(channel) = self.channel.as_ref().filter(|channel| channel.status().connected()) {
            return Ok(channel.clone());
        }
        let live = self.link.live().await?;
        let channel = live.channel().await?;
        answered(self.within, channel.confirm_select(ConfirmSelectOptions::default())).await?;
        self.channel = Some(channel.clone());
        Ok(channel)
    }

    /// A confirm has come, and with it the others of its batch.
    fn confirmed(&mut self, first: (u64, Result<Confirmation, lapin::Error>)) {
        // The client completes a batch under one lock, which this waits for.
        if let Some(channel) = &self.channel {
            let _ = channel.wait_for_confirms().now_or_never();
        }
        let mut outcomes = vec![self.sort(first)];
        while let Some(Some(next)) = self.confirming.next().now_or_never() {
            let next = self.sort(next);
            outcomes.push(next);
        }
        for (key, outcome) in outcomes {
            let outcome = if self.returned.remove(&key) { Err(Cause::Missing) } else { outcome };
            if let Some(done) = self.waiting.remove(&key) {
                let _ = done.send(outcome);
            }
        }
        if self.waiting.is_empty() {
            self.returned.clear();
        }
    }

    fn sort(&mut self, (key, outcome): (u64, Result<Confirmation, lapin::Error>)) -> (u64, Result<(), Cause>) {
        let (outcome, returned) = match outcome {
            Ok(Confirmation::Ack(returned)) => (Ok(()), returned),
            Ok(Confirmation::Nack(returned)) => (
                Err(Cause::Unavailable("the broker refused the message: the queue is full or failing".into())),
                returned,
            ),
            Ok(Confirmation::NotRequested) => (Err(Cause::Unavailable("the broker does not confirm".into())), None),
            Err(error) => (Err(Cause::from(error)), None),
        };
        if let Some(returned) = returned {
            self.returned.extend(returned_key(&returned.delivery.properties));
        }
        (key, outcome)
    }
}

async fn publish(
    channel: Channel,
    key: u64,
    queue: String,
    properties: BasicProperties,
    body: Bytes,
) -> (u64, Result<Confirmation, lapin::Error>) {
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let confirm = channel.basic_publish("".into(), queue.as_str().into(), options, &body, properties).await;
    (
        key,
        match confirm {
            Ok(confirm) => confirm.await,
            Err(error) => Err(error),
        },
    )
}

/// The key of a message that came back.
fn returned_key(properties: &BasicProperties) -> Option<u64> {
    properties.correlation_id().as_ref()?.as_str().parse().ok()
}
