//! The lanes against a model of a queue, with crashes between any two actions.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};
use uuid::Uuid;

use super::*;
use crate::identity::QueueBase;

fn queue() -> QueueName {
    QueueName::of(QueueBase::Main, 0, 2)
}

fn channel(n: u128) -> ChannelId {
    ChannelId::from_uuid(Uuid::from_u128(n))
}

fn lane(of: u128, chat: &str) -> Lane {
    Lane { base: QueueBase::Main, channel: channel(of), chat: (!chat.is_empty()).then(|| chat.to_owned()) }
}

fn arrival(key: Key, lane: Lane) -> Arrival {
    let id = JobId::new(format!("j{key}")).expect("short");
    Arrival { key, id, barrier: lane.chat.is_none(), lane, suspect: false }
}

fn fresh(limits: Limits) -> Lanes {
    let mut lanes = Lanes::new(queue(), limits, vec![]);
    lanes.caught_up(0);
    lanes
}

/// Contract: Q3.
#[test]
fn a_lane_runs_one_after_another_and_lanes_run_side_by_side() {
    let mut lanes = fresh(Limits::default());
    assert_eq!(lanes.arrived(arrival(1, lane(1, "a")), 0), [Action::Start(1)]);
    assert_eq!(lanes.arrived(arrival(2, lane(1, "a")), 0), []);
    assert_eq!(lanes.arrived(arrival(3, lane(1, "b")), 0), [Action::Start(3)]);
    assert_eq!(lanes.finished(1, 0), [Action::Start(2)]);
}

/// Contract: Q3.
#[test]
fn the_fact_is_stored_before_anything_of_the_lane_moves() {
    let mut lanes = fresh(Limits::default());
    lanes.arrived(arrival(1, lane(1, "a")), 0);
    lanes.arrived(arrival(2, lane(1, "a")), 0);
    let actions = lanes.postponed(1, 5_000, 0);
    assert!(matches!(&actions[0], Action::StoreFact(fact) if fact.due_ms == 5_000 && fact.head.as_str() == "j1"));
    let parked: Vec<_> = actions[1..]
        .iter()
        .map(|action| match action {
            Action::Park { key, seq, .. } => (*key, *seq),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(parked, [(1, 1), (2, 2)]);
    assert_eq!(lanes.next_due_ms(), Some(5_000));
    assert!(matches!(lanes.arrived(arrival(3, lane(1, "a")), 1)[..], [Action::Park { key: 3, seq: 3, .. }]));
    assert!(matches!(lanes.tick(5_000, false)[..], [Action::Unpark { .. }]));
}

/// Contract: Q3.
#[test]
fn a_barrier_waits_for_its_channel_and_holds_what_comes_later() {
    let mut lanes = fresh(Limits::default());
    lanes.arrived(arrival(1, lane(1, "a")), 0);
    assert_eq!(lanes.arrived(arrival(2, lane(1, "")), 0), []);
    assert_eq!(lanes.arrived(arrival(3, lane(1, "b")), 0), [], "later than the barrier");
    assert_eq!(lanes.arrived(arrival(4, lane(2, "b")), 0), [Action::Start(4)], "another channel");
    assert_eq!(lanes.finished(1, 0), [Action::Start(2)]);
    assert_eq!(lanes.finished(2, 0), [Action::Start(3)]);
}

/// Contract: Q3. A lane that waits for hours must not hold a `disconnect` back.
#[test]
fn a_barrier_does_not_wait_for_what_is_parked() {
    let mut lanes = fresh(Limits::default());
    lanes.arrived(arrival(1, lane(1, "a")), 0);
    lanes.arrived(arrival(2, lane(1, "")), 0);
    let actions = lanes.postponed(1, 1_000_000, 0);
    assert!(actions.contains(&Action::Start(2)), "{actions:?}");
}

/// Field report R30.
#[test]
fn a_backlog_moves_aside_when_it_would_keep_other_lanes_out() {
    let limits = Limits { spill_over: 2, ..Limits::default() };
    let mut lanes = fresh(limits);
    for key in 0..20 {
        lanes.arrived(arrival(key, lane(1, "a")), 0);
    }
    assert_eq!(lanes.tick(100, true), [], "not yet");
    let actions = lanes.tick(300, true);
    assert!(matches!(actions[0], Action::StoreFact(_)));
    assert_eq!(actions.iter().filter(|action| matches!(action, Action::Park { .. })).count(), 19);
    assert_eq!(lanes.running(), 1, "the head goes on");
}

/// Field report R27.
#[test]
fn suspects_run_one_at_a_time() {
    let mut lanes = fresh(Limits::default());
    let suspect = |key, chat| Arrival { suspect: true, ..arrival(key, lane(1, chat)) };
    assert_eq!(lanes.arrived(suspect(1, "a"), 0), [Action::Start(1)]);
    assert_eq!(lanes.arrived(suspect(2, "b"), 0), []);
    assert_eq!(lanes.arrived(arrival(3, lane(1, "c")), 0), [Action::Start(3)]);
    assert_eq!(lanes.finished(1, 0), [Action::Start(2)]);
}

/// A queue and a registry in memory: what survives a crash.
#[derive(Default)]
struct World {
    work: VecDeque<(u64, Lane)>,
    parked: BTreeMap<Lane, BTreeMap<u64, u64>>,
    facts: BTreeMap<Lane, LaneFact>,
    /// Jobs done, in order, by lane; repeats left out.
    done: BTreeMap<Lane, Vec<u64>>,
}

/// One life of the process.
struct Life {
    lanes: Lanes,
    todo: VecDeque<Action>,
    /// key → (job, lane, place in the parked queue).
    out: BTreeMap<Key, (u64, Lane, Option<u64>)>,
    next_key: Key,
    running: Vec<Key>,
    delivered: usize,
    fresh_seen: bool,
}

const PREFETCH: usize = 12;

fn simulate(seed: u64, crashes: bool) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::default();
    let chats = ["", "a", "b", "c"];
    let mut published: BTreeMap<Lane, Vec<u64>> = BTreeMap::new();
    let total = rng.random_range(1..60u64);
    for job in 0..total {
        let chat = chats[if rng.random_bool(0.1) { 0 } else { rng.random_range(1..4) }];
        let name = lane(rng.random_range(1..3), chat);
        world.work.push_back((job, name.clone()));
        published.entry(name).or_default().push(job);
    }
    let mut now = 0i64;
    let mut lives = 0;
    // What had been given out when the last life ended: those come as redelivered.
    let mut out_before = 0usize;
    'lives: loop {
        lives += 1;
        assert!(lives < 500, "seed {seed}: never finishes");
        let limits = Limits { running: 4, spill_over: 2, spill_after_ms: 3, lot: 3 };
        let mut life = Life {
            lanes: Lanes::new(queue(), limits, world.facts.values().cloned().collect()),
            todo: VecDeque::new(),
            out: BTreeMap::new(),
            next_key: 0,
            running: Vec::new(),
            delivered: 0,
            fresh_seen: false,
        };
        let steps = if crashes && lives < 20 { rng.random_range(1..200) } else { 100_000 };
        for _ in 0..steps {
            now += rng.random_range(0..3);
            let mut actions = Vec::new();
            if let Some(action) = life.todo.pop_front() {
                match action {
                    Action::Start(key) => life.running.push(key),
                    Action::StoreFact(fact) => {
                        world.facts.insert(fact.lane.clone(), fact);
                    }
                    Action::Park { key, lane, seq } => {
                        let (job, _, place) = life.out.remove(&key).expect("out");
                        if place != Some(seq) {
                            let before = world.parked.entry(lane.clone()).or_default().insert(seq, job);
                            assert!(before.is_none(), "seed {seed}: place {seq} taken");
                        }
                        if place.is_none() {
                            let at = world.work.iter().position(|(other, _)| *other == job).expect("in work");
                            world.work.remove(at);
                            life.delivered -= 1;
                            out_before = out_before.saturating_sub(1);
                        }
                    }
                    Action::Unpark { lane, limit } => {
                        let taken: Vec<u64> = life
                            .out
                            .values()
                            .filter(|(_, of, place)| *of == lane && place.is_some())
                            .filter_map(|(_, _, place)| *place)
                            .collect();
                        let lot: Vec<(u64, u64)> = world
                            .parked
                            .get(&lane)
                            .into_iter()
                            .flatten()
                            .filter(|(seq, _)| !taken.contains(seq))
                            .take(limit)
                            .map(|(seq, job)| (*seq, *job))
                            .collect();
                        let mut arrivals = Vec::new();
                        for (seq, job) in lot {
                            let key = life.next_key;
                            life.next_key += 1;
                            life.out.insert(key, (job, lane.clone(), Some(seq)));
                            let mut arrival = arrival(key, lane.clone());
                            arrival.id = JobId::new(format!("j{job}")).expect("short");
                            arrivals.push((arrival, seq));
                        }
                        actions = life.lanes.unparked(&lane, arrivals, now);
                    }
                    Action::ClearFact(lane) => {
                        assert!(
                            world.parked.get(&lane).is_none_or(BTreeMap::is_empty),
                            "seed {seed}: cleared too early"
                        );
                        world.facts.remove(&lane);
                        actions = life.lanes.cleared(&lane, now);
                    }
                }
            } else {
                match rng.random_range(0..4) {
                    0 | 1 if life.delivered < PREFETCH && life.delivered < world.work.len() => {
                        let (job, name) = world.work[life.delivered].clone();
                        if life.delivered >= out_before && !life.fresh_seen {
                            life.fresh_seen = true;
                            actions.extend(life.lanes.caught_up(now));
                        }
                        life.delivered += 1;
                        let key = life.next_key;
                        life.next_key += 1;
                        life.out.insert(key, (job, name.clone(), None));
                        let mut arrival = arrival(key, name);
                        arrival.id = JobId::new(format!("j{job}")).expect("short");
                        actions.extend(life.lanes.arrived(arrival, now));
                    }
                    2 if !life.running.is_empty() => {
                        let at = rng.random_range(0..life.running.len());
                        let key = life.running.swap_remove(at);
                        if rng.random_bool(0.2) {
                            let due = now + rng.random_range(0..40);
                            actions = life.lanes.postponed(key, due, now);
                        } else {
                            let (job, lane, place) = life.out.remove(&key).expect("out");
                            let done = world.done.entry(lane.clone()).or_default();
                            if !done.contains(&job) {
                                done.push(job);
                            }
                            match place {
                                Some(seq) => {
                                    world.parked.get_mut(&lane).expect("parked").remove(&seq);
                                }
                                None => {
                                    let at = world.work.iter().position(|(other, _)| *other == job).expect("in work");
                                    world.work.remove(at);
                                    life.delivered -= 1;
                                    out_before = out_before.saturating_sub(1);
                                }
                            }
                            actions = life.lanes.finished(key, now);
                        }
                    }
                    _ => {
                        if life.delivered >= world.work.len() && !life.fresh_seen {
                            life.fresh_seen = true;
                            actions.extend(life.lanes.caught_up(now));
                        }
                        actions.extend(life.lanes.tick(now, life.delivered >= PREFETCH));
                    }
                }
            }
            life.todo.extend(actions);
            // One lane at a time, and never more than may run.
            let mut lanes: Vec<_> = life.running.iter().map(|key| &life.out[key].1).collect();
            let count = lanes.len();
            lanes.sort();
            lanes.dedup();
            assert_eq!(lanes.len(), count, "seed {seed}: two of a lane at work");
            assert!(count <= 4, "seed {seed}: too many at work");
            let left = world.work.is_empty() && world.parked.values().all(BTreeMap::is_empty);
            if left && life.todo.is_empty() && life.running.is_empty() && world.facts.is_empty() {
                break 'lives;
            }
        }
        assert!(lives < 20 || !crashes || world.work.len() < total as usize, "seed {seed}: stuck");
        // What was ever out and not settled is told apart from what never was, however many lives ago that was.
        out_before = out_before.max(life.delivered);
        if !crashes {
            panic!("seed {seed}: did not finish: {:?} {:?} {:?}", world.work, world.parked, world.facts);
        }
    }
    assert_eq!(world.done, published, "seed {seed}: order or loss");
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
