//! Holds a window of what lies in the broker: one task, for as long as the outbox is there.
//!
//! A holding begins with a message of its own at the end of the queue, a marker. A queue with a single active consumer gives
//! its messages to one process, in order, and puts back in order what a dead one held: when the marker comes, everything
//! that was there has come before it, and no predecessor holds anything. Only then is anything read.

mod asides;
mod sorting;

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Duration};

use futures_util::{FutureExt, Stream, StreamExt, stream::SelectAll};
use lapin::{
    Channel,
    message::Delivery as Raw,
    options::{BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use tracing::{info, warn};

use super::{
    Shared,
    index::{Ack, Source},
    names::Group,
    settle::AllTold,
    wire,
};
use crate::amqp::{
    error::{Cause, answered},
    link::Live,
};

/// Messages taken in at a time.
const BATCH: usize = 256;
/// How often it is seen to what has no hurry.
const TICK: Duration = Duration::from_secs(1);
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AFTER_MOST: Duration = Duration::from_secs(5);

/// The channels on which the broker delivers.
pub(super) struct Held {
    main: Channel,
    asides: HashMap<Group, Channel>,
    pub(super) told: AllTold,
    _live: Arc<Live>,
}

impl Held {
    /// Where what came from a queue is settled.
    pub(super) fn channel(&self, source: Source) -> Option<Channel> {
        match source {
            None => Some(self.main.clone()),
            Some(group) => self.asides.get(&group).cloned(),
        }
    }

    /// The same for several.
    pub(super) fn channels(&self, acks: &[Ack]) -> Vec<(Channel, u64)> {
        acks.iter().filter_map(|ack| Some((self.channel(ack.source)?, ack.tag))).collect()
    }
}

type Arrivals = SelectAll<Pin<Box<dyn Stream<Item = (Source, Result<Raw, Cause>)> + Send>>>;

/// Holds, and holds again when that ended, until the outbox is dropped.
pub(super) async fn run(shared: Arc<Shared>) {
    let (mut session, mut failures) = (0, 0_u32);
    while !shared.stop.is_cancelled() {
        session += 1;
        let mut reader = Reader::new(shared.clone(), session);
        let stop = shared.stop.cancelled();
        let cause = tokio::select! {
            cause = reader.hold_on() => Some(cause),
            () = stop => None,
        };
        if shared.state().complete {
            failures = 0;
        }
        reader.end(cause.clone()).await;
        let Some(cause) = cause else { return };
        if failures == 0 {
            warn!(queue = shared.names.main, ?cause, "events can't be read from the broker; trying on");
        }
        let pause = AGAIN_AFTER.saturating_mul(1 << failures.min(6)).min(AGAIN_AFTER_MOST);
        failures = failures.saturating_add(1);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.stop.cancelled() => {}
        }
    }
}

/// One holding.
pub(super) struct Reader {
    pub(super) shared: Arc<Shared>,
    session: u64,
    live: Option<Arc<Live>>,
    channels: Vec<Channel>,
    /// The marker of the main queue.
    marker: u64,
    /// Messages that came, for each queue, until its marker did.
    coming: HashMap<Source, (u64, u64)>,
    /// Markers of others: those before ours are of processes that are gone.
    strangers: Vec<u64>,
    ours_came: bool,
}

impl Reader {
    fn new(shared: Arc<Shared>, session: u64) -> Self {
        Self {
            shared,
            session,
            live: None,
            channels: Vec::new(),
            marker: 0,
            coming: HashMap::new(),
            strangers: Vec::new(),
            ours_came: false,
        }
    }

    pub(super) fn live(&self) -> Result<&Arc<Live>, Cause> {
        self.live.as_ref().ok_or_else(|| Cause::Unavailable("not connected".to_owned()))
    }

    async fn begin(&mut self) -> Result<Arrivals, Cause> {
        let shared = self.shared.clone();
        shared.declare().await?;
        self.live = Some(shared.link.live().await?);
        let noted = shared.book.notes(&shared.names.main).await.map_err(unavailable)?;
        shared.state().hidden.extend(noted.iter().filter_map(|(key, _)| Group::read(key)));
        let mut arrivals = SelectAll::new();
        let prefetch = (2 * shared.options.window).min(65_000) as u16;
        let main = self.hold(None, prefetch, &mut arrivals).await?;
        let live = self.live()?.clone();
        shared.state().held = Some(Held { main, asides: HashMap::new(), told: AllTold::new(), _live: live });
        self.marker = self.coming[&None].0;
        while !self.has_come(None) {
            self.take_in(&mut arrivals).await?;
            self.relieve(&mut arrivals).await?;
        }
        let gone = std::mem::take(&mut self.strangers);
        self.ours_came = true;
        self.ack_main(gone).await;
        for (key, note) in noted {
            let Some(group) = Group::read(&key) else { continue };
            self.hold_aside(group, &mut arrivals).await?;
            while !self.has_come(Some(group)) {
                self.take_in(&mut arrivals).await?;
            }
            self.rest_aside(group, note.parse().unwrap_or_default()).await?;
        }
        let first = {
            let mut state = shared.state();
            state.index.caught_up(self.session, self.marker);
            (state.complete, state.failure) = (true, None);
            !std::mem::replace(&mut state.once, true)
        };
        info!(queue = shared.names.main, events = shared.state().index.size().0, first, "holds the outbox");
        shared.changed.notify_waiters();
        shared.news.notify_one();
        Ok(arrivals)
    }

    /// Takes in what comes; says why that ended.
    async fn hold_on(&mut self) -> Cause {
        let lasting = async {
            let mut arrivals = self.begin().await?;
            loop {
                self.take_in(&mut arrivals).await?;
                self.relieve(&mut arrivals).await?;
                self.tidy().await?;
            }
        };
        let ended: Result<std::convert::Infallible, Cause> = lasting.await;
        match ended {
            Err(cause) => cause,
            Ok(never) => match never {},
        }
    }

    /// Everything goes back to the broker.
    async fn end(&mut self, cause: Option<Cause>) {
        {
            let mut state = self.shared.state();
            (state.complete, state.held) = (false, None);
            state.failure = cause;
            state.index.session_ended();
        }
        self.shared.changed.notify_waiters();
        let within = self.shared.config.answer_timeout;
        for channel in self.channels.drain(..).filter(|channel| channel.status().connected()) {
            let _ = answered(within, channel.close(200, "".into())).await;
        }
    }

    /// Subscribes to a queue, and puts a marker at its end.
    pub(super) async fn hold(
        &mut self,
        source: Source,
        prefetch: u16,
        arrivals: &mut Arrivals,
    ) -> Result<Channel, Cause> {
        let shared = self.shared.clone();
        let queue = source.map_or_else(|| shared.names.main.clone(), |group| shared.names.aside(group));
        let channel = self.live()?.channel().await?;
        self.channels.push(channel.clone());
        let within = shared.config.answer_timeout;
        answered(within, channel.basic_qos(prefetch, BasicQosOptions::default())).await?;
        let number = shared.number();
        let tag = format!("{} {number:x}", shared.config.name);
        let options = BasicConsumeOptions::default();
        let consuming =
            channel.basic_consume(queue.as_str().into(), tag.as_str().into(), options, FieldTable::default());
        let stream = answered(within, consuming).await?;
        let ended = || Err(Cause::Unavailable("the broker ended the subscription".to_owned()));
        let stream =
            stream.map(|raw| raw.map_err(Cause::from)).chain(futures_util::stream::once(async move { ended() }));
        arrivals.push(Box::pin(stream.map(move |raw| (source, raw))));
        shared.publish(&queue, wire::marker(number), bytes::Bytes::new()).await?;
        self.coming.insert(source, (number, u64::from(prefetch)));
        Ok(channel)
    }

    /// Puts another marker at a queue's end: when it has come, everything has that lay there.
    pub(super) async fn mark_end(&mut self, source: Source, queue: &str) -> Result<(), Cause> {
        let number = self.shared.number();
        self.coming.insert(source, (number, u64::MAX));
        self.shared.publish(queue, wire::marker(number), bytes::Bytes::new()).await
    }

    /// Whether all that lay in a queue has come, or as much as there is room for.
    pub(super) fn has_come(&self, source: Source) -> bool {
        !self.coming.contains_key(&source)
    }

    async fn ack_main(&self, tags: Vec<u64>) {
        let acks: Vec<Ack> = tags.into_iter().map(|tag| Ack { source: None, tag }).collect();
        self.shared.ack(acks).await;
    }

    /// Waits for messages, but not for long, and takes in those that are there.
    pub(super) async fn take_in(&mut self, arrivals: &mut Arrivals) -> Result<(), Cause> {
        let first = {
            let grown = self.shared.clone();
            tokio::select! {
                first = arrivals.next() => first,
                () = grown.grown.notified() => return Ok(()),
                () = tokio::time::sleep(TICK) => return Ok(()),
            }
        };
        let mut batch: Vec<(Source, Raw)> = Vec::new();
        let mut next = first;
        while let Some((source, raw)) = next {
            batch.push((source, raw?));
            if batch.len() >= BATCH {
                break;
            }
            next = arrivals.next().now_or_never().flatten();
        }
        self.sort(batch).await
    }

    /// What has no hurry: what the registry may forget, and what is set aside no longer.
    async fn tidy(&mut self) -> Result<(), Cause> {
        let shared = self.shared.clone();
        let forget = std::mem::take(&mut shared.state().forget);
        if !forget.is_empty() {
            let marks: Vec<_> = forget.into_iter().map(|id| (id, None)).collect();
            // What is remembered too long ends by itself.
            let _ = shared.book.mark_events(&marks).await;
        }
        self.bring_back().await
    }
}

pub(super) type Incoming = Arrivals;

pub(super) fn unavailable(error: crate::sink::outbox::BookError) -> Cause {
    Cause::Unavailable(error.to_string())
}
