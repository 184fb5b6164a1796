//! Storing events: a place from the registry, a confirmed message in the broker, then the registry's word that it is so.

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::future::join_all;

use super::{
    super::super::{Batch, Destination, OutboxError, Stored},
    Shared,
    index::Source,
    names::Group,
    shared::{State, book_error, outbox_error},
    wire::{Letter, Open},
};
use crate::{event::Event, identity::ChannelId, registry::Fence, sink::outbox::BookError};

/// An event on its way in.
pub(super) struct Incoming {
    event: Event,
    body: Bytes,
    open: Open,
    again: bool,
}

impl Incoming {
    /// A dead letter that gets another chance.
    pub(super) fn again(event: Event, body: Bytes, to: Destination) -> Self {
        Self { event, body, open: Open::fresh(&[to]), again: true }
    }
}

/// What of a batch is held in the index until its outcome is known. Dropped before that, it counts as not stored.
struct Unsure<'a> {
    shared: &'a Shared,
    /// For each event, its number in the main queue if it goes there.
    numbers: Vec<Option<u64>>,
    elsewhere: Vec<(Source, u64)>,
    sure: bool,
}

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        if self.sure {
            return;
        }
        let numbers: Vec<u64> = self.numbers.iter().flatten().copied().collect();
        let acks = {
            let mut state = self.shared.state();
            self.elsewhere.iter().for_each(|(source, number)| state.index.void_number(*source, *number));
            let acks = state.index.void(&numbers);
            state.held.as_ref().map(|held| held.channels(&acks)).unwrap_or_default()
        };
        for (channel, tag) in acks {
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    // A message that stays is known to be void when it comes again.
                    let _ = channel.basic_ack(tag, lapin::options::BasicAckOptions::default()).await;
                });
            }
        }
    }
}

impl Shared {
    /// See [`Outbox::append`](super::super::super::Outbox::append).
    pub(super) async fn append(
        self: &std::sync::Arc<Self>,
        batch: Batch,
        destinations: &[Destination],
    ) -> Result<Vec<Stored>, OutboxError> {
        let Batch { fence, mut events, offset } = batch;
        let mut known = HashSet::new();
        events.retain(|event| known.insert(event.id));
        let ids: Vec<_> = events.iter().map(|event| event.id).collect();
        let fenced = |error| of_channel(&fence, error);
        if ids.is_empty() {
            self.book.events_stored(&fence, &[], offset).await.map_err(fenced)?;
            return Ok(Vec::new());
        }
        self.room()?;
        self.begin_reading();
        // Places are given, and messages sent, in one order for each channel.
        let _turn = self.placing[fence.channel.prefix() as usize % self.placing.len()].lock().await;
        let places = self.book.place_events(&fence, &ids).await.map_err(fenced)?;
        let mut incoming = Vec::with_capacity(events.len());
        for (mut event, place) in events.into_iter().zip(places) {
            let Some(seq) = place else { continue };
            event.seq = seq;
            let unwritten = |error| OutboxError::Refused(format!("an event can't be written: {error}"));
            let body = Bytes::from(serde_json::to_vec(&event).map_err(unwritten)?);
            incoming.push(Incoming { event, body, open: Open::fresh(destinations), again: false });
        }
        self.put(incoming, async || self.book.events_stored(&fence, &ids, offset).await.map_err(fenced)).await
    }

    /// What is more than can be held for long is not taken: whoever tells of it waits.
    fn room(&self) -> Result<(), OutboxError> {
        let (events, bytes) = self.state().index.size();
        if events < 2 * self.options.window && bytes < 2 * self.options.bytes {
            return Ok(());
        }
        Err(OutboxError::Unavailable(format!("{}: too much waits to be set aside", self.names.main)))
    }

    /// Publishes events in their order, then stores what has to be stored about them.
    pub(super) async fn put(
        self: &std::sync::Arc<Self>,
        incoming: Vec<Incoming>,
        commit: impl AsyncFnOnce() -> Result<(), OutboxError>,
    ) -> Result<Vec<Stored>, OutboxError> {
        self.declare().await.map_err(|cause| outbox_error(&self.names.main, cause))?;
        let stored_ms = self.clock.wall_ms();
        let _order = self.order.read().await;
        let mut unsure = Unsure { shared: self, numbers: Vec::new(), elsewhere: Vec::new(), sure: false };
        let mut confirms = Vec::with_capacity(incoming.len());
        let mut stored = Vec::with_capacity(incoming.len());
        {
            // Numbers are given, and messages sent, in one order.
            let mut state = self.state();
            for Incoming { event, body, open, again } in incoming {
                let mut here = open;
                let mut send = |state: &mut State, queue: String, source: Option<Source>, open: Open| {
                    let number = state.index.number(stored_ms, rand::random());
                    let letter = Letter { number, stored_ms, open, again, body: body.clone() };
                    match source {
                        Some(None) => state.index.publishing(&event, &letter),
                        Some(source) => unsure.elsewhere.push((source, number)),
                        None => {}
                    }
                    confirms.push(self.publish(&queue, letter.properties(), letter.body));
                    number
                };
                for (destination, _) in open.list() {
                    let group = Group::of(event.channel_id, destination);
                    if state.hidden.contains(&group) {
                        here.set(destination, None);
                        let mut alone = Open::default();
                        alone.set(destination, open.get(destination));
                        send(&mut state, self.names.aside(group), Some(Some(group)), alone);
                    }
                }
                let number = if open.is_empty() {
                    send(&mut state, self.names.kept.clone(), None, open)
                } else if here.is_empty() {
                    state.index.number(stored_ms, rand::random())
                } else {
                    send(&mut state, self.names.main.clone(), Some(None), here)
                };
                unsure.numbers.push((!here.is_empty()).then_some(number));
                stored.push(Stored { position: number, stored_ms, event, open: here.list() });
            }
        }
        for confirmed in join_all(confirms).await {
            confirmed.map_err(|cause| outbox_error(&self.names.main, cause))?;
        }
        // From here on they may count as stored, also when the answer is lost.
        unsure.sure = true;
        let committed = commit().await;
        let held: Vec<u64> = unsure.numbers.iter().flatten().copied().collect();
        let mut placed = {
            let mut state = self.state();
            let tell = state.once;
            state.index.published(&held, tell).into_iter()
        };
        for (stored, number) in stored.iter_mut().zip(&unsure.numbers) {
            if number.is_some()
                && let Some(position) = placed.next()
            {
                stored.position = position;
            }
        }
        self.grown.notify_one();
        if let Err(error) = committed {
            // They are there, and nobody will be told of them.
            self.news.notify_one();
            return Err(error);
        }
        Ok(stored)
    }
}

fn of_channel(fence: &Fence, error: BookError) -> OutboxError {
    let channel: ChannelId = fence.channel;
    match error {
        BookError::Fenced { resource } if resource.contains(&channel.to_string()) => OutboxError::Fenced(channel),
        other => book_error(other),
    }
}
