//! One subscription: a channel of its own with its own prefetch, so that a slow queue holds no other back.
//!
//! It ends when its channel does, for whatever reason: the broker restarted, a job was held longer than the broker allows, the queue
//! was deleted. The next subscription makes a new one; receipts of this one are stale from then on.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{Stream, future::join_all};
use lapin::{
    Channel,
    message::Delivery as Raw,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::{FieldTable, ShortString},
};
use tokio::sync::{mpsc, oneshot};

use super::{
    super::{Delivery, QueueError, Receipt},
    config::AmqpConfig,
    error::{Cause, answered},
    ledger::{Frame, Ledger, Tag},
    link::Live,
    topology::{count, look},
    wire,
};
use crate::identity::QueueName;

/// How often, and how many times, it is looked whether what was given back is there.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS: u32 = 200;

/// What one subscription has out.
pub(super) struct Session {
    pub(super) number: u64,
    pub(super) queue: QueueName,
    /// What is read for it: the queue itself, or its stragglers.
    name: String,
    channel: Channel,
    tag: ShortString,
    config: Arc<AmqpConfig>,
    stream: lapin::Consumer,
    inner: Mutex<Inner>,
    flush: mpsc::UnboundedSender<oneshot::Sender<bool>>,
    /// The connection stays as long as its channels do.
    live: Arc<Live>,
}

#[derive(Default)]
struct Inner {
    /// Delivered to this process, and not given out yet.
    buffer: VecDeque<Raw>,
    ledger: Ledger,
    stopped: bool,
    /// Why there will be no more deliveries, until that is told.
    failure: Option<Cause>,
    ended: bool,
}

impl Inner {
    /// The next delivery that has arrived.
    fn arrived(&mut self, stream: &mut lapin::Consumer, cx: &mut Context<'_>) -> Poll<Option<Raw>> {
        if self.failure.is_some() {
            return Poll::Ready(None);
        }
        self.failure = Some(match std::task::ready!(Pin::new(stream).poll_next(cx)) {
            Some(Ok(raw)) => return Poll::Ready(Some(raw)),
            Some(Err(error)) => Cause::from(error),
            None => Cause::Unavailable("the broker ended the subscription: the queue was deleted, or moves".to_owned()),
        });
        Poll::Ready(None)
    }
}

impl Session {
    pub(super) async fn open(
        live: Arc<Live>,
        config: Arc<AmqpConfig>,
        queue: QueueName,
        name: String,
        prefetch: u16,
        number: u64,
    ) -> Result<Arc<Self>, Cause> {
        let channel = live.channel().await?;
        count(&channel, &config, &name).await?;
        let within = config.answer_timeout;
        answered(within, channel.basic_qos(prefetch.max(1), BasicQosOptions::default())).await?;
        let tag: ShortString = format!("{} {number:x}", config.name).as_str().into();
        let consuming = channel.basic_consume(
            name.as_str().into(),
            tag.clone(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let stream = answered(within, consuming).await?;
        let (flush, flushes) = mpsc::unbounded_channel();
        let inner = Mutex::default();
        let this = Arc::new(Self { number, queue, name, channel, tag, config, stream, inner, flush, live });
        tokio::spawn(settle(Arc::downgrade(&this), flushes));
        Ok(this)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("session")
    }

    /// A handle that waits for deliveries.
    pub(super) fn stream(&self) -> lapin::Consumer {
        self.stream.clone()
    }

    fn stale(&self) -> QueueError {
        QueueError::Stale { queue: self.queue.to_string() }
    }

    /// The next delivery.
    pub(super) fn poll_next(
        &self,
        stream: &mut lapin::Consumer,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Delivery, QueueError>>> {
        let mut inner = self.inner();
        if inner.stopped {
            return Poll::Ready(None);
        }
        let next = loop {
            let next = match inner.buffer.pop_front() {
                Some(raw) => Some(raw),
                None => std::task::ready!(inner.arrived(stream, cx)),
            };
            // What a channel brought that has ended since could not be settled any more.
            if next.is_none() || self.channel.status().connected() {
                break next;
            }
        };
        let Some(raw) = next else {
            inner.ended = true;
            return Poll::Ready(inner.failure.take().map(|cause| Err(cause.of(self.queue))));
        };
        inner.ledger.delivered(raw.delivery_tag);
        drop(inner);
        let receipt = Receipt { queue: self.queue, tag: raw.delivery_tag, session: self.number };
        let redelivered = raw.redelivered;
        let (message, _) = wire::decode(raw.properties, raw.data);
        Poll::Ready(Some(Ok(Delivery { receipt, message, redelivered })))
    }

    /// No more deliveries. What has arrived and was not given out goes back with the channel.
    pub(super) async fn stop(&self) {
        let was = std::mem::replace(&mut self.inner().stopped, true);
        if !was && self.channel.status().connected() {
            let cancelled = self.channel.basic_cancel(self.tag.clone(), BasicCancelOptions::default());
            let _ = answered(self.config.answer_timeout, cancelled).await;
        }
    }

    /// Whether a delivery may be settled.
    pub(super) fn is_out(&self, tag: Tag) -> bool {
        self.channel.status().connected() && self.inner().ledger.is_out(tag)
    }

    /// Acknowledges; `Ok` when the broker has been told.
    pub(super) async fn ack(&self, tag: Tag) -> Result<(), QueueError> {
        if self.note_acked(tag) { self.flushed().await } else { Err(self.stale()) }
    }

    /// Notes that one is acknowledged; [`Session::flushed`] tells the broker. `false` when it was not out.
    pub(super) fn note_acked(&self, tag: Tag) -> bool {
        self.inner().ledger.ack(tag)
    }

    /// Hands back; `Ok` when that is noted, and the broker told as soon as the places allow it.
    pub(super) async fn release(&self, tags: &[Tag]) -> Result<(), QueueError> {
        let all = {
            let mut inner = self.inner();
            tags.iter().filter(|tag| inner.ledger.release(**tag)).count() == tags.len()
        };
        self.flushed().await?;
        if all { Ok(()) } else { Err(self.stale()) }
    }

    /// Returns when the broker has been told what was noted before.
    pub(super) async fn flushed(&self) -> Result<(), QueueError> {
        let (done, outcome) = oneshot::channel();
        let _ = self.flush.send(done);
        match outcome.await {
            Ok(true) => Ok(()),
            _ => Err(self.stale()),
        }
    }

    /// What waits in the queue and what is out here, counted so that nothing is missed on its way from there to here.
    pub(super) async fn depth(&self) -> Result<u64, Cause> {
        let mut last = None;
        loop {
            let (ready, _) = count(&self.channel, &self.config, &self.name).await?;
            // What left the queue before that answer has arrived when this one has.
            count(&self.channel, &self.config, &self.name).await?;
            let total = ready + self.held();
            if last == Some(total) {
                return Ok(total);
            }
            last = Some(total);
        }
    }

    /// What waits in the queue, or has arrived and was not given out yet. `None` when the broker doesn't know: of a quorum queue
    /// whose leader can't be asked it says that nothing is in it, and that it has no consumer, of which there is one here.
    pub(super) async fn waiting(&self) -> Result<Option<u64>, Cause> {
        let (ready, consumers) = count(&self.channel, &self.config, &self.name).await?;
        // As above.
        count(&self.channel, &self.config, &self.name).await?;
        self.held();
        let waiting = ready + self.inner().buffer.len() as u64;
        Ok((consumers > 0 || waiting > 0).then_some(waiting))
    }

    fn held(&self) -> u64 {
        let mut inner = self.inner();
        // A handle of its own: the one that waits for the next delivery keeps its place.
        let mut stream = self.stream.clone();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(raw)) = inner.arrived(&mut stream, &mut cx) {
            inner.buffer.push_back(raw);
        }
        (inner.ledger.len() + inner.buffer.len()) as u64
    }

    /// Gives everything back, and waits until it is: a channel's end is told before the queue has heard of it, so that the next
    /// consumer could be given what comes later first.
    pub(super) async fn close(&self) {
        self.inner().ended = true;
        if !self.channel.status().connected() {
            return;
        }
        self.stop().await;
        let back = self.to_come_back().await;
        let _ = answered(self.config.answer_timeout, self.channel.close(200, "".into())).await;
        let Some(back) = back else { return };
        for _ in 0..LOOKS {
            match look(&self.live, &self.config, &self.name).await {
                Ok(ready) if ready < back => tokio::time::sleep(LOOK_EVERY).await,
                _ => return,
            }
        }
    }

    /// How many will be ready in the queue when this channel's are back; nothing, when it has none.
    async fn to_come_back(&self) -> Option<u64> {
        if self.held() == 0 {
            return None;
        }
        let (ready, _) = count(&self.channel, &self.config, &self.name).await.ok()?;
        // What has arrived meanwhile is counted too: nothing more comes, since the subscription has ended.
        Some(ready + self.held())
    }
}

/// Tells the broker what has been settled, in batches as they come.
async fn settle(session: std::sync::Weak<Session>, mut flushes: mpsc::UnboundedReceiver<oneshot::Sender<bool>>) {
    let mut waiters = Vec::new();
    while flushes.recv_many(&mut waiters, 4096).await > 0 {
        let Some(session) = session.upgrade() else { return };
        let frames = session.inner().ledger.flush();
        let sent = frames.into_iter().map(|frame| send(&session.channel, frame));
        let told = join_all(sent).await.into_iter().all(|sent| sent.is_ok()) && session.channel.status().connected();
        for waiter in waiters.drain(..) {
            let _ = waiter.send(told);
        }
    }
}

async fn send(channel: &Channel, frame: Frame) -> Result<(), lapin::Error> {
    match frame {
        Frame::Ack { tag, up_to } => channel.basic_ack(tag, BasicAckOptions { multiple: up_to }).await,
        Frame::Release { up_to } => channel.basic_nack(up_to, BasicNackOptions { multiple: true, requeue: true }).await,
    }
}
