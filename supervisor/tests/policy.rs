//! The policy in short scripts: one rule each, with the times that the contract names.

use std::time::Duration;

use supervisor::{
    action::{Action, Deadly, Event, Heard, News},
    exit_status::{Exit, ExitReason},
    policy::group::Plan,
    spec::Policy,
    state::State,
    status::Phase,
};

/// A box whose children do what the script says.
struct Script {
    state: State,
    now: Duration,
    next_pid: i32,
    done: Vec<Action>,
}

impl Script {
    fn new(slots: u32) -> Self {
        let state = State::new(slots, Policy::default(), 1);
        let mut script = Self { state, now: Duration::from_secs(1000), next_pid: 1, done: Vec::new() };
        script.feed(Event::Start);
        script
    }

    /// All slots listen and serve.
    fn serving(slots: u32) -> Self {
        let mut script = Self::new(slots);
        for slot in 0..slots {
            script.comes_up(slot);
        }
        script.done.clear();
        script
    }

    fn feed(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.state.handle(event, self.now) {
                if let Action::Spawn { slot } = action {
                    self.next_pid += 1;
                    let pid = self.next_pid;
                    events.push(Event::Spawned { slot, pid, incarnation: pid as u64 });
                }
                self.done.push(action);
            }
        }
    }

    fn hear(&mut self, slot: u32, heard: Heard) {
        self.feed(Event::Heard { slot, heard });
    }

    fn comes_up(&mut self, slot: u32) {
        self.hear(slot, Heard::CheckIn { stalled: Vec::new() });
        self.hear(slot, Heard::Listen);
        self.hear(slot, Heard::Listening);
        self.hear(slot, Heard::Ready);
    }

    /// Time passes, with ticks, while these slots check in.
    fn pass(&mut self, ms: u64, checking_in: &[u32]) {
        for _ in 0..ms / 100 {
            self.now += Duration::from_millis(100);
            for slot in checking_in {
                self.hear(*slot, Heard::CheckIn { stalled: Vec::new() });
            }
            self.feed(Event::Tick);
        }
    }

    fn dies(&mut self, slot: u32, exit: Exit) {
        let pid = self.state.statuses()[slot as usize].pid.expect("a child");
        self.feed(Event::Exited { pid, exit, oom: false });
    }

    fn phase(&self, slot: u32) -> Phase {
        self.state.statuses()[slot as usize].phase.clone()
    }

    fn did(&mut self) -> Vec<Action> {
        let news = |action: &Action| !matches!(action, Action::Tell(News::Phase { .. }));
        std::mem::take(&mut self.done).into_iter().filter(news).collect()
    }

    fn steered(&mut self) {
        let asked = |action: &Action| match action {
            Action::Steer { slot, id, .. } => Some((*slot, *id)),
            _ => None,
        };
        let (slot, id) = self.done.iter().rev().find_map(asked).expect("somebody is asked to steer");
        self.hear(slot, Heard::Steered { id });
    }
}

/// Contract: P5.
#[test]
fn the_first_death_after_a_stable_run_is_followed_by_a_life_at_once() {
    let mut script = Script::serving(1);
    script.pass(31_000, &[0]);
    script.dies(0, Exit::Signal(9));
    assert!(script.did().contains(&Action::Spawn { slot: 0 }));
    script.dies(0, Exit::Signal(9));
    assert!(!script.did().contains(&Action::Spawn { slot: 0 }));
    assert!(matches!(script.phase(0), Phase::Backoff { reason: ExitReason::Signal, .. }));
    script.pass(300, &[]);
    assert!(script.did().contains(&Action::Spawn { slot: 0 }));
}

/// Contract: P4, C1: silent after one second, aborted after five, killed after six, and a lease's self-fence is at eight.
#[test]
fn a_silent_shard_is_steered_around_then_aborted_then_killed() {
    let mut script = Script::serving(2);
    script.pass(900, &[0]);
    assert_eq!(script.phase(1), Phase::Ready);
    script.pass(100, &[0]);
    assert_eq!(script.phase(1), Phase::Silent);
    let steer = Action::Steer { slot: 0, id: 1, plan: Some(Plan { total: 2, targets: vec![0] }) };
    assert_eq!(script.did(), [steer]);
    script.hear(0, Heard::Steered { id: 1 });
    script.pass(3900, &[0]);
    assert_eq!(script.did(), []);
    script.pass(100, &[0]);
    assert_eq!(script.did(), [Action::Kill { slot: 1, pid: 3, signal: Deadly::Abort }]);
    script.pass(900, &[0]);
    assert_eq!(script.did(), []);
    script.pass(100, &[0]);
    assert_eq!(script.did(), [Action::Kill { slot: 1, pid: 3, signal: Deadly::Kill }]);
}

/// Contract: P4.
#[test]
fn a_shard_that_speaks_again_gets_its_connections_back() {
    let mut script = Script::serving(2);
    script.pass(1000, &[0]);
    script.steered();
    script.did();
    script.pass(100, &[0, 1]);
    assert_eq!(script.phase(1), Phase::Ready);
    assert_eq!(script.did(), [Action::Steer { slot: 0, id: 2, plan: None }]);
}

#[test]
fn whoever_does_not_steer_when_asked_is_passed_over() {
    let mut script = Script::serving(3);
    script.pass(1000, &[0, 1]);
    script.pass(600, &[0, 1]);
    let asked: Vec<u32> = script
        .did()
        .iter()
        .filter_map(|action| match action {
            Action::Steer { slot, .. } => Some(*slot),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [0, 1]);
}

/// Field report R41.
#[test]
fn a_shard_whose_loops_do_not_get_on_is_ended_though_it_speaks() {
    let mut script = Script::serving(1);
    for _ in 0..50 {
        script.now += Duration::from_millis(100);
        script.hear(0, Heard::CheckIn { stalled: vec!["consume".to_owned()] });
        script.feed(Event::Tick);
    }
    assert_eq!(script.did(), [Action::Kill { slot: 0, pid: 2, signal: Deadly::Abort }]);
}

#[test]
fn a_stalled_loop_is_shown_by_its_name_before_it_is_fatal() {
    let mut script = Script::serving(1);
    script.hear(0, Heard::CheckIn { stalled: vec!["renew".to_owned()] });
    assert_eq!(script.phase(0), Phase::NotReady { reason: "stalled: renew".to_owned() });
}

/// Contract: C0. A warm standby waits for hours.
#[test]
fn a_shard_that_waits_for_something_outside_is_not_late_until_that_is_there() {
    let mut script = Script::new(2);
    script.comes_up(0);
    script.did();
    script.hear(1, Heard::Waiting("slot 1 is held by another box".to_owned()));
    script.pass(300_000, &[0, 1]);
    assert_eq!(script.did(), []);
    script.hear(1, Heard::NotReady("starting".to_owned()));
    script.pass(29_900, &[0, 1]);
    assert_eq!(script.did(), []);
    script.pass(100, &[0, 1]);
    assert_eq!(script.did(), [Action::Kill { slot: 1, pid: 3, signal: Deadly::Abort }]);
}

#[test]
fn a_boot_deadline_counts_from_the_spawn_and_ends_with_the_first_ready() {
    let mut script = Script::new(2);
    script.comes_up(0);
    script.did();
    script.hear(1, Heard::NotReady("waiting for the broker".to_owned()));
    let waiting_for = Some("waiting for the broker".to_owned());
    assert_eq!(script.phase(1), Phase::Starting { waiting_for });
    script.pass(29_900, &[0, 1]);
    assert_eq!(script.did(), []);
    script.pass(100, &[0, 1]);
    assert_eq!(script.did(), [Action::Kill { slot: 1, pid: 3, signal: Deadly::Abort }]);
    script.dies(1, Exit::Signal(6));
    assert!(matches!(script.phase(1), Phase::Backoff { reason: ExitReason::BootTimeout, .. } | Phase::Starting { .. }));
    script.hear(0, Heard::NotReady("the broker is gone".to_owned()));
    script.pass(60_000, &[0]);
    assert_eq!(script.state.statuses()[0].restarts_total, 0, "a shard that was ready once may wait");
}

#[test]
fn nobody_is_punished_for_the_time_in_which_the_machine_slept() {
    let mut script = Script::serving(2);
    script.now += Duration::from_secs(3600);
    script.feed(Event::Tick);
    script.pass(500, &[]);
    assert_eq!(script.did(), []);
    assert_eq!([script.phase(0), script.phase(1)], [Phase::Ready, Phase::Ready]);
}

#[test]
fn a_broken_shard_does_not_keep_the_box_from_being_announced_once_it_is_written_off() {
    let mut script = Script::new(2);
    script.comes_up(0);
    let ready = |script: &Script| script.done.contains(&Action::Tell(News::Ready));
    for _ in 0..5 {
        script.dies(1, Exit::Code(1));
        assert!(!ready(&script));
        script.pass(5000, &[0]);
    }
    script.dies(1, Exit::Code(1));
    assert!(ready(&script));
    assert!(matches!(script.phase(1), Phase::Slow { .. }));
}

/// Contract: P5.
#[test]
fn a_configuration_refused_later_leaves_one_slot_down_until_somebody_asks() {
    let mut script = Script::serving(2);
    script.dies(1, Exit::Code(78));
    assert_eq!(script.phase(1), Phase::Config);
    script.pass(600_000, &[0]);
    assert!(!script.did().contains(&Action::Spawn { slot: 1 }));
    script.feed(Event::Roll);
    assert!(script.did().contains(&Action::Spawn { slot: 1 }), "the one that is down goes first");
    assert_eq!(script.phase(0), Phase::Ready);
}

#[test]
fn a_slot_past_its_intensity_is_tried_at_once_by_a_roll_and_the_roll_waits_for_it() {
    let mut script = Script::serving(2);
    while !matches!(script.phase(1), Phase::Slow { .. }) {
        script.dies(1, Exit::Code(1));
        script.pass(5000, &[0]);
    }
    script.did();
    script.feed(Event::Roll);
    let did = script.did();
    assert!(did.contains(&Action::Spawn { slot: 1 }));
    assert!(!did.iter().any(|action| matches!(action, Action::Tell(News::RollFailed { .. }))));
    script.comes_up(1);
    script.steered();
    assert!(script.did().iter().any(|action| matches!(action, Action::Drain { slot: 0, .. })));
}

#[test]
fn a_roll_waits_when_another_shard_falls_while_connections_are_being_steered() {
    let mut script = Script::serving(3);
    script.feed(Event::Roll);
    script.dies(1, Exit::Signal(11));
    script.pass(300, &[0, 2]);
    assert!(!script.did().iter().any(|action| matches!(action, Action::Drain { .. })));
    assert_eq!(script.phase(0), Phase::Ready);
    script.comes_up(1);
    script.pass(1000, &[0, 1, 2]);
    assert!(script.did().iter().any(|action| matches!(action, Action::Drain { slot: 0, .. })));
}

#[test]
fn a_shard_alone_in_the_group_is_told_to_drain_without_steering() {
    let mut script = Script::serving(1);
    script.feed(Event::Roll);
    let did = script.did();
    assert!(did.iter().any(|action| matches!(action, Action::Drain { slot: 0, .. })));
    assert!(!did.iter().any(|action| matches!(action, Action::Steer { .. })));
}

#[test]
fn one_shard_listens_at_a_time_and_one_that_does_not_answer_is_passed_over() {
    let mut script = Script::new(3);
    script.did();
    for slot in 0..3 {
        script.hear(slot, Heard::Listen);
    }
    assert_eq!(script.did(), [Action::Grant { slot: 0 }]);
    script.hear(0, Heard::Listening);
    assert_eq!(script.did(), [Action::Grant { slot: 1 }]);
    script.pass(2000, &[]);
    assert_eq!(script.did(), [Action::Grant { slot: 2 }]);
}

/// Contract: P5.
#[test]
fn the_end_tells_all_at_once_and_kills_at_the_deadline() {
    let mut script = Script::serving(2);
    script.feed(Event::Stop);
    let deadline = script.now + Duration::from_secs(20);
    let [stopping, drains @ ..] = &script.did()[..] else { panic!("nothing is done") };
    assert_eq!(*stopping, Action::Tell(News::Stopping { code: 0 }));
    assert_eq!(drains, [Action::Drain { slot: 0, deadline }, Action::Drain { slot: 1, deadline }]);
    script.dies(0, Exit::Code(0));
    script.did();
    script.pass(19_900, &[1]);
    assert_eq!(script.did(), []);
    script.pass(100, &[1]);
    assert_eq!(script.did(), [Action::Kill { slot: 1, pid: 3, signal: Deadly::Kill }]);
    script.dies(1, Exit::Signal(9));
    assert_eq!(script.did().last(), Some(&Action::Exit { code: 0 }));
}

/// Contract: C1.
#[test]
fn a_shard_that_falls_silent_while_it_drains_is_ended_before_its_lease_could_be_taken() {
    let mut script = Script::serving(1);
    script.feed(Event::Stop);
    script.did();
    script.pass(4900, &[]);
    assert_eq!(script.did(), []);
    script.pass(100, &[]);
    assert_eq!(script.did(), [Action::Kill { slot: 0, pid: 2, signal: Deadly::Abort }]);
}

#[test]
fn loops_that_end_while_a_shard_drains_are_no_hang() {
    let mut script = Script::serving(1);
    script.feed(Event::Stop);
    script.did();
    for _ in 0..100 {
        script.now += Duration::from_millis(100);
        script.hear(0, Heard::CheckIn { stalled: vec!["consume".to_owned()] });
        script.feed(Event::Tick);
    }
    assert_eq!(script.did(), []);
}

/// Field report R45.
#[test]
fn a_slot_that_was_written_off_is_normal_again_only_after_a_stable_run() {
    let mut script = Script::serving(2);
    while !matches!(script.phase(1), Phase::Slow { .. }) {
        script.comes_up(1);
        script.dies(1, Exit::Signal(11));
        script.pass(5000, &[0]);
    }
    let one_more_life = |script: &mut Script, length: u64| {
        script.pass(140_000, &[0]);
        script.comes_up(1);
        script.pass(length, &[0, 1]);
        script.dies(1, Exit::Signal(11));
    };
    script.pass(1000, &[0]);
    one_more_life(&mut script, 0);
    assert!(matches!(script.phase(1), Phase::Slow { .. }), "it falls again at once");
    script.pass(140_000, &[0]);
    script.comes_up(1);
    script.pass(31_000, &[0, 1]);
    assert!(!script.state.statuses()[1].gave_up);
    script.did();
    script.dies(1, Exit::Signal(11));
    assert!(script.did().contains(&Action::Spawn { slot: 1 }), "a first death");
}

#[test]
fn a_slot_that_takes_its_whole_boot_deadline_to_fail_is_written_off_too() {
    let mut script = Script::serving(2);
    script.dies(1, Exit::Code(1));
    for _ in 0..20 {
        script.pass(31_000, &[0]);
        if script.phase(1) == Phase::Silent {
            script.dies(1, Exit::Signal(6));
        }
    }
    assert!(script.state.statuses()[1].gave_up);
}

#[test]
fn a_configuration_refused_before_anybody_was_ready_is_the_end() {
    let mut script = Script::new(2);
    script.did();
    script.dies(1, Exit::Code(78));
    assert!(script.did().contains(&Action::Tell(News::Stopping { code: 78 })));
    script.dies(0, Exit::Code(0));
    assert_eq!(script.did().last(), Some(&Action::Exit { code: 78 }));
}

#[test]
fn no_turn_of_a_roll_begins_while_another_shard_is_down() {
    let mut script = Script::serving(3);
    script.dies(2, Exit::Signal(11));
    script.did();
    script.feed(Event::Roll);
    script.pass(300, &[0, 1]);
    let turns = |action: &Action| matches!(action, Action::Steer { .. } | Action::Drain { .. });
    assert!(!script.did().iter().any(turns));
    script.comes_up(2);
    assert!(script.did().iter().any(turns));
}
