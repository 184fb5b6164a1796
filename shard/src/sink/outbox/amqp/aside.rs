//! What is done when the window fills up with events of an endpoint or handler that is dead: the bulk of such a *group* is
//! set aside, in a queue of its own, so that others have room, memory stays what it is, and the order is kept.
//!
//! The registry notes first that the group is set aside, and from which event on. Then all but its first events move, in
//! order, by confirmed publish and then close; what is stored for it from now on goes there straight away. Of the queue
//! beside as many as of the main one are held; they come into view behind what is there, and as they are settled, more
//! come. When nothing is ready there any more, what is stored next goes to the main queue again; when all of it is settled,
//! the note goes, and a handler's queue.
//!
//! A process that ends in between finds the note, holds the queue beside first, and moves what the note says that had not
//! moved yet: an event may then be there twice, and is delivered twice at most.

use std::time::Duration;

use futures_util::future::join_all;
use tracing::{info, warn};

use super::{
    index::Found,
    names::Group,
    reader::{Incoming, Reader, unavailable},
    topology,
    wire::{Letter, Open},
};
use crate::amqp::error::Cause;

/// Events that move at a time.
const CHUNK: usize = 256;
/// Tries to move a chunk before the whole holding begins anew.
const TRIES: u32 = 5;

impl Reader {
    /// How many events of a group are held at least.
    fn keep(&self, group: Group, groups: usize) -> usize {
        let quarter = self.shared.options.window / 4;
        match group {
            Group::Endpoint => quarter.max(1),
            Group::Handler(_) => (quarter / groups.max(1)).clamp(1, 256),
        }
    }

    /// Makes room when the window is nearly full: the largest groups go aside.
    pub(super) async fn relieve(&mut self, arrivals: &mut Incoming) -> Result<(), Cause> {
        let shared = self.shared.clone();
        let (window, bytes) = (shared.options.window, shared.options.bytes);
        let above = |share: usize| {
            let size = shared.state().index.size();
            size.0 > window / 4 * share || size.1 > bytes / 4 * share
        };
        if !above(3) {
            return Ok(());
        }
        let mut crowd: Vec<(Group, usize)> = shared.state().index.crowd().into_iter().collect();
        crowd.sort_unstable_by_key(|(group, count)| (std::cmp::Reverse(*count), *group));
        let groups = crowd.len();
        for (group, count) in crowd {
            if !above(2) {
                break;
            }
            let keep = self.keep(group, groups);
            if count > keep {
                self.set_aside(group, keep, arrivals).await?;
            }
        }
        Ok(())
    }

    async fn set_aside(&mut self, group: Group, keep: usize, arrivals: &mut Incoming) -> Result<(), Cause> {
        let shared = self.shared.clone();
        let hidden = shared.state().hidden.contains(&group);
        {
            let _alone = shared.order.write().await;
            let first = shared.state().index.tail(group, keep, 0, 1).pop();
            let Some((_, first)) = first else { return Ok(()) };
            if !hidden || !self.has_aside(group) {
                topology::make(self.live()?, &shared.config, &shared.names.aside(group), true).await?;
            }
            if !hidden {
                let note = first.number.to_string();
                let noted = shared.book.note(&shared.names.main, &group.key(), Some(&note)).await;
                noted.map_err(unavailable)?;
                shared.state().hidden.insert(group);
                warn!(queue = shared.names.main, group = group.key(), "events wait in numbers: they are set aside");
            }
            self.move_tail(group, keep, 0).await?;
        }
        if !self.has_aside(group) {
            self.hold_aside(group, arrivals).await?;
        }
        Ok(())
    }

    /// Moves what a note says that a process before us had not moved.
    pub(super) async fn rest_aside(&mut self, group: Group, from: u64) -> Result<(), Cause> {
        let shared = self.shared.clone();
        let _alone = shared.order.write().await;
        self.move_tail(group, 0, from).await
    }

    /// Holds the queue in which a group's events lie.
    pub(super) async fn hold_aside(&mut self, group: Group, arrivals: &mut Incoming) -> Result<(), Cause> {
        let shared = self.shared.clone();
        topology::make(self.live()?, &shared.config, &shared.names.aside(group), true).await?;
        let groups = shared.state().hidden.len();
        let prefetch = self.keep(group, groups) as u16;
        self.subscribe_aside(group, prefetch, arrivals).await
    }

    async fn move_tail(&self, group: Group, keep: usize, from: u64) -> Result<(), Cause> {
        loop {
            let chunk = self.shared.state().index.tail(group, keep, from, CHUNK);
            if chunk.is_empty() {
                return Ok(());
            }
            let mut tries = 0;
            while let Err(cause) = self.copy(group, &chunk).await {
                tries += 1;
                if tries == TRIES {
                    return Err(cause);
                }
                // All of it again: what is between two that got there must not come after them.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            self.close(group, &chunk).await?;
        }
    }

    async fn copy(&self, group: Group, chunk: &[(u64, Found)]) -> Result<(), Cause> {
        let shared = &self.shared;
        let (queue, destination) = (shared.names.aside(group), group.destination());
        let copies = chunk.iter().map(|(_, found)| {
            let mut open = Open::default();
            open.set(destination, found.open.get(destination));
            let (number, stored_ms) = (found.number, found.stored_ms);
            let letter = Letter { number, stored_ms, open, again: false, body: found.body.clone() };
            shared.publish(&queue, letter.properties(), letter.body)
        });
        join_all(copies).await.into_iter().collect()
    }

    async fn close(&self, group: Group, chunk: &[(u64, Found)]) -> Result<(), Cause> {
        let shared = &self.shared;
        let destination = group.destination();
        let left = |(_, found): &(u64, Found)| {
            let mut open = found.open;
            open.set(destination, None);
            (!open.is_empty()).then(|| (found.key, Some(open.write())))
        };
        let marks: Vec<_> = chunk.iter().filter_map(left).collect();
        if !marks.is_empty() {
            shared.book.mark_events(&marks).await.map_err(unavailable)?;
        }
        let acks: Vec<_> = {
            let mut state = shared.state();
            let closed = chunk.iter().map(|(position, found)| {
                if found.open.list().len() > 1 {
                    state.index.marked(*position);
                }
                let closed = state.index.set_aside(*position, destination);
                state.forget.extend(closed.forget);
                closed.ack
            });
            closed.collect::<Vec<_>>().into_iter().flatten().collect()
        };
        shared.ack(acks).await;
        Ok(())
    }

    /// Groups of which nothing waits aside any more take the usual way again.
    pub(super) async fn bring_back(&mut self) -> Result<(), Cause> {
        let shared = self.shared.clone();
        for (group, channel) in self.asides() {
            let queue = shared.names.aside(group);
            let hidden = shared.state().hidden.contains(&group);
            if !hidden {
                if self.has_come(Some(group)) && !shared.state().index.holds(Some(group)) {
                    self.end_aside(group, &queue).await?;
                }
                continue;
            }
            if topology::count(&channel, &shared.config, &queue).await?.ready > 0 {
                continue;
            }
            let _alone = shared.order.write().await;
            if topology::count(&channel, &shared.config, &queue).await?.ready == 0 {
                // When this one comes, everything has.
                self.mark_end(Some(group), &queue).await?;
                shared.state().hidden.remove(&group);
            }
        }
        Ok(())
    }

    /// All that lay there has come, and is settled.
    async fn end_aside(&mut self, group: Group, queue: &str) -> Result<(), Cause> {
        let shared = self.shared.clone();
        let _alone = shared.order.write().await;
        if shared.state().hidden.contains(&group) {
            return Ok(());
        }
        self.let_go(group).await;
        if shared.count(queue).await?.is_some_and(|count| count.ready > 0) {
            return Err(Cause::Unavailable(format!("{queue} is not empty after all; holding it anew")));
        }
        let noted = shared.book.note(&shared.names.main, &group.key(), None).await;
        noted.map_err(unavailable)?;
        info!(queue = shared.names.main, group = group.key(), "nothing is set aside any more");
        shared.delete(queue).await
    }
}
