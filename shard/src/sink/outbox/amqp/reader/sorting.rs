//! Takes in what came: markers, events with what the registry knows of them, and what is neither.

use lapin::options::BasicAckOptions;

use super::{
    super::{
        index::mark_key,
        wire::{Letter, Open},
    },
    *,
};
use crate::event::Event;

impl Reader {
    pub(super) async fn sort(&mut self, batch: Vec<(Source, Raw)>) -> Result<(), Cause> {
        let shared = self.shared.clone();
        let (mut letters, mut acks) = (Vec::with_capacity(batch.len()), Vec::new());
        for (source, raw) in batch {
            if let Some(number) = wire::marked(&raw.properties) {
                let ours = self.coming.get(&source).is_some_and(|(ours, _)| *ours == number);
                if ours {
                    self.coming.remove(&source);
                }
                // In the main queue, one that comes after ours is a successor's, which waits for it.
                if ours || source.is_some() {
                    acks.push(Ack { source, tag: raw.delivery_tag });
                } else if !self.ours_came {
                    self.strangers.push(raw.delivery_tag);
                }
                continue;
            }
            if source.is_some()
                && let Some((_, room)) = self.coming.get_mut(&source)
            {
                *room -= 1;
                if *room == 0 {
                    self.coming.remove(&source);
                }
            }
            let tag = raw.delivery_tag;
            let redelivered = raw.redelivered;
            let read = Letter::read(&raw.properties, raw.data.clone())
                .and_then(|letter| Some((serde_json::from_slice::<Event>(&letter.body).ok()?, letter)));
            match read {
                Some((event, letter)) => letters.push((source, tag, redelivered, event, letter)),
                None => self.reject(source, raw).await?,
            }
        }
        // What was there before may have been held by a process that is gone. A broker doesn't mark all of that as redelivered: what
        // it takes back from a channel that is closed in good order was never delivered, in its eyes.
        let known = shared.state().complete;
        let asked = |(source, _, redelivered, event, letter): &(Source, u64, bool, Event, Letter)| {
            let held_before = *redelivered || !known || source.is_some();
            held_before.then(|| mark_key(event.id, letter.number, source.is_some()))
        };
        let ids: Vec<_> = letters.iter().filter_map(asked).collect();
        let marks =
            if ids.is_empty() { Vec::new() } else { shared.book.event_marks(&ids).await.map_err(unavailable)? };
        let marks: HashMap<_, _> =
            ids.into_iter().zip(marks).filter_map(|(id, mark)| Some((id, Open::read(&mark?)))).collect();
        let mut news = false;
        {
            let mut state = shared.state();
            for (source, tag, _, event, mut letter) in letters {
                let mark = marks.get(&mark_key(event.id, letter.number, source.is_some()));
                if let Some(mark) = mark {
                    letter.open = letter.open.and(mark);
                }
                let marked = mark.is_some();
                let (ack, new) = state.index.arrived(&event, &letter, source, tag, self.session, marked);
                acks.extend(ack);
                news |= new && state.complete;
            }
        }
        shared.ack(acks).await;
        if news {
            shared.news.notify_one();
        }
        Ok(())
    }

    /// What no outbox wrote is no event: it lies with the dead letters, for a person to look at.
    async fn reject(&self, source: Source, raw: Raw) -> Result<(), Cause> {
        let shared = &self.shared;
        warn!(queue = shared.names.main, bytes = raw.data.len(), "a message that is no event goes to the dead letters");
        let channel = shared.state().held.as_ref().and_then(|held| held.channel(source));
        shared.publish(&shared.names.dead, raw.properties.clone(), raw.data.clone().into()).await?;
        if let Some(channel) = channel {
            channel.basic_ack(raw.delivery_tag, BasicAckOptions::default()).await?;
        }
        Ok(())
    }
}
