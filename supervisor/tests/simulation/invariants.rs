//! What must hold after every step, judged by what the world knows and not by what the policy believes.

use std::{collections::BTreeSet, time::Duration};

use supervisor::{
    action::{Action, Deadly, News},
    exit_status::{self, ExitReason},
    status::Phase,
};

use crate::world::World;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Between two looks at the clock, and from a signal to an exit.
const SLACK: Duration = Duration::from_millis(900);

/// What the checks remember.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Slots that the primary itself took down and that do not serve again yet.
    taken_down: BTreeSet<u32>,
    stopping: Option<(u8, Duration)>,
    spawns: Vec<(u32, Duration)>,
    rolls_asked: u32,
    stop_asked: u32,
    config_exits: u32,
    served: bool,
    pub(crate) exit: Option<u8>,
    pub(crate) ready_told: bool,
    pub(crate) rolls_open: BTreeSet<u64>,
}

impl Seen {
    pub(crate) fn roll_asked(&mut self) {
        self.rolls_asked += 1;
    }

    pub(crate) fn stop_asked(&mut self) {
        self.stop_asked += 1;
    }

    pub(crate) fn config_exit(&mut self) {
        self.config_exits += 1;
    }

    pub(crate) fn served(&mut self, slot: u32) {
        self.served = true;
        self.taken_down.remove(&slot);
    }

    pub(crate) fn spawns_of(&self, slot: u32) -> usize {
        self.spawns.iter().filter(|(other, _)| *other == slot).count()
    }
}

/// The action is right at this moment.
pub(crate) fn check_action(world: &mut World, action: &Action) {
    assert!(world.seen.exit.is_none(), "{action:?} after the end");
    match action {
        Action::Spawn { slot } => {
            assert!(!world.children.contains_key(slot), "a second child in slot {slot}");
            assert!(*slot < world.slots, "slot {slot} does not exist");
            assert!(world.seen.stopping.is_none(), "a spawn after the drain began");
            let now = world.awake();
            world.seen.spawns.push((*slot, now));
            let asked = world.seen.rolls_asked as usize;
            let recent = world.seen.spawns.iter().filter(|(s, at)| s == slot && now - *at < secs(60)).count();
            assert!(recent <= 7 + 2 * asked + world.recycles, "{recent} spawns of slot {slot} in a minute");
        }
        Action::Drain { slot, .. } if world.seen.stopping.is_none() => {
            world.seen.taken_down.insert(*slot);
            assert!(world.seen.taken_down.len() <= 1, "taken down together: {:?}", world.seen.taken_down);
            let down = |other: &u32| *other != *slot && world.is_coming_up(*other);
            let down: Vec<u32> = (0..world.slots).filter(down).collect();
            assert!(down.is_empty(), "slot {slot} is taken down while {down:?} come up");
        }
        Action::Kill { slot, pid, signal } => {
            let child = world.children.get(slot).expect("a signal to nobody");
            assert_eq!(child.pid, *pid, "a signal to a stranger");
            let awake = world.awake();
            let mute = awake - child.last_good.unwrap_or(child.born);
            let hung = mute >= world.policy.hang - SLACK && child.last_good.is_some();
            let unborn = !child.served && awake - child.born >= world.policy.boot - SLACK;
            let overdue = child.told_to_leave.is_some_and(|deadline| awake + SLACK >= deadline);
            let stop_overdue = world.seen.stopping.is_some_and(|(_, at)| awake + SLACK >= at + world.policy.drain);
            let forced = world.seen.stop_asked >= 2;
            assert!(
                hung || unborn || overdue || stop_overdue || forced || child.unlinked || child.aborted,
                "{signal:?} for a child of slot {slot} that checks in"
            );
            assert!(*signal == Deadly::Kill || !child.aborted, "two aborts for one child");
        }
        Action::Tell(News::Stopping { code }) => {
            world.seen.stopping = Some((*code, world.awake()));
            match *code {
                0 => assert!(world.seen.stop_asked > 0, "nobody asked for the end"),
                exit_status::GAVE_UP => assert!(!world.seen.served, "gave up after having served"),
                exit_status::CONFIG => assert!(!world.seen.served && world.seen.config_exits > 0, "no reason for 78"),
                code => panic!("unknown exit status {code}"),
            }
        }
        Action::Tell(News::Lost { slot, reason, .. }) => {
            // What falls over by itself after its return is not down on the roll's account.
            let asked = matches!(reason, ExitReason::Roll | ExitReason::Memory) || world.was_leaving(*slot);
            let down = &mut world.seen.taken_down;
            *down = down.iter().copied().filter(|other| asked || other != slot).collect();
        }
        Action::Tell(News::Ready) => {
            assert!(!world.seen.ready_told, "ready is told once");
            world.seen.ready_told = true;
        }
        Action::Tell(News::RollAccepted { id }) => {
            world.seen.rolls_open.insert(*id);
        }
        Action::Tell(News::RollDone { id } | News::RollFailed { id, .. }) => {
            world.seen.rolls_open.remove(id);
        }
        Action::Exit { code } => {
            assert!(world.children.is_empty(), "the primary leaves {} children behind", world.children.len());
            assert_eq!(Some(*code), world.seen.stopping.map(|(code, _)| code));
            assert!(world.seen.rolls_open.is_empty(), "unanswered rolls: {:?}", world.seen.rolls_open);
            world.seen.exit = Some(*code);
        }
        _ => {}
    }
}

/// The state is right after everything that was to be done is done.
pub(crate) fn check_state(world: &mut World) {
    let statuses = world.state.statuses();
    assert!(statuses.iter().map(|status| status.index).eq(0..world.slots), "the slots changed");
    let now = world.now;
    for status in &statuses {
        let slot = status.index;
        assert_eq!(status.pid, world.children.get(&slot).map(|child| child.pid), "slot {slot}: {:?}", status.phase);
        match &status.phase {
            Phase::Backoff { until, .. } => {
                assert!(*until <= now + secs(30) + SLACK, "slot {slot} waits too long");
                assert!(*until + SLACK >= now, "slot {slot} waits for the past");
            }
            Phase::Slow { until, .. } => {
                assert!(*until <= now + world.policy.slow_retry.mul_f64(1.1) + SLACK, "slot {slot} waits too long");
                assert!(status.gave_up);
            }
            Phase::Config => {
                assert_eq!(status.last_exit.as_ref().map(|last| last.reason), Some(ExitReason::Config));
            }
            Phase::Stopped => assert!(world.seen.stopping.is_some(), "slot {slot} is left alone"),
            _ => {}
        }
        if let Some(child) = world.children.get(&slot) {
            let awake = world.awake();
            let end = world.policy.abort_grace + SLACK;
            if let Some(good) = child.last_good.filter(|_| child.told_to_leave.is_none()) {
                let limit = world.policy.hang + end;
                assert!(awake - good <= limit, "slot {slot} hangs for {:?} and lives", awake - good);
                let lease = secs(8);
                assert!(limit <= lease, "a hung shard outlives its self-fence");
            }
            if !child.served && child.told_to_leave.is_none() && world.seen.stopping.is_none() {
                assert!(awake - child.born <= world.policy.boot + end, "slot {slot} boots for ever");
            }
        }
    }
    if let Some((_, at)) = world.seen.stopping {
        assert!(world.awake() - at <= world.policy.drain + SLACK, "the drain has no end");
    }
}
