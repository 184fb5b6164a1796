//! How events come into view: appended by this process, or delivered by the broker.

use super::*;

impl Index {
    /// An event is being published into the main queue.
    pub(in super::super) fn publishing(&mut self, event: &Event, letter: &Letter) {
        let position = self.place(letter.number);
        self.insert(position, entry(event, letter, None, State::Publishing));
    }

    /// They are stored, by their numbers. Gives the positions that they have from now on; with `tell` the readers know.
    pub(in super::super) fn published(&mut self, numbers: &[u64], tell: bool) -> Vec<u64> {
        let positions: Vec<u64> =
            numbers.iter().filter_map(|number| self.numbers.get(&(None, *number)).copied()).collect();
        let late = positions.iter().any(|position| *position <= self.told);
        let mut now = Vec::with_capacity(positions.len());
        for mut position in positions {
            if late {
                position = self.move_behind(position, 0);
            }
            if let Some(entry) = self.entries.get_mut(&position) {
                entry.state = State::There;
            }
            now.push(position);
        }
        if tell && let Some(last) = now.last() {
            self.told = self.told.max(*last);
        }
        now
    }

    /// Gives an event another position, behind all that was told and behind one more.
    fn move_behind(&mut self, position: u64, behind: u64) -> u64 {
        let Some(entry) = self.remove(position) else { return position };
        let to = self.place(if behind == 0 { 0 } else { behind + 1 });
        self.insert(to, entry);
        to
    }

    /// They count as not stored, wherever they came to lie.
    pub(in super::super) fn void(&mut self, numbers: &[u64]) -> Vec<Ack> {
        let mut acks = Vec::new();
        for number in numbers {
            let Some(position) = self.numbers.get(&(None, *number)).copied() else { continue };
            let Some(entry) = self.entries.get_mut(&position) else { continue };
            entry.state = State::Void;
            if let Some(tag) = entry.tag {
                acks.push(Ack { source: entry.source, tag });
                self.remove(position);
            }
        }
        acks
    }

    /// The same for what went where nothing is held.
    pub(in super::super) fn void_number(&mut self, source: Source, number: u64) {
        self.voided.add((source, number));
    }

    /// A message has come. Returned is what to acknowledge at once; whether it is something that nobody was told of.
    pub(in super::super) fn arrived(
        &mut self,
        event: &Event,
        letter: &Letter,
        source: Source,
        tag: u64,
        session: u64,
        marked: bool,
    ) -> (Option<Ack>, bool) {
        let ack = Some(Ack { source, tag });
        if let Some(position) = self.numbers.get(&(source, letter.number)).copied() {
            let position = self.in_order(source, position);
            let Some(entry) = self.entries.get_mut(&position) else { return (None, false) };
            (entry.tag, entry.session) = (Some(tag), session);
            entry.marked |= marked;
            if entry.state == State::Void || entry.open.is_empty() {
                self.remove(position);
                return (ack, false);
            }
            return (None, false);
        }
        if self.voided.has(&(source, letter.number)) {
            return (ack, false);
        }
        let mut letter = letter.clone();
        for (destination, _) in letter.open.list() {
            let twin = self.ids.get(&event.id).into_iter().flatten().any(|position| {
                self.entries
                    .get(position)
                    .is_some_and(|entry| entry.state != State::Void && entry.open.get(destination).is_some())
            });
            if twin || (!letter.again && self.done.has(&(event.id, destination))) {
                letter.open.set(destination, None);
            }
        }
        if letter.open.is_empty() {
            return (ack, false);
        }
        // A queue's order counts, whatever the clock was that gave the numbers.
        let before = self.arrived_to.get(&source).copied().unwrap_or_default();
        let position = self.place(letter.number.max(before + 1));
        self.arrived_to.insert(source, position);
        let mut entry = entry(event, &letter, source, State::There);
        (entry.tag, entry.session, entry.marked) = (Some(tag), session, marked);
        self.insert(position, entry);
        (None, true)
    }

    /// Before anything is read, what we append ourselves may be known before what lies in the queue before it.
    fn in_order(&mut self, source: Source, position: u64) -> u64 {
        let before = self.arrived_to.get(&source).copied().unwrap_or_default();
        let position = if !self.settled && position <= before { self.move_behind(position, before) } else { position };
        self.arrived_to.insert(source, position.max(before));
        position
    }

    /// All that had come before `number` has come again: what did not is not there any more.
    pub(in super::super) fn caught_up(&mut self, session: u64, number: u64) {
        let gone: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.session != session && entry.state != State::Publishing)
            .filter(|(_, entry)| entry.source.is_some() || entry.number < number)
            .map(|(position, _)| *position)
            .collect();
        for position in gone {
            self.remove(position);
        }
        if !std::mem::replace(&mut self.settled, true) {
            let before = self.arrived_to.get(&None).copied().unwrap_or_default();
            let early = |(position, entry): (&u64, &Entry)| {
                (entry.source.is_none() && entry.session != session && *position <= before).then_some(*position)
            };
            let early: Vec<u64> = self.entries.iter().filter_map(early).collect();
            for position in early {
                self.move_behind(position, before);
            }
        }
    }
}
