//! The SO_REUSEPORT group as the kernel keeps it, as far as it can be known from here.
//!
//! The kernel holds the listeners of a port in an array: a new one goes to the end, and the last one moves into the hole
//! of one that leaves. A steering program answers with an index into that array, so the order must be known. The primary
//! grants listening to one shard at a time and hears of leaving a moment after it happened; two changes that may have
//! overlapped make more than one order possible. All possible ones are kept, and connections are steered only to places
//! that are good in each of them. Where too much overlaps, nothing is steered rather than to the wrong shard.

use std::{collections::BTreeSet, time::Duration};

/// Which listener: a slot and one of its lives.
pub type Member = (u32, u64);

/// Where new connections go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How many listeners there are.
    pub total: u32,
    /// The places, in the kernel's order, that get connections.
    pub targets: Vec<u32>,
}

/// A moment in the order of what the primary saw: what happened after it is known to come later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(u64);

/// Within this time before its report a change may have happened.
const REPORT_DELAY: Duration = Duration::from_secs(2);
/// More overlapping changes than this are not worked out.
const MAX_WINDOW: usize = 5;
/// Of so few members every order can be listed.
const MAX_LISTED: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Join(Member),
    Leave(Member),
}

#[derive(Debug, Clone)]
struct Noted {
    change: Change,
    /// Its place in what the primary saw.
    seen: u64,
    /// It happened after everything that was seen before this.
    after: Mark,
    at: Duration,
}

type Orders = BTreeSet<Vec<Member>>;

/// The group. See the module's words.
#[derive(Debug, Clone)]
pub struct Group {
    members: Vec<Member>,
    /// Shards that may have joined without saying so.
    ghosts: Vec<Member>,
    seen: u64,
    /// The orders possible before the changes in `window`; `None` = unknown.
    base: Option<Orders>,
    window: Vec<Noted>,
    orders: Option<Orders>,
}

impl Default for Group {
    fn default() -> Self {
        let empty: Orders = [Vec::new()].into();
        Self {
            members: Vec::new(),
            ghosts: Vec::new(),
            seen: 0,
            base: Some(empty.clone()),
            window: Vec::new(),
            orders: Some(empty),
        }
    }
}

impl Group {
    /// Now, as a point in the order of what was seen.
    pub fn mark(&self) -> Mark {
        Mark(self.seen)
    }

    /// The point before everything that was seen at `at` or later.
    pub fn mark_at(&self, at: Duration) -> Mark {
        self.window.iter().find(|noted| noted.at >= at).map_or(self.mark(), |noted| Mark(noted.seen))
    }

    /// Who is in it, in no order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// A shard says that it listens. It did so after `granted`.
    pub fn joined(&mut self, member: Member, granted: Mark, now: Duration) {
        if self.members.contains(&member) {
            return;
        }
        self.members.push(member);
        if self.ghosts.contains(&member) {
            self.ghosts.retain(|ghost| *ghost != member);
            return self.forget_order();
        }
        self.note(Change::Join(member), granted, now);
    }

    /// A shard has closed its listener, or is dead. It did so after `asked`.
    pub fn left(&mut self, member: Member, asked: Mark, now: Duration) {
        if self.ghosts.contains(&member) {
            self.ghosts.retain(|ghost| *ghost != member);
            self.forget_order();
        }
        if self.members.contains(&member) {
            self.members.retain(|other| *other != member);
            self.note(Change::Leave(member), asked, now);
        }
    }

    /// A shard died between the permission to listen and its answer: it may have been in for a moment. That matters only
    /// if somebody left meanwhile.
    pub fn may_have_passed(&mut self, granted: Mark) {
        let overlap = |noted: &Noted| matches!(noted.change, Change::Leave(_)) && noted.seen >= granted.0;
        if self.window.iter().any(overlap) {
            self.forget_order();
        }
    }

    /// A shard has not answered the permission to listen: it may join at any moment from now on.
    pub fn may_join_unseen(&mut self, member: Member) {
        self.ghosts.push(member);
    }

    /// Where connections should go, if those that are not `well` are to be spared them. `None`: wherever the kernel
    /// likes, since all are well, or none is, or the order is not known well enough.
    pub fn plan(&self, well: impl Fn(Member) -> bool) -> Option<Plan> {
        let orders = self.orders.as_ref()?;
        if !self.ghosts.is_empty() || self.members.iter().all(|member| well(*member)) {
            return None;
        }
        let total = self.members.len() as u32;
        let good = |place: &u32| orders.iter().all(|order| well(order[*place as usize]));
        let targets: Vec<u32> = (0..total).filter(good).collect();
        (!targets.is_empty()).then_some(Plan { total, targets })
    }

    fn note(&mut self, change: Change, after: Mark, now: Duration) {
        if self.window.last().is_some_and(|noted| now.saturating_sub(noted.at) > REPORT_DELAY) {
            self.window.clear();
            self.base = self.orders.clone();
        }
        self.window.push(Noted { change, seen: self.seen, after, at: now });
        self.seen += 1;
        self.orders = match &self.base {
            Some(base) if self.window.len() <= MAX_WINDOW => Some(possible(base, &self.window)),
            _ => None,
        };
        if self.orders.as_ref().is_none_or(BTreeSet::is_empty) {
            self.forget_order();
        }
    }

    /// From here on any order is possible. Of few members all are listed, so that the next leave can settle it.
    fn forget_order(&mut self) {
        self.window.clear();
        self.orders = (self.members.len() <= MAX_LISTED).then(|| permutations(&self.members));
        self.base = self.orders.clone();
    }
}

/// All orders that `window` can have led to from `base`: in every sequence that its marks allow.
fn possible(base: &Orders, window: &[Noted]) -> Orders {
    fn walk(order: Vec<Member>, left: &[Noted], out: &mut Orders) {
        if left.is_empty() {
            out.insert(order);
            return;
        }
        for (i, noted) in left.iter().enumerate() {
            // A change that is known to lie before this one must have been applied.
            if left.iter().any(|other| other.seen < noted.after.0) {
                continue;
            }
            let mut next = order.clone();
            match noted.change {
                Change::Join(member) => next.push(member),
                Change::Leave(member) => match next.iter().position(|other| *other == member) {
                    Some(place) => drop(next.swap_remove(place)),
                    None => continue,
                },
            }
            let rest: Vec<Noted> = left.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, n)| n.clone()).collect();
            walk(next, &rest, out);
        }
    }
    let mut out = Orders::new();
    for order in base {
        walk(order.clone(), window, &mut out);
    }
    out
}

fn permutations(members: &[Member]) -> Orders {
    if members.is_empty() {
        return [Vec::new()].into();
    }
    let mut out = Orders::new();
    for i in 0..members.len() {
        let mut rest = members.to_vec();
        let first = rest.remove(i);
        for mut tail in permutations(&rest) {
            tail.insert(0, first);
            out.insert(tail);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn of(members: &[Member]) -> Group {
        let mut group = Group::default();
        for (n, member) in members.iter().enumerate() {
            let mark = group.mark();
            group.joined(*member, mark, ms(n as u64 * 10));
        }
        group
    }

    #[test]
    fn the_last_listener_moves_into_the_hole() {
        let mut group = of(&[(0, 1), (1, 1), (2, 1)]);
        let mark = group.mark();
        group.left((0, 1), mark, ms(10_000));
        // Order is now 2, 1.
        assert_eq!(group.plan(|m| m.0 != 1), Some(Plan { total: 2, targets: vec![0] }));
    }

    /// Contract: P4.
    #[test]
    fn nothing_is_steered_when_all_are_well_or_none_is() {
        let group = of(&[(0, 1), (1, 1)]);
        assert_eq!(group.plan(|_| true), None);
        assert_eq!(group.plan(|_| false), None);
        assert_eq!(group.plan(|m| m.0 == 1), Some(Plan { total: 2, targets: vec![1] }));
    }

    #[test]
    fn two_deaths_at_once_leave_the_order_open_until_it_settles() {
        let mut group = of(&[(0, 1), (1, 1), (2, 1), (3, 1)]);
        group.left((0, 1), Mark::default(), ms(10_000));
        group.left((1, 1), Mark::default(), ms(10_001));
        // 2, 3 or 3, 2: no place is surely not the silent one's.
        assert_eq!(group.plan(|m| m.0 != 2), None);
        let mark = group.mark();
        group.left((2, 1), mark, ms(20_000));
        let mark = group.mark();
        group.joined((2, 2), mark, ms(30_000));
        assert_eq!(group.plan(|m| m.0 != 2), Some(Plan { total: 2, targets: vec![0] }));
    }

    #[test]
    fn a_listener_that_may_come_unseen_stops_the_steering() {
        let mut group = of(&[(0, 1), (1, 1)]);
        group.may_join_unseen((2, 1));
        assert_eq!(group.plan(|m| m.0 != 1), None);
        group.left((2, 1), Mark::default(), ms(9_000));
        let mark = group.mark();
        group.left((1, 1), mark, ms(20_000));
        let mark = group.mark();
        group.joined((1, 2), mark, ms(30_000));
        assert_eq!(group.plan(|m| m.0 != 1), Some(Plan { total: 2, targets: vec![0] }));
    }

    proptest! {
        /// The kernel's group and the primary's view of it, with reports that come late and out of order: a plan never
        /// names a place that is not well, and the members are right when everything has been reported.
        #[test]
        fn a_plan_never_points_at_a_listener_that_is_not_well(
            steps in proptest::collection::vec((0u32..5, 0u8..4, 1u64..1500), 1..60),
            sick in 0u32..5,
        ) {
            let (mut kernel, mut group) = (Vec::<Member>::new(), Group::default());
            let mut late: Vec<Member> = Vec::new();
            let (mut now, mut lives) = (0u64, [0u64; 5]);
            for (slot, what, pause) in steps {
                let member = (slot, lives[slot as usize]);
                let pending = late.iter().any(|other| other.0 == slot);
                match what {
                    // A shard whose past is all reported gets leave to listen, does it and says so.
                    0 if !pending && !kernel.contains(&member) => {
                        lives[slot as usize] += 1;
                        let (member, mark) = ((slot, lives[slot as usize]), group.mark());
                        kernel.push(member);
                        group.joined(member, mark, ms(now));
                    }
                    // It dies; the report comes later.
                    1 | 2 => if let Some(place) = kernel.iter().position(|other| *other == member) {
                        kernel.swap_remove(place);
                        late.push(member);
                    },
                    // It is asked to leave, does it and says so.
                    _ => if let Some(place) = kernel.iter().position(|other| *other == member) {
                        let mark = group.mark();
                        kernel.swap_remove(place);
                        group.left(member, mark, ms(now));
                    },
                }
                // Reports are at most as late as the model allows.
                if pause > 700 || late.len() > 1 {
                    late.reverse();
                    for member in late.drain(..) {
                        group.left(member, Mark::default(), ms(now));
                    }
                    now += pause;
                    let mut expected = kernel.clone();
                    let mut members = group.members().to_vec();
                    expected.sort();
                    members.sort();
                    prop_assert_eq!(expected, members);
                    if let Some(plan) = group.plan(|m| m.0 != sick) {
                        prop_assert_eq!(plan.total as usize, kernel.len());
                        for place in plan.targets {
                            prop_assert!(kernel[place as usize].0 != sick);
                        }
                    }
                }
            }
        }
    }
}
