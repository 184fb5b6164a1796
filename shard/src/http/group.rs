//! Where each member stands in a `SO_REUSEPORT` group, told from who came and who went.
//!
//! The kernel appends a socket that starts to listen and puts the last one into the place of one that leaves. It can't
//! be asked for the order, so it is followed here. When several die at once, the order in which the kernel removed them
//! is not known: every order that is possible is kept until they agree again, and while they don't, [`Group::indices`]
//! says so and nobody is steered to a place that might be another's.

use std::collections::BTreeSet;

/// Orders beyond this many are not told apart; the group is followed again once it has emptied.
const MOST_ORDERS: usize = 64;

/// The members of one group, in every order that they may be in.
#[derive(Debug, Clone)]
pub struct Group<M> {
    members: BTreeSet<M>,
    orders: BTreeSet<Vec<M>>,
}

impl<M: Ord + Clone> Default for Group<M> {
    fn default() -> Self {
        Self { members: BTreeSet::new(), orders: BTreeSet::from([Vec::new()]) }
    }
}

impl<M: Ord + Clone> Group<M> {
    /// A socket listens. One after another: the caller waits for each before it lets the next one listen.
    pub fn joined(&mut self, member: M) {
        if self.members.insert(member.clone()) {
            let grown = |mut order: Vec<M>| {
                order.push(member.clone());
                order
            };
            self.orders = std::mem::take(&mut self.orders).into_iter().map(grown).collect();
        }
    }

    /// A socket was closed, by itself.
    pub fn left(&mut self, member: &M) {
        self.left_together(std::slice::from_ref(member));
    }

    /// Sockets were closed, in an order that is not known.
    pub fn left_together(&mut self, gone: &[M]) {
        let gone: BTreeSet<M> = gone.iter().filter(|member| self.members.remove(member)).cloned().collect();
        for _ in 0..gone.len() {
            let mut next = BTreeSet::new();
            for order in &self.orders {
                for at in (0..order.len()).filter(|&at| gone.contains(&order[at])) {
                    let mut order = order.clone();
                    order.swap_remove(at);
                    next.insert(order);
                }
            }
            self.orders = if next.len() > MOST_ORDERS { BTreeSet::new() } else { next };
        }
        if self.members.len() <= 1 {
            self.orders = BTreeSet::from([self.members.iter().cloned().collect()]);
        }
    }

    /// How many sockets there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether nobody listens.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether a socket is in the group.
    pub fn contains(&self, member: &M) -> bool {
        self.members.contains(member)
    }

    /// The places of those that `wanted` names, in ascending order. `None` when they are not known for certain.
    pub fn indices(&self, wanted: impl Fn(&M) -> bool) -> Option<Vec<u32>> {
        let places = |order: &Vec<M>| -> Vec<u32> {
            (0_u32..).zip(order).filter(|(_, member)| wanted(member)).map(|(at, _)| at).collect()
        };
        let mut found = self.orders.iter().map(places);
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_one_takes_the_place_of_the_one_that_leaves() {
        let mut group = Group::default();
        (0..4).for_each(|m| group.joined(m));
        group.left(&1);
        assert_eq!(group.indices(|&m| m == 3), Some(vec![1]));
        assert_eq!(group.indices(|&m| m != 3), Some(vec![0, 2]));
        group.joined(1);
        assert_eq!(group.indices(|&m| m == 1), Some(vec![3]));
        assert_eq!(group.len(), 4);
    }

    #[test]
    fn after_two_deaths_at_once_only_what_is_certain_is_told() {
        let mut group = Group::default();
        (0..5).for_each(|m| group.joined(m));
        // 1 then 0: [3,4,2]... 0 then 1: [4,3,2]. Where 2 stands is certain, where 3 stands is not.
        group.left_together(&[0, 1]);
        assert_eq!(group.indices(|&m| m == 2), Some(vec![2]));
        assert_eq!(group.indices(|&m| m == 3), None);
        assert_eq!(group.indices(|&m| m == 3 || m == 4), Some(vec![0, 1]));
        // As members are replaced one by one, certainty returns.
        group.left(&3);
        group.joined(3);
        assert_eq!(group.indices(|&m| m == 3), Some(vec![2]));
    }

    #[test]
    fn an_unknown_member_changes_nothing() {
        let mut group = Group::default();
        group.joined(7);
        group.left(&8);
        group.joined(7);
        assert_eq!((group.len(), group.indices(|_| true)), (1, Some(vec![0])));
    }

    proptest! {
        /// Against the kernel's own rule, with deaths whose order only the kernel knows.
        #[test]
        fn what_it_tells_is_what_the_kernel_has(steps in proptest::collection::vec((0_u8..3, 0_usize..8, 0_usize..8), 0..40)) {
            let mut group = Group::default();
            let mut kernel: Vec<u32> = Vec::new();
            for (next, (what, a, b)) in (0..).zip(steps) {
                if kernel.is_empty() || what == 0 {
                    kernel.push(next);
                    group.joined(next);
                } else if what == 1 {
                    let gone = kernel.swap_remove(a % kernel.len());
                    group.left(&gone);
                } else {
                    let first = kernel.swap_remove(a % kernel.len());
                    let mut gone = vec![first];
                    if !kernel.is_empty() {
                        gone.push(kernel.swap_remove(b % kernel.len()));
                    }
                    gone.sort_unstable();
                    group.left_together(&gone);
                }
                prop_assert_eq!(group.len(), kernel.len());
                for member in &kernel {
                    if let Some(told) = group.indices(|m| m == member) {
                        let real = kernel.iter().position(|m| m == member).expect("there") as u32;
                        prop_assert_eq!(told, vec![real]);
                    }
                }
            }
        }
    }
}
