//! What to do about channels that a directory lists no longer. Pure.
//!
//! A query that lost a condition, a page that was not read, a database restored from the day before: each looks like an order to
//! end most connections at once, and a linked device that is closed by mistake is noticed by everyone. So a removal of many waits
//! for a person; that of a few is taken at its word.

use std::collections::BTreeSet;

use crate::identity::ChannelId;

/// So many may vanish at once without a question.
const FEW: usize = 10;

/// What becomes of a removal of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MassRemoval {
    /// They go on until it is confirmed.
    #[default]
    Hold,
    /// They are stopped.
    Accept,
}

/// Of the channels that are listed no longer, those that go on. `confirmed` ones may go, whoever else is missing.
pub(super) fn held_back(
    known: &BTreeSet<ChannelId>,
    listed: &BTreeSet<ChannelId>,
    confirmed: &BTreeSet<ChannelId>,
    policy: MassRemoval,
) -> BTreeSet<ChannelId> {
    let missing: BTreeSet<_> = known.difference(listed).filter(|id| !confirmed.contains(id)).copied().collect();
    let most = missing.len() > FEW && missing.len() * 2 > known.len();
    if policy == MassRemoval::Hold && (most || listed.is_empty()) { missing } else { BTreeSet::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(range: std::ops::Range<u128>) -> BTreeSet<ChannelId> {
        range.map(|number| ChannelId::from_uuid(uuid::Uuid::from_u128(number))).collect()
    }

    fn held(known: u128, listed: std::ops::Range<u128>, confirmed: std::ops::Range<u128>) -> usize {
        held_back(&ids(0..known), &ids(listed), &ids(confirmed), MassRemoval::Hold).len()
    }

    /// Contract: C2.
    #[test]
    fn many_that_vanish_at_once_are_held_back_and_a_few_are_not() {
        assert_eq!(held(100, 0..100, 0..0), 0);
        assert_eq!(held(100, 0..51, 0..0), 0, "49 of 100 are not most");
        assert_eq!(held(100, 0..49, 0..0), 51);
        assert_eq!(held(12, 0..2, 0..0), 0, "ten are a few");
        assert_eq!(held(13, 0..2, 0..0), 11);
        assert_eq!(held(100, 200..300, 0..0), 100, "as many others are no reason");
    }

    /// Contract: C2.
    #[test]
    fn an_empty_answer_is_a_mistake_until_it_is_confirmed() {
        assert_eq!(held(1, 0..0, 0..0), 1);
        assert_eq!(held(0, 0..0, 0..0), 0);
        assert_eq!(held(20, 0..0, 0..20), 0);
        assert_eq!(held(20, 0..0, 0..19), 1, "what was confirmed is no word about the rest");
        assert!(held_back(&ids(0..50), &ids(0..0), &ids(0..0), MassRemoval::Accept).is_empty());
    }
}
