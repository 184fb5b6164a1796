//! Single situations of the table, each with the fewest deliveries that show it.

#[path = "lanes/model.rs"]
mod model;

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
    let mut lanes = fresh(Limits::default());
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

/// Field report R30. Another lane's only job does not wait behind a backlog of many chats either.
#[test]
fn a_channel_with_its_share_at_work_makes_room_at_once() {
    let mut lanes = fresh(Limits { running: 8, running_per_channel: 3, ..Limits::default() });
    let of = |key: Key| arrival(key, lane(1, &format!("chat {key}")));
    let started: Vec<_> = (0..10).flat_map(|key| lanes.arrived(of(key), 0)).collect();
    assert_eq!(started, [Action::Start(0), Action::Start(1), Action::Start(2)]);
    let parked = |actions: &[Action]| actions.iter().filter(|action| matches!(action, Action::Park { .. })).count();
    assert_eq!(parked(&lanes.tick(300, true)), 7, "what waits makes room");
    assert_eq!(parked(&lanes.arrived(of(10), 301)), 1, "what comes later does not even wait");
    assert_eq!(lanes.arrived(arrival(20, lane(2, "b")), 302), [Action::Start(20)]);
    assert!(matches!(lanes.finished(0, 303)[..], [Action::Unpark { .. }]), "the backlog is not forgotten");
}

/// Contract: Q3. A backlog that only made room is not overtaken by a `disconnect`.
#[test]
fn a_barrier_waits_for_a_backlog_that_made_room() {
    let mut lanes = fresh(Limits { lot: 2, ..Limits::default() });
    for key in 1..=4 {
        lanes.arrived(arrival(key, lane(1, "a")), 0);
    }
    lanes.tick(300, true);
    assert_eq!(lanes.arrived(arrival(5, lane(1, "")), 300), []);
    // Published after the barrier, into the same lane.
    assert!(matches!(lanes.arrived(arrival(6, lane(1, "a")), 300)[..], [Action::Park { key: 6, seq: 5, .. }]));
    assert!(matches!(lanes.finished(1, 301)[..], [Action::Unpark { .. }]));
    let name = lane(1, "a");
    let back = |key: Key| (arrival(key, lane(1, "a")), key);
    assert_eq!(lanes.unparked(&name, vec![back(2), back(3)], false, 302), [Action::Start(2)]);
    assert_eq!(lanes.finished(2, 303), [Action::Start(3)]);
    assert!(matches!(lanes.finished(3, 304)[..], [Action::Unpark { .. }]), "the barrier still waits for the fourth");
    let late = (arrival(6, lane(1, "a")), 5);
    let actions = lanes.unparked(&name, vec![back(4), late], false, 305);
    assert_eq!(actions, [Action::Park { key: 6, lane: name.clone(), seq: 5 }, Action::Start(4)]);
    assert_eq!(lanes.finished(4, 306), [Action::Start(5)], "now the barrier");
    assert!(matches!(lanes.finished(5, 307)[..], [Action::Unpark { .. }]), "and then what came after it");
}

/// Contract: Q3. What is parked while its lane's fact is being cleared has a fact again before it moves.
#[test]
fn nothing_is_parked_without_a_stored_fact() {
    let mut lanes = fresh(Limits::default());
    let name = lane(1, "a");
    lanes.arrived(arrival(1, name.clone()), 0);
    lanes.postponed(1, 10, 0);
    lanes.tick(10, false);
    lanes.unparked(&name, vec![(arrival(1, name.clone()), 1)], false, 10);
    lanes.finished(1, 11);
    assert_eq!(lanes.unparked(&name, vec![], false, 12), [Action::ClearFact(name.clone())]);
    let actions = lanes.arrived(arrival(2, name.clone()), 13);
    assert!(matches!(actions[..], [Action::StoreFact(_), Action::Park { .. }, Action::Unpark { .. }]), "{actions:?}");
    assert_eq!(lanes.cleared(&name, 14), [], "that was the fact of before");
    assert!(lanes.waits(&name));
}

/// Contract: Q9.
#[test]
fn what_made_room_for_others_goes_on_when_its_channel_is_up() {
    let mut lanes = fresh(Limits::default());
    lanes.arrived(arrival(1, lane(1, "a")), 0);
    lanes.arrived(arrival(2, lane(1, "b")), 0);
    lanes.gives_way(1, 5_000, 0);
    lanes.postponed(2, 5_000, 0);
    assert_eq!(lanes.next_due_ms(), Some(5_000));
    let actions = lanes.channel_is_up(channel(1), 100);
    assert_eq!(actions, [Action::Unpark { lane: lane(1, "a"), limit: 16 }], "the other one waits for its own reason");
}

/// Field report R22. Thousands of lanes that wait cost nothing until their time comes, and then come in by and by.
#[test]
fn lanes_that_wait_are_not_looked_at() {
    let facts = (0..10_000).map(|n| LaneFact {
        queue: queue(),
        lane: lane(n % 50, &format!("chat {n}")),
        head: JobId::new("head").expect("short"),
        due_ms: 1_000 + n as i64,
        next_seq: 7,
    });
    let limits = Limits { running: 100, running_per_channel: 10, ..Limits::default() };
    let mut lanes = Lanes::new(queue(), limits, facts.collect());
    assert_eq!(lanes.next_due_ms(), None, "until whatever was out has come");
    assert_eq!(lanes.caught_up(0), []);
    assert_eq!(lanes.next_due_ms(), Some(1_000));
    let began = std::time::Instant::now();
    for _ in 0..200_000 {
        assert_eq!(lanes.tick(500, false), []);
        assert_eq!(lanes.next_due_ms(), Some(1_000));
    }
    // Looking at each lane each time would take minutes.
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    assert_eq!(lanes.tick(100_000, false).len(), 100, "no more at a time than can be worked on");
}
