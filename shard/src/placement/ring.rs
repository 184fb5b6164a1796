//! A consistent-hash ring over MD5, as its documentation in other languages has it: a worker's points are the digests of
//! `<worker>:<i>`, read as 128-bit numbers; a key belongs to the first point at or after its own digest, wrapping.

use md5::{Digest, Md5};

/// Points of one worker, where nothing else is said.
pub const REPLICAS: u32 = 100;

/// The points of some workers.
#[derive(Debug, Clone)]
pub struct Ring<'a> {
    /// In order; the index is a worker's, in the order given.
    points: Vec<(u128, usize)>,
    workers: Vec<&'a str>,
}

/// Where a text lies on the ring.
pub(super) fn digest(text: &str) -> u128 {
    u128::from_be_bytes(Md5::digest(text).into())
}

impl<'a> Ring<'a> {
    /// The ring of these workers; one that is named twice counts once.
    pub fn new(workers: impl IntoIterator<Item = &'a str>, replicas: u32) -> Self {
        let mut workers: Vec<_> = workers.into_iter().collect();
        workers.sort_unstable();
        workers.dedup();
        let of = |(index, worker): (usize, &&str)| {
            (0..replicas).map(|i| (digest(&format!("{worker}:{i}")), index)).collect::<Vec<_>>()
        };
        let mut points: Vec<_> = workers.iter().enumerate().flat_map(of).collect();
        points.sort_unstable();
        Self { points, workers }
    }

    /// Who holds a key, by the ring alone; nobody, where there are no workers.
    pub fn owner(&self, key: &str) -> Option<&'a str> {
        self.from(key).next().map(|index| self.workers[index])
    }

    /// All workers, by index, in the order in which a key asks them; each comes once.
    pub(super) fn from(&self, key: &str) -> impl Iterator<Item = usize> + '_ {
        let at = digest(key);
        let first = self.points.partition_point(|(point, _)| *point < at);
        let mut asked = vec![false; self.workers.len()];
        let around = self.points[first..].iter().chain(&self.points[..first]);
        around.map(|(_, index)| *index).filter(move |index| !std::mem::replace(&mut asked[*index], true))
    }

    /// The workers, by index.
    pub(super) fn workers(&self) -> &[&'a str] {
        &self.workers
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nobody_owns_a_key_where_there_are_no_workers() {
        assert_eq!(Ring::new([], REPLICAS).owner("a"), None);
        assert_eq!(Ring::new(["only"], 1).owner("a"), Some("only"));
    }

    proptest! {
        /// Contract: W2.
        #[test]
        fn the_order_of_the_workers_makes_no_difference(
            mut workers in proptest::collection::vec("[a-z]{1,4}-[0-9]", 1..12),
            keys in proptest::collection::vec("[a-f0-9]{8}", 1..20),
        ) {
            let before: Vec<_> = {
                let ring = Ring::new(workers.iter().map(String::as_str), REPLICAS);
                keys.iter().map(|key| ring.owner(key).map(str::to_owned)).collect()
            };
            workers.reverse();
            workers.push(workers[0].clone());
            let ring = Ring::new(workers.iter().map(String::as_str), REPLICAS);
            let after: Vec<_> = keys.iter().map(|key| ring.owner(key).map(str::to_owned)).collect();
            prop_assert_eq!(before, after);
        }

        /// Contract: W2. Only what a worker had moves when it leaves.
        #[test]
        fn nobody_elses_keys_move_when_a_worker_leaves(gone in 0_usize..8, keys in proptest::collection::vec("[a-f0-9]{8}", 50)) {
            let workers: Vec<String> = (0..8).map(|n| format!("w{n}")).collect();
            let all = Ring::new(workers.iter().map(String::as_str), REPLICAS);
            let rest = Ring::new(workers.iter().map(String::as_str).filter(|w| *w != workers[gone]), REPLICAS);
            for key in &keys {
                if all.owner(key) != Some(&workers[gone]) {
                    prop_assert_eq!(all.owner(key), rest.owner(key));
                }
            }
        }
    }
}
