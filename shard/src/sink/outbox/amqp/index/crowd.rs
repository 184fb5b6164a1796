//! Who waits in numbers, and what of them can be set aside.

use super::{super::wire::BOTH, *};

impl Index {
    /// How many events of each group are held of the main queue.
    pub(in super::super) fn crowd(&self) -> HashMap<Group, usize> {
        let mut crowd = HashMap::new();
        for entry in self.entries.values().filter(|entry| entry.source.is_none() && entry.state == State::There) {
            for (destination, _) in entry.open.list() {
                *crowd.entry(Group::of(entry.channel, destination)).or_default() += 1;
            }
        }
        crowd
    }

    /// The events of a group in the main queue, oldest first: those after the first `keep`, from a number on.
    pub(in super::super) fn tail(&self, group: Group, keep: usize, from: u64, limit: usize) -> Vec<(u64, Found)> {
        let destination = group.destination();
        let of_group = |entry: &&Entry| {
            entry.source.is_none()
                && entry.state == State::There
                && entry.open.get(destination).is_some()
                && Group::of(entry.channel, destination) == group
        };
        let positions = self.entries.iter().filter(|(_, entry)| of_group(entry) && entry.number >= from);
        let tail = positions.skip(keep).take(limit).map(|(position, _)| *position);
        tail.filter_map(|position| Some((position, self.find(position, destination)?))).collect()
    }

    /// A group's event was set aside: it is closed here, and comes again from there.
    pub(in super::super) fn set_aside(&mut self, position: u64, destination: Destination) -> Closed {
        let Some(entry) = self.entries.get(&position) else { return Closed::default() };
        let id = entry.id;
        self.moved.add((position, destination));
        self.moved_ids.insert(position, id);
        if self.moved_ids.len() > 2 * REMEMBERED {
            let moved = &self.moved;
            self.moved_ids.retain(|position, _| BOTH.iter().any(|destination| moved.has(&(*position, *destination))));
        }
        self.close(position, destination, false)
    }

    /// Whether anything of a queue is held.
    pub(in super::super) fn holds(&self, source: Source) -> bool {
        self.entries.values().any(|entry| entry.source == source)
    }
}
