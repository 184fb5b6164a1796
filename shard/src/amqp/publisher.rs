//! The one way into the broker: everything is published in the order of the calls, persistent, mandatory and confirmed,
//! many at a time.
//!
//! The client hands a message that came back to whichever confirm it completes next, which need not be that of the same
//! message. So each carries a key, and an outcome is told when all confirms of its batch are there and what came back among them
//! has found its owner: a message to a queue that is missing is never taken for a stored one.
//!
//! A quorum queue is known to the broker a little before it can take anything: what is published to it then is refused. So on
//! each channel the first message to a queue goes alone, and is offered again while it is refused; those after it wait behind
//! it. A refusal later than that means a queue that is full, and is told.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    pin::Pin,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
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

/// How long a queue's first message is offered again.
const OPENING: Duration = Duration::from_secs(3);
const OFFERED_AGAIN: Duration = Duration::from_millis(25);

struct Letter {
    queue: String,
    properties: BasicProperties,
    body: Bytes,
    done: oneshot::Sender<Result<(), Cause>>,
    first: Option<First>,
}

/// The first message to its queue on this channel.
#[derive(Clone, Copy)]
struct First {
    until: Instant,
    pause: Duration,
}

impl First {
    fn now() -> Self {
        Self { until: Instant::now() + OPENING, pause: OFFERED_AGAIN }
    }

    /// The pause before the next try, if there is one.
    fn again(self) -> Option<Self> {
        (Instant::now() + self.pause < self.until).then_some(Self { until: self.until, pause: self.pause * 2 })
    }
}

/// What is known of a queue on this channel.
enum Queue {
    /// Its first message is under way, and these wait.
    Opening(VecDeque<Letter>),
    Open,
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
        let _ = letters.send(Letter { queue, properties, body, done, first: None });
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
type Pausing = Pin<Box<dyn Future<Output = Letter> + Send>>;

/// Refused by the broker, which holds nothing of it.
struct Refused;

impl From<Refused> for Cause {
    fn from(Refused: Refused) -> Self {
        Self::Unavailable("the broker refused the message: the queue is full or failing".to_owned())
    }
}

/// Works the letters off.
struct Press {
    link: Arc<Link>,
    within: Duration,
    channel: Option<Channel>,
    confirming: FuturesUnordered<Confirming>,
    waiting: HashMap<u64, Letter>,
    queues: HashMap<String, Queue>,
    /// First messages that were refused, until they are offered again.
    pausing: FuturesUnordered<Pausing>,
    /// To be published before anything that is asked for from now on.
    next: VecDeque<Letter>,
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
            queues: HashMap::new(),
            pausing: FuturesUnordered::new(),
            next: VecDeque::new(),
            returned: HashSet::new(),
            next_key: 0,
        }
    }

    async fn run(mut self, mut letters: mpsc::UnboundedReceiver<Letter>) {
        let mut asked = true;
        loop {
            while let Some(letter) = self.next.pop_front() {
                self.take(letter).await;
            }
            tokio::select! {
                letter = letters.recv(), if asked => match letter {
                    Some(letter) => self.take(letter).await,
                    None => asked = false,
                },
                Some(first) = self.confirming.next() => self.confirmed(first),
                Some(letter) = self.pausing.next() => self.take(letter).await,
                else => break,
            }
        }
    }

    async fn take(&mut self, mut letter: Letter) {
        if letter.done.is_closed() {
            // Whoever asked has been told that it did not happen.
            if letter.first.is_some() {
                self.opened(&letter.queue, false);
            }
            return;
        }
        let channel = match self.channel().await {
            Ok(channel) => channel,
            Err(error) => {
                if letter.first.is_some() {
                    self.opened(&letter.queue, false);
                }
                return drop(letter.done.send(Err(error)));
            }
        };
        if letter.first.is_none() {
            match self.queues.get_mut(&letter.queue) {
                Some(Queue::Open) => {}
                Some(Queue::Opening(behind)) => return behind.push_back(letter),
                None => {
                    self.queues.insert(letter.queue.clone(), Queue::Opening(VecDeque::new()));
                    letter.first = Some(First::now());
                }
            }
        }
        let key = self.next_key;
        self.next_key += 1;
        let (queue, properties) = match letter.first {
            Some(_) => (letter.queue.clone(), letter.properties.clone()),
            None => (std::mem::take(&mut letter.queue), std::mem::take(&mut letter.properties)),
        };
        let properties = properties.with_correlation_id(key.to_string().as_str().into());
        let mut confirming = Box::pin(publish(channel, key, queue, properties, letter.body.clone()));
        self.waiting.insert(key, letter);
        // Polled once here, so that it is written before the next one.
        match confirming.as_mut().now_or_never() {
            Some(outcome) => self.confirmed(outcome),
            None => self.confirming.push(confirming),
        }
    }

    /// The first message to a queue has its outcome: what waited behind it is next.
    fn opened(&mut self, queue: &str, open: bool) {
        let before = if open { self.queues.insert(queue.to_owned(), Queue::Open) } else { self.queues.remove(queue) };
        if let Some(Queue::Opening(behind)) = before {
            self.next.extend(behind);
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
        // A queue whose first message is under way learns from that message's own outcome.
        self.queues.retain(|_, queue| matches!(queue, Queue::Opening(_)));
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
            let outcome = if self.returned.remove(&key) { Ok(Err(Cause::Missing)) } else { outcome };
            if let Some(letter) = self.waiting.remove(&key) {
                self.settle(letter, outcome);
            }
        }
        if self.waiting.is_empty() {
            self.returned.clear();
        }
    }

    fn settle(&mut self, mut letter: Letter, outcome: Result<Result<(), Cause>, Refused>) {
        if let Some(first) = letter.first {
            if let (Err(Refused), Some(again)) = (&outcome, first.again()) {
                letter.first = Some(again);
                return self.pausing.push(Box::pin(async move {
                    tokio::time::sleep(first.pause).await;
                    letter
                }));
            }
            if outcome.is_err()
                && let Some(Queue::Opening(behind)) = self.queues.remove(&letter.queue)
            {
                behind.into_iter().for_each(|letter| drop(letter.done.send(Err(Refused.into()))));
            }
            self.opened(&letter.queue, matches!(outcome, Ok(Ok(()))));
        }
        let _ = letter.done.send(outcome.unwrap_or_else(|refused| Err(refused.into())));
    }

    fn sort(
        &mut self,
        (key, outcome): (u64, Result<Confirmation, lapin::Error>),
    ) -> (u64, Result<Result<(), Cause>, Refused>) {
        let (outcome, returned) = match outcome {
            Ok(Confirmation::Ack(returned)) => (Ok(Ok(())), returned),
            Ok(Confirmation::Nack(returned)) => (Err(Refused), returned),
            Ok(Confirmation::NotRequested) => {
                (Ok(Err(Cause::Unavailable("the broker does not confirm".to_owned()))), None)
            }
            Err(error) => (Ok(Err(Cause::from(error))), None),
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
