//! What the policy remembers: the slots with their lives, and what goes on across them.
//!
//! A slot's condition holds either a living child or the reason why there is none, so that two children in one slot
//! cannot even be written down.

use std::{mem, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    action::{Action, News},
    exit_status::ExitReason,
    intensity::Window,
    policy::{
        group::{Group, Mark},
        listen::Listen,
        rolling::Roll,
        steer::Steering,
    },
    spec::Policy,
    status::{LastExit, Phase, SlotStatus},
};

/// All slots, and the rules they live by. Fed by [`State::handle`].
#[derive(Debug)]
pub struct State {
    pub(crate) policy: Policy,
    pub(crate) slots: Vec<Slot>,
    pub(crate) group: Group,
    pub(crate) listen: Listen,
    pub(crate) steering: Steering,
    pub(crate) roll: Option<Roll>,
    pub(crate) roll_queued: bool,
    /// Grows with each roll; a life of an older generation is one that the roll has to replace.
    pub(crate) generation: u64,
    pub(crate) stopping: Option<Stopping>,
    /// Some shard has been ready at some time: first boot, and its right to give up, is over.
    pub(crate) ever_ready: bool,
    pub(crate) announced: bool,
    pub(crate) finished: bool,
    pub(crate) clock: SkewedClock,
    pub(crate) last_tick: Duration,
    pub(crate) actions: Vec<Action>,
    rng: StdRng,
}

/// Shutdown is under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopping {
    pub(crate) code: u8,
    pub(crate) deadline: Duration,
}

/// One shard's fixed place.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) condition: Condition,
    pub(crate) incarnation: u64,
    pub(crate) lives: u64,
    pub(crate) last_exit: Option<LastExit>,
    /// Deaths in a row without a stable run between them.
    pub(crate) failures: u32,
    /// Of these, the ones that never became ready.
    pub(crate) boot_failures: u32,
    pub(crate) deaths: Window,
    /// Past its intensity, and not yet stable again.
    pub(crate) slow: bool,
    shown: Phase,
    since: Duration,
}

/// A slot has a child, or a reason for having none.
#[derive(Debug)]
pub(crate) enum Condition {
    /// Before the start.
    New,
    /// The action is out, its answer is not in.
    Spawning,
    Alive(Box<Life>),
    Backoff {
        until: Duration,
        reason: ExitReason,
    },
    Slow {
        until: Duration,
        reason: ExitReason,
    },
    Config,
    Stopped,
}

/// A child as the primary sees it.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) pid: i32,
    pub(crate) incarnation: u64,
    pub(crate) generation: u64,
    /// What its boot deadline counts from: its birth, or the end of its last wait for something outside.
    pub(crate) booting: Duration,
    /// It waits for something outside: no life of it could do better.
    pub(crate) waiting: bool,
    /// When it was ready for the first time.
    pub(crate) ready: Option<Duration>,
    /// Why it does not serve now.
    pub(crate) not_ready: Option<String>,
    /// When a frame came last. Nothing is expected before the first.
    pub(crate) heard: Option<Duration>,
    /// When all its loops were well. Nothing is expected before the first check-in.
    pub(crate) well: Option<Duration>,
    pub(crate) stalled: Vec<String>,
    pub(crate) link_closed: Option<Duration>,
    pub(crate) silent: bool,
    pub(crate) leaving: Option<Leaving>,
    pub(crate) doomed: Option<Doomed>,
    /// SIGKILL is out; more cannot be done.
    pub(crate) killed: bool,
    pub(crate) over_limit: u32,
}

/// It is asked to leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    pub(crate) why: ExitReason,
    pub(crate) stage: LeavingStage,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum LeavingStage {
    /// Connections are first steered to the others, until then at the latest.
    Steering { until: Duration },
    /// It was told, and will be killed at the deadline.
    Told { deadline: Duration, mark: Mark },
}

/// It is being ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doomed {
    pub(crate) why: ExitReason,
    pub(crate) aborted: Duration,
}

/// The clock as the children could use it: time in which the machine slept is cut out, so that nobody is punished for it.
#[derive(Debug, Default)]
pub(crate) struct SkewedClock {
    last: Option<Duration>,
    pub(crate) skew: Duration,
    pub(crate) now: Duration,
}

impl SkewedClock {
    fn advance(&mut self, now: Duration, jump: Duration) {
        let gap = self.last.map_or(Duration::ZERO, |last| now.saturating_sub(last));
        if gap > jump {
            self.skew += gap;
        }
        self.last = Some(now);
        self.now = now.saturating_sub(self.skew);
    }
}

impl Life {
    pub(crate) fn new(pid: i32, incarnation: u64, generation: u64, now: Duration) -> Self {
        Self {
            pid,
            incarnation,
            generation,
            booting: now,
            waiting: false,
            ready: None,
            not_ready: None,
            heard: None,
            well: None,
            stalled: Vec::new(),
            link_closed: None,
            silent: false,
            leaving: None,
            doomed: None,
            killed: false,
            over_limit: 0,
        }
    }

    /// New connections may go to it.
    pub(crate) fn takes_connections(&self) -> bool {
        !self.silent && self.leaving.is_none() && self.doomed.is_none()
    }

    pub(crate) fn serves(&self) -> bool {
        self.takes_connections() && self.ready.is_some() && self.not_ready.is_none() && self.stalled.is_empty()
    }

    fn phase(&self) -> Phase {
        if self.leaving.is_some() {
            Phase::Draining
        } else if self.silent || self.doomed.is_some() {
            Phase::Silent
        } else if self.ready.is_none() {
            Phase::Starting { waiting_for: self.not_ready.clone() }
        } else if let Some(reason) = &self.not_ready {
            Phase::NotReady { reason: reason.clone() }
        } else if !self.stalled.is_empty() {
            Phase::NotReady { reason: format!("stalled: {}", self.stalled.join(", ")) }
        } else {
            Phase::Ready
        }
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            condition: Condition::New,
            incarnation: 0,
            lives: 0,
            last_exit: None,
            failures: 0,
            boot_failures: 0,
            deaths: Window::default(),
            slow: false,
            shown: Phase::Stopped,
            since: Duration::ZERO,
        }
    }

    pub(crate) fn life(&self) -> Option<&Life> {
        match &self.condition {
            Condition::Alive(life) => Some(life),
            _ => None,
        }
    }

    pub(crate) fn life_mut(&mut self) -> Option<&mut Life> {
        match &mut self.condition {
            Condition::Alive(life) => Some(life),
            _ => None,
        }
    }

    pub(crate) fn serves(&self) -> bool {
        self.life().is_some_and(Life::serves)
    }

    /// It is known to be broken: what goes on elsewhere does not wait for it.
    pub(crate) fn written_off(&self) -> bool {
        self.slow || matches!(self.condition, Condition::Config)
    }

    fn phase(&self, skew: Duration) -> Phase {
        match &self.condition {
            Condition::New | Condition::Stopped => Phase::Stopped,
            Condition::Spawning => Phase::Starting { waiting_for: None },
            Condition::Alive(life) => life.phase(),
            Condition::Backoff { until, reason } => Phase::Backoff { until: *until + skew, reason: *reason },
            Condition::Slow { until, reason } => Phase::Slow { until: *until + skew, reason: *reason },
            Condition::Config => Phase::Config,
        }
    }
}

impl State {
    /// `slots` slots before their first life. The seed decides the jitter.
    pub fn new(slots: u32, policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            slots: (0..slots).map(|_| Slot::new()).collect(),
            group: Group::default(),
            listen: Listen::default(),
            steering: Steering::default(),
            roll: None,
            roll_queued: false,
            generation: 0,
            stopping: None,
            ever_ready: false,
            announced: false,
            finished: false,
            clock: SkewedClock::default(),
            last_tick: Duration::ZERO,
            actions: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// All slots as the outside sees them.
    pub fn statuses(&self) -> Vec<SlotStatus> {
        let skew = self.clock.skew;
        let status = |(index, slot): (usize, &Slot)| SlotStatus {
            index: index as u32,
            pid: slot.life().map(|life| life.pid),
            incarnation: slot.incarnation,
            phase: slot.phase(skew),
            since: slot.since,
            restarts_total: slot.lives.saturating_sub(1),
            last_exit: slot.last_exit.clone(),
            up: slot.life().is_some_and(|life| life.takes_connections() && life.ready.is_some()),
            gave_up: slot.slow,
        };
        self.slots.iter().enumerate().map(status).collect()
    }

    /// Shutdown has begun.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// A rolling restart is under way.
    pub fn is_rolling(&self) -> bool {
        self.roll.is_some()
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now
    }

    pub(crate) fn advance_clock(&mut self, now: Duration) {
        self.clock.advance(now, self.policy.clock_jump);
    }

    pub(crate) fn unit(&mut self) -> f64 {
        self.rng.random()
    }

    pub(crate) fn indices(&self) -> std::ops::Range<u32> {
        0..self.slots.len() as u32
    }

    pub(crate) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    pub(crate) fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    pub(crate) fn life(&self, slot: u32) -> Option<&Life> {
        self.slots.get(slot as usize)?.life()
    }

    pub(crate) fn life_mut(&mut self, slot: u32) -> Option<&mut Life> {
        self.slots.get_mut(slot as usize)?.life_mut()
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn tell(&mut self, news: News) {
        self.actions.push(Action::Tell(news));
    }

    /// A new life, whatever there was.
    pub(crate) fn spawn(&mut self, slot: u32) {
        debug_assert!(self.slot(slot).life().is_none(), "a slot has one child");
        self.slot_mut(slot).condition = Condition::Spawning;
        self.act(Action::Spawn { slot });
    }

    /// Tells of every slot that is in another phase than it was shown in.
    pub(crate) fn show_phases(&mut self) {
        let (now, skew) = (self.clock.now + self.clock.skew, self.clock.skew);
        for index in self.indices() {
            let slot = &mut self.slots[index as usize];
            let phase = slot.phase(skew);
            if mem::discriminant(&phase) != mem::discriminant(&slot.shown) {
                slot.since = now;
                slot.shown = phase.clone();
                self.actions.push(Action::Tell(News::Phase { slot: index, phase }));
            }
        }
    }
}
