//! How channels are spread over the shards, and whether that is worse than chance.
//!
//! The shard rule reads a UUID's first 32 bits. Those of random UUIDs spread evenly; those of time-ordered ones are a
//! clock, so that channels imported at one time end on one shard. The rule stays as it is, since producers compute it too;
//! what can be done is to say so.

use shard::identity::{ChannelId, shard_for_channel};

/// Channels by shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spread {
    /// How many each shard has.
    pub(crate) channels: Vec<u64>,
    /// How many ids are time-ordered (UUID version 7).
    pub(crate) time_ordered: u64,
}

impl Spread {
    /// Counts channels over `count` shards.
    pub(crate) fn of(channels: impl IntoIterator<Item = ChannelId>, count: u32) -> Self {
        let mut spread = Self { channels: vec![0; count as usize], time_ordered: 0 };
        for channel in channels {
            spread.channels[shard_for_channel(channel, count) as usize] += 1;
            spread.time_ordered += u64::from(channel.uuid().get_version_num() == 7);
        }
        spread
    }

    /// All channels.
    pub(crate) fn total(&self) -> u64 {
        self.channels.iter().sum()
    }

    /// One line when a shard has clearly more than its share: over a quarter more, more than four deviations of a random
    /// spread, and not just a handful.
    pub(crate) fn warning(&self) -> Option<String> {
        let share = self.total() as f64 / self.channels.len() as f64;
        let (index, most) = self.channels.iter().enumerate().max_by_key(|(_, channels)| **channels)?;
        let bound = (share * 1.25).max(share + 4.0 * share.sqrt()).max(10.0);
        (*most as f64 > bound).then(|| {
            format!(
                "channels are spread unevenly: shard {index} has {most} of {}, {share:.0} would be its share; {} ids are \
                 time-ordered (UUIDv7), which land on one shard when they are made at one time",
                self.total(),
                self.time_ordered,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Contract: I1b.
    #[test]
    fn a_bulk_import_of_time_ordered_ids_is_told_from_a_random_spread() {
        let random = Spread::of((0..400).map(|_| ChannelId::from_uuid(Uuid::new_v4())), 4);
        assert_eq!((random.total(), random.warning()), (400, None));

        let at_once = (0..400).map(|_| ChannelId::from_uuid(Uuid::now_v7()));
        let warning = Spread::of(at_once, 4).warning().expect("a warning");
        assert!(warning.contains("of 400, 100 would be its share; 400 ids are time-ordered"), "{warning}");
    }

    #[test]
    fn a_few_channels_are_no_skew() {
        let one = ChannelId::from_uuid(Uuid::nil());
        assert_eq!(Spread::of([one; 3], 8).warning(), None);
        assert_eq!(Spread::of([], 8).warning(), None);
    }
}
