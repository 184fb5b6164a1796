//! What a directory's answers mean for a shard. Pure: the last accepted answer and a new one → what changed.
//!
//! A channel that is listed as disabled is stopped at once: somebody said so. Channels that are merely missing may be
//! missing by mistake of the directory, so that more than half of them, and more than ten, must be missing twice in a row.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    directory::ChannelSpec,
    identity::{ChannelId, ShardId},
};

/// So many may vanish at once without a second look.
const FEW: usize = 10;

/// What an answer changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// To be started.
    pub(super) start: Vec<Arc<ChannelSpec>>,
    /// To be stopped.
    pub(super) stop: Vec<ChannelId>,
    /// To go on, with these settings.
    pub(super) update: Vec<Arc<ChannelSpec>>,
    /// How many are missing and yet go on until the next answer.
    pub(super) held_back: usize,
}

/// What this shard shall run.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    running: BTreeMap<ChannelId, Arc<ChannelSpec>>,
    disabled: BTreeSet<ChannelId>,
    missing: BTreeSet<ChannelId>,
}

impl Wanted {
    /// This shard's channels that shall not run.
    pub(super) fn disabled(&self) -> &BTreeSet<ChannelId> {
        &self.disabled
    }

    /// Somebody disabled it, as the next answer will say.
    pub(super) fn disable(&mut self, channel: ChannelId) {
        self.running.remove(&channel);
        self.disabled.insert(channel);
    }

    /// The next answer that lists it shall start it.
    pub(super) fn forget(&mut self, channel: ChannelId) {
        self.running.remove(&channel);
    }

    /// Takes an answer in.
    pub(super) fn accept(&mut self, answer: Vec<Arc<ChannelSpec>>, shard: ShardId) -> Change {
        let mut change = Change::default();
        let (mut enabled, mut disabled) = (BTreeMap::new(), BTreeSet::new());
        for spec in answer {
            if !shard.owns(spec.id) {
                continue;
            }
            if spec.enabled {
                enabled.insert(spec.id, spec);
            } else {
                disabled.insert(spec.id);
            }
        }
        disabled.retain(|id| !enabled.contains_key(id));

        let missing: BTreeSet<_> =
            self.running.keys().filter(|id| !enabled.contains_key(id) && !disabled.contains(id)).copied().collect();
        let many = missing.len() > FEW && missing.len() * 2 > self.running.len();
        let sure: BTreeSet<_> = missing.iter().filter(|id| !many || self.missing.contains(id)).copied().collect();
        change.held_back = missing.len() - sure.len();

        let is_over = |id: &ChannelId| disabled.contains(id) || sure.contains(id);
        change.stop = self.running.keys().filter(|id| is_over(id)).copied().collect();
        self.running.retain(|id, _| !is_over(id));
        for (id, spec) in enabled {
            match self.running.get(&id) {
                None => change.start.push(spec.clone()),
                Some(before) if *before != spec => change.update.push(spec.clone()),
                Some(_) => continue,
            }
            self.running.insert(id, spec);
        }
        self.missing = missing;
        self.disabled = disabled;
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{channel::testing::spec, identity::ShardId};

    const ALONE: ShardId = ShardId { index: 0, count: 1 };

    fn specs(range: std::ops::Range<u32>) -> Vec<Arc<ChannelSpec>> {
        range.map(spec).collect()
    }

    /// Contract: C2.
    #[test]
    fn an_answer_starts_what_is_new_and_stops_what_is_gone_or_disabled() {
        let mut wanted = Wanted::default();
        assert_eq!(wanted.accept(specs(0..3), ALONE).start.len(), 3);
        let mut off = (*spec(1)).clone();
        off.enabled = false;
        let mut other = (*spec(2)).clone();
        other.label = Some("renamed".into());
        let change = wanted.accept(vec![Arc::new(off), Arc::new(other.clone()), spec(9)], ALONE);
        assert_eq!(change.start, [spec(9)]);
        assert_eq!(change.stop, [spec(0).id, spec(1).id]);
        assert_eq!(change.update, [Arc::new(other)]);
        assert!(wanted.disabled().contains(&spec(1).id));
    }

    /// Contract: C0.
    #[test]
    fn a_shard_keeps_to_its_own_share() {
        let half = |index| Wanted::default().accept(specs(0..100), ShardId { index, count: 2 }).start.len();
        assert_eq!((half(0), half(1)), (50, 50));
    }

    /// Contract: C2.
    #[test]
    fn a_directory_that_forgets_most_channels_must_say_so_twice() {
        let mut wanted = Wanted::default();
        wanted.accept(specs(0..100), ALONE);
        let change = wanted.accept(specs(0..40), ALONE);
        assert_eq!((change.stop.len(), change.held_back), (0, 60));
        let change = wanted.accept(specs(0..100), ALONE);
        assert_eq!(change, Change::default(), "it was a mistake");
        wanted.accept(specs(0..40), ALONE);
        assert_eq!(wanted.accept(specs(0..40), ALONE).stop.len(), 60);
    }

    #[test]
    fn a_mass_disable_is_taken_at_its_word() {
        let mut wanted = Wanted::default();
        wanted.accept(specs(0..100), ALONE);
        let off = |n| Arc::new(ChannelSpec { enabled: false, ..(*spec(n)).clone() });
        assert_eq!(wanted.accept((0..100).map(off).collect(), ALONE).stop.len(), 100);
    }

    #[test]
    fn a_few_may_vanish_at_once() {
        let mut wanted = Wanted::default();
        wanted.accept(specs(0..10), ALONE);
        assert_eq!(wanted.accept(Vec::new(), ALONE).stop.len(), 10);
    }
}
