//! Bounded load: a bot goes to the first worker of the ring that has room.

use std::collections::BTreeMap;

use super::ring::{Ring, digest};

/// How much more than its share a worker takes at most, where nothing else is said.
pub const LOAD_FACTOR: f64 = 1.10;

/// A worker, as placement sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker<'a> {
    /// Its id.
    pub id: &'a str,
    /// How many bots it takes.
    pub capacity: u32,
}

/// Who should hold what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement<'a> {
    /// Each bot's worker.
    pub owners: BTreeMap<&'a str, &'a str>,
    /// Bots that nobody has room for.
    pub unplaced: Vec<&'a str>,
}

/// Places bots on workers. No worker gets more than its capacity, and none more than `load_factor` times what each would
/// hold were all equally full (or that share rounded up, which there must be room for). A factor of 0 sets no such limit.
pub fn place<'a>(
    workers: &[Worker<'a>],
    bots: impl IntoIterator<Item = &'a str>,
    load_factor: f64,
    replicas: u32,
) -> Placement<'a> {
    let mut bots: Vec<_> = bots.into_iter().map(|bot| (digest(bot), bot)).collect();
    // One order for all, whatever order they were given in.
    bots.sort_unstable();
    bots.dedup();
    let ring = Ring::new(workers.iter().map(|worker| worker.id), replicas);
    let capacities: BTreeMap<_, _> = workers.iter().map(|worker| (worker.id, worker.capacity as usize)).collect();
    let mut room: Vec<usize> = ring.workers().iter().map(|id| capacities[id]).collect();
    let share = fair_share(&room, bots.len());
    if load_factor > 0.0 {
        let limit = (share.ceil() as usize).max((load_factor * share) as usize);
        room.iter_mut().for_each(|room| *room = (*room).min(limit));
    }
    let mut placement = Placement::default();
    for (_, bot) in bots {
        match ring.from(bot).find(|index| room[*index] > 0) {
            Some(index) => {
                room[index] -= 1;
                placement.owners.insert(bot, ring.workers()[index]);
            }
            None => placement.unplaced.push(bot),
        }
    }
    placement
}

/// How many bots each worker would hold were all equally full: what a small one can't take is shared by the others.
fn fair_share(capacities: &[usize], bots: usize) -> f64 {
    let mut sorted = capacities.to_vec();
    sorted.sort_unstable();
    let mut left = bots as f64;
    let mut share = 0.0;
    for (at, capacity) in sorted.iter().enumerate() {
        share = left / (sorted.len() - at) as f64;
        if share <= *capacity as f64 {
            return share;
        }
        left -= *capacity as f64;
    }
    share
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::ring::REPLICAS, *};

    fn ids(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("{prefix}{n}")).collect()
    }

    fn equal(ids: &[String]) -> Vec<Worker<'_>> {
        ids.iter().map(|id| Worker { id, capacity: 1_000 }).collect()
    }

    fn loads<'a>(placement: &Placement<'a>) -> BTreeMap<&'a str, usize> {
        let mut loads = BTreeMap::new();
        placement.owners.values().for_each(|worker| *loads.entry(*worker).or_default() += 1);
        loads
    }

    /// Contract: W2. The bar: no worker above 1.10 of its share.
    #[test]
    fn a_thousand_bots_are_spread_evenly_over_four_eight_and_sixteen_workers() {
        let bots = ids("bot-", 1_000);
        let mut worst_plain: f64 = 0.0;
        for count in [4, 8, 16] {
            let names = ids("box-", count);
            let share = 1_000.0 / count as f64;
            let most = |factor| {
                let placement = place(&equal(&names), bots.iter().map(String::as_str), factor, REPLICAS);
                assert_eq!(placement.owners.len(), 1_000);
                *loads(&placement).values().max().expect("some") as f64 / share
            };
            assert!(most(LOAD_FACTOR) <= 1.10, "{} of its share on one of {count}", most(LOAD_FACTOR));
            worst_plain = worst_plain.max(most(0.0));
        }
        assert!(worst_plain > 1.10, "the ring alone is less even: {worst_plain}");
    }

    /// Contract: W2. When one of W workers comes or goes, no more than three of its shares move.
    #[test]
    fn what_moves_when_a_worker_comes_or_goes_is_bounded() {
        for round in 0..20 {
            let bots = ids(&format!("bot-{round}-"), 1_000);
            for count in [4, 8, 16] {
                let names = ids(&format!("box-{round}-"), count + 1);
                let at = |names: &[String]| -> BTreeMap<String, String> {
                    let placement = place(&equal(names), bots.iter().map(String::as_str), LOAD_FACTOR, REPLICAS);
                    placement.owners.iter().map(|(bot, worker)| ((*bot).to_owned(), (*worker).to_owned())).collect()
                };
                let (fewer, more) = (at(&names[..count]), at(&names));
                let moved = bots.iter().filter(|bot| fewer[*bot] != more[*bot]).count();
                assert!(moved <= 3 * 1_000 / (count + 1), "{moved} of 1000 moved with {count} and one more");
            }
        }
    }

    proptest! {
        /// Contract: W2.
        #[test]
        fn every_bot_that_there_is_room_for_has_one_worker_within_its_limits(
            capacities in proptest::collection::vec(1_u32..60, 1..8),
            count in 0_usize..200,
        ) {
            let names = ids("w", capacities.len());
            let workers: Vec<_> = names.iter().zip(&capacities).map(|(id, capacity)| Worker { id, capacity: *capacity }).collect();
            let bots = ids("b", count);
            let placement = place(&workers, bots.iter().map(String::as_str), LOAD_FACTOR, REPLICAS);
            let fits = (capacities.iter().sum::<u32>() as usize).min(count);
            prop_assert_eq!((placement.owners.len(), placement.unplaced.len()), (fits, count - fits));
            let loads = loads(&placement);
            for worker in &workers {
                prop_assert!(loads.get(worker.id).copied().unwrap_or_default() <= worker.capacity as usize);
            }
            let mut turned: Vec<_> = workers.clone();
            turned.reverse();
            prop_assert_eq!(place(&turned, bots.iter().rev().map(String::as_str), LOAD_FACTOR, REPLICAS), placement);
        }
    }
}
