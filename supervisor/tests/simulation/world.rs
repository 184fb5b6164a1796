//! A machine with children that misbehave by a seed, and the loop that performs what the policy wants.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use supervisor::{
    action::{Action, Deadly, Event, Heard},
    exit_status::Exit,
    spec::{MemoryLimit, Policy},
    state::State,
    status::Phase,
};

use crate::invariants::{self, Seen};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// How a child will behave, drawn at its birth.
#[derive(Debug, Clone, Default)]
struct Nature {
    ready_after: Option<Duration>,
    dies: Option<(Duration, Exit)>,
    mute_from: Option<Duration>,
    stalls_from: Option<Duration>,
    closes_link: Option<Duration>,
    leaves_after: Option<Duration>,
    ignores_abort: bool,
    grows: bool,
}

#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: i32,
    incarnation: u64,
    nature: Nature,
    /// In waking time, as all times here.
    pub(crate) born: Duration,
    pub(crate) last_good: Option<Duration>,
    pub(crate) served: bool,
    pub(crate) told_to_leave: Option<Duration>,
    pub(crate) aborted: bool,
    pub(crate) unlinked: bool,
    dead: bool,
}

#[derive(Debug, Clone)]
enum Happening {
    Tick,
    CheckIn(u32, u64),
    Say(u32, u64, Heard),
    Die(u32, u64, Exit),
    Reap(i32, u32, Exit),
    Unlink(u32, u64),
    Roll,
    Stop,
    Sleep(Duration),
}

pub(crate) struct World {
    rng: StdRng,
    pub(crate) slots: u32,
    pub(crate) policy: Policy,
    pub(crate) state: State,
    pub(crate) now: Duration,
    slept: Duration,
    pub(crate) children: BTreeMap<u32, Child>,
    queue: BTreeMap<(Duration, u64), Happening>,
    sequence: u64,
    next_pid: i32,
    lives: BTreeMap<u32, u64>,
    kind: bool,
    always_exits: Option<u32>,
    leaving: BTreeSet<u32>,
    pub(crate) recycles: usize,
    trace: bool,
    pub(crate) seen: Seen,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let slots = rng.random_range(1..=4);
        let memory = rng.random_bool(0.3).then_some(MemoryLimit { bytes: 100, samples: 3 });
        let policy = Policy { memory, tick: ms(200), ..Policy::default() };
        Self {
            slots,
            state: State::new(slots, policy.clone(), seed),
            policy,
            now: ms(rng.random_range(0..100_000)),
            rng,
            slept: Duration::ZERO,
            children: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            next_pid: 100,
            lives: BTreeMap::new(),
            kind: false,
            always_exits: None,
            leaving: BTreeSet::new(),
            recycles: 0,
            trace: std::env::var_os("SEED").is_some(),
            seen: Seen::default(),
        }
    }

    /// The time in which anybody could have done anything.
    pub(crate) fn awake(&self) -> Duration {
        self.now - self.slept
    }

    /// A child is there, or due, that does not serve yet and is not known to be broken.
    pub(crate) fn is_coming_up(&self, slot: u32) -> bool {
        let status = &self.state.statuses()[slot as usize];
        let on_its_way = matches!(status.phase, Phase::Starting { .. } | Phase::Backoff { .. } | Phase::Draining);
        on_its_way && !status.gave_up
    }

    pub(crate) fn was_leaving(&self, slot: u32) -> bool {
        self.leaving.contains(&slot)
    }

    pub(crate) fn live_and_stop(mut self) {
        self.start();
        let span = self.rng.random_range(20..90);
        for _ in 0..self.rng.random_range(0..4) {
            self.sometime(span, Happening::Roll);
        }
        if self.rng.random_bool(0.4) {
            let length = ms(self.rng.random_range(2001..100_000));
            self.sometime(span, Happening::Sleep(length));
        }
        self.run_for(Duration::from_secs(span));
        self.end();
    }

    pub(crate) fn live_and_heal(mut self) {
        self.start();
        self.run_for(Duration::from_secs(60));
        self.kind = true;
        self.after(Duration::from_secs(40), Happening::Roll);
        self.run_for(Duration::from_secs(300));
        if self.seen.exit.is_none() {
            for status in self.state.statuses() {
                assert_eq!(status.phase, Phase::Ready, "slot {} does not heal", status.index);
                assert!(status.up && !status.gave_up);
            }
            assert!(self.seen.ready_told);
            assert!(self.seen.rolls_open.is_empty(), "a roll was never answered");
        }
        self.end();
    }

    pub(crate) fn one_slot_always_exits(mut self) {
        self.slots = 2;
        self.state = State::new(2, self.policy.clone(), self.rng.random());
        self.kind = true;
        self.always_exits = Some(1);
        self.start();
        self.run_for(Duration::from_secs(600));
        let lives = self.seen.spawns_of(1);
        assert!((6..=12).contains(&lives), "{lives} lives in ten minutes");
        assert_eq!(self.seen.spawns_of(0), 1, "the healthy shard was touched");
        self.always_exits = None;
        self.run_for(Duration::from_secs(200));
        assert_eq!(self.state.statuses()[1].phase, Phase::Ready, "it does not heal alone");
    }

    fn start(&mut self) {
        self.feed(Event::Start);
        self.after(self.policy.tick, Happening::Tick);
    }

    /// Stop, sometimes twice, and see the end.
    fn end(&mut self) {
        self.after(ms(0), Happening::Stop);
        if self.rng.random_bool(0.3) {
            let later = ms(self.rng.random_range(0..25_000));
            self.after(later, Happening::Stop);
        }
        if self.rng.random_bool(0.3) {
            self.after(ms(100), Happening::Roll);
        }
        self.run_for(Duration::from_secs(25));
        assert!(self.seen.exit.is_some(), "no end");
    }

    fn run_for(&mut self, span: Duration) {
        let until = self.awake() + span;
        while self.seen.exit.is_none() && self.awake() < until {
            let ((at, _), happening) = self.queue.pop_first().expect("time goes on");
            self.now = self.now.max(at);
            self.happen(happening);
        }
    }

    fn after(&mut self, delay: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now + delay, self.sequence), happening);
    }

    fn sometime(&mut self, span: u64, happening: Happening) {
        let at = ms(self.rng.random_range(0..span * 1000));
        self.after(at, happening);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick => {
                self.after(self.policy.tick, Happening::Tick);
                self.feed(Event::Tick);
                let rss = |child: &Child| 50 + 100 * u64::from(child.nature.grows);
                let samples: Vec<(u32, u64)> = self.children.iter().map(|(slot, child)| (*slot, rss(child))).collect();
                for (slot, rss) in samples {
                    self.feed(Event::Memory { slot, rss });
                }
            }
            Happening::CheckIn(slot, life) => self.check_in(slot, life),
            Happening::Say(slot, life, heard) => self.say(slot, life, heard),
            Happening::Die(slot, life, exit) => self.die(slot, life, exit),
            Happening::Reap(pid, slot, exit) => {
                // Whether it was leaving is judged by the world, before the policy is told.
                self.children.remove(&slot);
                if exit == Exit::Code(78) {
                    self.seen.config_exit();
                }
                let oom = self.rng.random_bool(0.1);
                self.feed(Event::Exited { pid, exit, oom });
                self.leaving.remove(&slot);
            }
            Happening::Unlink(slot, life) => {
                if let Some(child) = self.living(slot, life) {
                    child.unlinked = true;
                    self.feed(Event::LinkClosed { slot });
                }
            }
            Happening::Roll => {
                self.seen.roll_asked();
                self.feed(Event::Roll);
            }
            Happening::Stop => {
                self.seen.stop_asked();
                self.feed(Event::Stop);
            }
            Happening::Sleep(length) => {
                // Nobody does anything; afterwards everything that was due is due at once, in its order.
                self.slept += length;
                self.now += length;
                let queue = std::mem::take(&mut self.queue);
                self.queue = queue.into_iter().map(|((at, n), what)| ((at + length, n), what)).collect();
            }
        }
    }

    fn living(&mut self, slot: u32, life: u64) -> Option<&mut Child> {
        self.children.get_mut(&slot).filter(|child| child.incarnation == life && !child.dead)
    }

    fn check_in(&mut self, slot: u32, life: u64) {
        let awake = self.awake();
        let Some(child) = self.living(slot, life) else { return };
        let age = awake - child.born;
        if child.unlinked || child.nature.mute_from.is_some_and(|from| age >= from) {
            return;
        }
        let stalled = child.nature.stalls_from.is_some_and(|from| age >= from) && child.told_to_leave.is_none();
        if !stalled || child.last_good.is_none() {
            child.last_good = Some(awake);
        }
        let stalled = if stalled { vec!["consume".to_owned()] } else { Vec::new() };
        self.after(ms(400), Happening::CheckIn(slot, life));
        self.feed(Event::Heard { slot, heard: Heard::CheckIn { stalled } });
    }

    fn say(&mut self, slot: u32, life: u64, heard: Heard) {
        let awake = self.awake();
        let Some(child) = self.living(slot, life) else { return };
        let age = awake - child.born;
        if child.unlinked || child.nature.mute_from.is_some_and(|from| age >= from) {
            return;
        }
        if heard == Heard::Ready {
            child.served = true;
            child.last_good.get_or_insert(awake);
            self.seen.served(slot);
        }
        self.feed(Event::Heard { slot, heard });
    }

    fn die(&mut self, slot: u32, life: u64, exit: Exit) {
        let Some(child) = self.living(slot, life) else { return };
        child.dead = true;
        let pid = child.pid;
        if self.rng.random_bool(0.5) {
            self.feed(Event::LinkClosed { slot });
        }
        let delay = ms(self.rng.random_range(0..20));
        self.after(delay, Happening::Reap(pid, slot, exit));
    }

    /// Gives the policy an event, does all it wants, and checks.
    fn feed(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let actions = self.state.handle(event.clone(), self.now);
            let routine =
                matches!(event, Event::Tick | Event::Memory { .. } | Event::Heard { heard: Heard::CheckIn { .. }, .. });
            if self.trace && !(routine && actions.is_empty()) {
                eprintln!("{:>9.3} {event:?} -> {actions:?}", self.now.as_secs_f64());
            }
            let mut answers = Vec::new();
            for action in actions {
                invariants::check_action(self, &action);
                answers.extend(self.perform(action));
            }
            events.extend(answers.into_iter().rev());
        }
        if self.seen.exit.is_none() {
            invariants::check_state(self);
        }
    }

    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Spawn { slot } => return Some(self.spawn(slot)),
            Action::Grant { slot } => {
                let life = self.lives[&slot];
                if self.rng.random_bool(0.97) {
                    let delay = ms(self.rng.random_range(0..50));
                    self.after(delay, Happening::Say(slot, life, Heard::Listening));
                }
            }
            Action::Drain { slot, deadline } => {
                let slept = self.slept;
                let stopping = self.state.is_stopping();
                let life = self.lives[&slot];
                self.leaving.insert(slot);
                let child = self.children.get_mut(&slot).expect("a drain for nobody");
                child.told_to_leave = Some(deadline - slept);
                let leaves = child.nature.leaves_after;
                if !stopping && child.nature.grows {
                    self.recycles += 1;
                }
                if let Some(delay) = leaves {
                    self.after(delay / 2, Happening::Say(slot, life, Heard::LeftGroup));
                    self.after(delay, Happening::Say(slot, life, Heard::Drained));
                    self.after(delay + ms(20), Happening::Die(slot, life, Exit::Code(0)));
                }
            }
            Action::Steer { slot, id, .. } => {
                let life = self.lives[&slot];
                if self.rng.random_bool(0.9) {
                    self.after(ms(3), Happening::Say(slot, life, Heard::Steered { id }));
                }
            }
            Action::Kill { slot, signal, .. } => {
                let life = self.lives[&slot];
                let child = self.children.get_mut(&slot).expect("a signal for nobody");
                child.aborted = true;
                let exit = Exit::Signal(if signal == Deadly::Kill { 9 } else { 6 });
                if signal == Deadly::Kill || !child.nature.ignores_abort {
                    self.after(ms(5), Happening::Die(slot, life, exit));
                }
            }
            Action::Tell(_) | Action::Exit { .. } => {}
        }
        None
    }

    fn spawn(&mut self, slot: u32) -> Event {
        if !self.kind && self.rng.random_bool(0.02) {
            return Event::SpawnFailed { slot };
        }
        let life = self.lives.entry(slot).or_default();
        *life += 1;
        let incarnation = *life;
        self.next_pid += 1;
        let pid = self.next_pid;
        let nature = self.nature(slot);
        if let Some((age, exit)) = nature.dies {
            self.after(age, Happening::Die(slot, incarnation, exit));
        }
        if let Some(age) = nature.closes_link {
            self.after(age, Happening::Unlink(slot, incarnation));
        }
        if let Some(age) = nature.ready_after {
            self.after(age, Happening::Say(slot, incarnation, Heard::Ready));
            self.after(age / 2, Happening::Say(slot, incarnation, Heard::Listen));
        }
        let first = ms(self.rng.random_range(5..300));
        self.after(first, Happening::CheckIn(slot, incarnation));
        let child = Child {
            pid,
            incarnation,
            nature,
            born: self.awake(),
            last_good: None,
            served: false,
            told_to_leave: None,
            aborted: false,
            unlinked: false,
            dead: false,
        };
        self.children.insert(slot, child);
        Event::Spawned { slot, pid, incarnation }
    }

    fn nature(&mut self, slot: u32) -> Nature {
        let rng = &mut self.rng;
        let age = |rng: &mut StdRng| ms(rng.random_range(0..30_000) * rng.random_range(0..=1000) / 1000);
        let ready = ms(rng.random_range(10..3000));
        let good =
            Nature { ready_after: Some(ready), leaves_after: Some(ms(rng.random_range(0..1500))), ..Nature::default() };
        if self.always_exits == Some(slot) {
            return Nature { ready_after: None, dies: Some((ms(5), Exit::Code(1))), ..good };
        }
        if self.kind {
            return good;
        }
        let roll = rng.random_range(0..100);
        match roll {
            0..40 => good,
            40..55 => Nature { dies: Some((age(rng), Exit::Code(rng.random_range(0..3)))), ..good },
            55..63 => Nature { dies: Some((age(rng), Exit::Signal(9))), ..good },
            63..70 => Nature { mute_from: Some(age(rng)), ignores_abort: rng.random(), ..good },
            70..77 => Nature { stalls_from: Some(age(rng)), ignores_abort: rng.random(), ..good },
            77..83 => Nature { ready_after: None, ignores_abort: rng.random(), ..good },
            83..88 => Nature { leaves_after: None, ..good },
            88..91 => Nature { dies: Some((age(rng), Exit::Code(78))), ..good },
            91..94 => Nature { closes_link: Some(age(rng)), ..good },
            _ => Nature { grows: true, ..good },
        }
    }
}
