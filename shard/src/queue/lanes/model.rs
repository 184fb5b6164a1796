//! The lanes against a model of a queue, with crashes between any two actions.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{super::*, arrival, lane, queue};

/// A queue and a registry in memory: what survives a crash.
#[derive(Default)]
struct World {
    work: VecDeque<(u64, Lane)>,
    parked: BTreeMap<Lane, BTreeMap<u64, u64>>,
    facts: BTreeMap<Lane, LaneFact>,
    /// Jobs done, in order; repeats left out.
    done: Vec<(u64, Lane)>,
    /// Jobs that had to wait for a later time at some moment: barriers don't wait for them.
    put_off: Vec<u64>,
}

/// One life of the process.
struct Life {
    lanes: Lanes,
    /// Actions of each lane in order; lanes in any order.
    todo: BTreeMap<Lane, VecDeque<Action>>,
    starts: VecDeque<Key>,
    /// key → (job, lane, place in the parked queue).
    out: BTreeMap<Key, (u64, Lane, Option<u64>)>,
    next_key: Key,
    running: Vec<Key>,
    delivered: usize,
    fresh_seen: bool,
}

const PREFETCH: usize = 12;

impl World {
    fn is_empty(&self) -> bool {
        self.work.is_empty() && self.parked.values().all(BTreeMap::is_empty)
    }

    fn take_from_work(&mut self, job: u64) {
        let at = self.work.iter().position(|(other, _)| *other == job).expect("in work");
        self.work.remove(at);
    }
}

impl Life {
    fn new(limits: Limits, world: &World) -> Self {
        Self {
            lanes: Lanes::new(queue(), limits, world.facts.values().cloned().collect()),
            todo: BTreeMap::new(),
            starts: VecDeque::new(),
            out: BTreeMap::new(),
            next_key: 0,
            running: Vec::new(),
            delivered: 0,
            fresh_seen: false,
        }
    }

    fn give_out(&mut self, job: u64, name: Lane, place: Option<u64>) -> Arrival {
        let key = self.next_key;
        self.next_key += 1;
        self.out.insert(key, (job, name.clone(), place));
        let mut arrival = arrival(key, name);
        arrival.id = JobId::new(format!("j{job}")).expect("short");
        arrival.suspect = job.is_multiple_of(7);
        arrival
    }

    fn order(&mut self, actions: Vec<Action>) {
        for action in actions {
            let name = match &action {
                Action::Start(key) => {
                    self.starts.push_back(*key);
                    continue;
                }
                Action::StoreFact(fact) => fact.lane.clone(),
                Action::Park { lane, .. } | Action::Unpark { lane, .. } | Action::ClearFact(lane) => lane.clone(),
            };
            self.todo.entry(name).or_default().push_back(action);
        }
    }

    fn carry_out(&mut self, world: &mut World, action: Action, now: i64, seed: u64) {
        let actions = match action {
            Action::Start(_) => return,
            Action::StoreFact(fact) => {
                world.facts.insert(fact.lane.clone(), fact);
                return;
            }
            Action::Park { key, lane, seq } => {
                assert!(world.facts.contains_key(&lane), "seed {seed}: parked without a fact");
                let (job, _, place) = self.out.remove(&key).expect("out");
                if place != Some(seq) {
                    let before = world.parked.entry(lane).or_default().insert(seq, job);
                    assert!(before.is_none(), "seed {seed}: place {seq} taken");
                }
                if place.is_none() {
                    world.take_from_work(job);
                    self.delivered -= 1;
                }
                return;
            }
            Action::Unpark { lane, limit } => {
                let here = |(_, of, place): &(u64, Lane, Option<u64>)| (*of == lane).then_some(*place).flatten();
                let taken: Vec<u64> = self.out.values().filter_map(here).collect();
                let parked = world.parked.get(&lane).into_iter().flatten();
                let lot: Vec<(u64, u64)> =
                    parked.filter(|(seq, _)| !taken.contains(seq)).take(limit).map(|(seq, job)| (*seq, *job)).collect();
                let arrivals =
                    lot.into_iter().map(|(seq, job)| (self.give_out(job, lane.clone(), Some(seq)), seq)).collect();
                self.lanes.unparked(&lane, arrivals, false, now)
            }
            Action::ClearFact(lane) => {
                assert!(world.parked.get(&lane).is_none_or(BTreeMap::is_empty), "seed {seed}: cleared too early");
                world.facts.remove(&lane);
                self.lanes.cleared(&lane, now)
            }
        };
        self.order(actions);
    }

    fn deliver(&mut self, world: &World, out_before: usize, now: i64) {
        let (job, name) = world.work[self.delivered].clone();
        if self.delivered >= out_before && !std::mem::replace(&mut self.fresh_seen, true) {
            let actions = self.lanes.caught_up(now);
            self.order(actions);
        }
        self.delivered += 1;
        let arrival = self.give_out(job, name, None);
        let actions = self.lanes.arrived(arrival, now);
        self.order(actions);
    }

    fn finish(&mut self, world: &mut World, key: Key, now: i64) {
        let (job, lane, place) = self.out.remove(&key).expect("out");
        if !world.done.iter().any(|(done, _)| *done == job) {
            world.done.push((job, lane.clone()));
        }
        match place {
            Some(seq) => drop(world.parked.get_mut(&lane).expect("parked").remove(&seq)),
            None => {
                world.take_from_work(job);
                self.delivered -= 1;
            }
        }
        let actions = self.lanes.finished(key, now);
        self.order(actions);
    }

    /// One lane at a time, barriers and suspects alone, and never more than may run.
    fn check(&self, limits: &Limits, seed: u64) {
        let mut lanes: Vec<_> = self.running.iter().map(|key| &self.out[key].1).collect();
        assert!(lanes.len() <= limits.running, "seed {seed}: too many at work");
        for barrier in lanes.iter().filter(|lane| lane.chat.is_none()) {
            let beside = lanes.iter().filter(|lane| lane.channel == barrier.channel).count();
            assert_eq!(beside, 1, "seed {seed}: something beside a barrier");
        }
        let suspects = self.running.iter().filter(|key| self.out[key].0.is_multiple_of(7)).count();
        assert!(suspects <= 1, "seed {seed}: {suspects} suspects at work");
        let count = lanes.len();
        lanes.sort();
        lanes.dedup();
        assert_eq!(lanes.len(), count, "seed {seed}: two of a lane at work");
    }
}

fn simulate(seed: u64, crashes: bool) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::default();
    let chats = ["", "a", "b", "c", "d", "e"];
    let mut published: Vec<(u64, Lane)> = Vec::new();
    let total = rng.random_range(1..80u64);
    for job in 0..total {
        let chat = chats[if rng.random_bool(0.1) { 0 } else { rng.random_range(1..6) }];
        published.push((job, lane(rng.random_range(1..3), chat)));
    }
    // Not all is there from the beginning.
    let mut to_come: VecDeque<_> = published.iter().cloned().collect();
    let failing = rng.random_range(0.0..0.4);
    let limits = Limits { running: rng.random_range(1..6), running_per_channel: 3, spill_after_ms: 3, lot: 3 };
    let mut now = 0i64;
    let mut lives = 0;
    // What had been given out when the last life ended: those come as redelivered.
    let mut out_before = 0usize;
    'lives: loop {
        lives += 1;
        let mut life = Life::new(limits, &world);
        let steps = if crashes && lives < 20 { rng.random_range(1..300) } else { 20_000 };
        for _ in 0..steps {
            now += rng.random_range(0..3);
            while life.running.len() < limits.running
                && let Some(key) = life.starts.pop_front()
            {
                life.running.push(key);
            }
            assert!(life.starts.is_empty(), "seed {seed}: more begun than may run");
            if !to_come.is_empty() && rng.random_bool(0.3) {
                world.work.extend(to_come.pop_front());
            }
            match rng.random_range(0..6) {
                0 | 1 if !life.todo.is_empty() => {
                    let at = rng.random_range(0..life.todo.len());
                    let entry = life.todo.iter_mut().nth(at).expect("there");
                    let (name, action) = (entry.0.clone(), entry.1.pop_front().expect("none is empty"));
                    if entry.1.is_empty() {
                        life.todo.remove(&name);
                    }
                    life.carry_out(&mut world, action, now, seed);
                }
                2 | 3 if life.delivered < PREFETCH && life.delivered < world.work.len() => {
                    life.deliver(&world, out_before, now);
                }
                4 if !life.running.is_empty() => {
                    let key = life.running.swap_remove(rng.random_range(0..life.running.len()));
                    if rng.random_bool(failing) {
                        let due = now + rng.random_range(0..40);
                        world.put_off.push(life.out[&key].0);
                        let actions = if rng.random_bool(0.5) {
                            life.lanes.postponed(key, due, now)
                        } else {
                            life.lanes.gives_way(key, due, now)
                        };
                        life.order(actions);
                    } else {
                        let before = out_before.saturating_sub(usize::from(life.out[&key].2.is_none()));
                        life.finish(&mut world, key, now);
                        out_before = before;
                    }
                }
                _ => {
                    // No more than the prefetch was ever out.
                    let all_is_here = life.delivered >= world.work.len().min(PREFETCH);
                    if all_is_here && !std::mem::replace(&mut life.fresh_seen, true) {
                        let actions = life.lanes.caught_up(now);
                        life.order(actions);
                    }
                    if rng.random_bool(0.1) {
                        let actions = life.lanes.channel_is_up(super::channel(rng.random_range(1..3)), now);
                        life.order(actions);
                    }
                    let actions = life.lanes.tick(now, life.delivered >= PREFETCH);
                    life.order(actions);
                }
            }
            life.check(&limits, seed);
            let idle = life.todo.is_empty() && life.running.is_empty() && life.starts.is_empty();
            if to_come.is_empty() && world.is_empty() && idle && world.facts.is_empty() {
                assert!(life.lanes.is_forgotten(), "seed {seed}: something is remembered: {:?}", life.lanes);
                break 'lives;
            }
        }
        if !crashes || lives >= 20 {
            panic!("seed {seed}: did not finish: {:?}", life.lanes);
        }
        // What was ever out and not settled is told apart from what never was, however many lives ago that was.
        out_before = out_before.max(life.delivered);
    }
    for name in published.iter().map(|(_, name)| name) {
        let of = |jobs: &[(u64, Lane)]| -> Vec<u64> {
            jobs.iter().filter(|(_, lane)| lane == name).map(|(job, _)| *job).collect()
        };
        assert_eq!(of(&world.done), of(&published), "seed {seed}: order or loss in {name:?}");
    }
    if !crashes {
        barriers_hold(&world, &published, seed);
    }
}

/// A barrier that never had to wait itself comes after everything earlier of its channel that never had to wait, and before
/// everything later.
fn barriers_hold(world: &World, published: &[(u64, Lane)], seed: u64) {
    let place = |job: u64| world.done.iter().position(|(done, _)| *done == job).expect("done");
    let is_put_off = |job: u64| world.put_off.contains(&job);
    for (barrier, name) in published.iter().filter(|(_, name)| name.chat.is_none()) {
        let lane_waited = |lane: &Lane| published.iter().any(|(job, other)| other == lane && is_put_off(*job));
        if lane_waited(name) {
            continue;
        }
        for (other, lane) in published.iter().filter(|(_, lane)| lane.channel == name.channel && lane != name) {
            if other > barrier {
                assert!(place(*other) > place(*barrier), "seed {seed}: {other} overtook the barrier {barrier}");
            } else if !lane_waited(lane) {
                assert!(place(*other) < place(*barrier), "seed {seed}: the barrier {barrier} overtook {other}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Contract: Q3, Q4.
    #[test]
    fn every_job_is_done_in_its_lane_s_order(seed in any::<u64>()) {
        simulate(seed, false);
    }

    /// Contract: Q3, Q4. The process dies between any two actions.
    #[test]
    fn order_survives_crashes(seed in any::<u64>()) {
        simulate(seed, true);
    }
}
