//! The lease and the send guard as a model, every interleaving explored: two processes, one channel, one job, crashes and
//! pauses at any moment (a paused process is one that the checker does not schedule for a while).
//!
//! Time is in ticks. A lease lasts `LEASE` ticks by the registry's clock from the moment the registry took the claim; its
//! owner believes in it for `FENCE` ticks from the moment it *began* to ask. The proportions are those of `registry::lease`.

use std::hash::Hash;

use stateright::{Checker, Model, Property};

const LEASE: u8 = 3;
const FENCE: u8 = 2;
const END_OF_TIME: u8 = 5;
const CRASHES: u8 = 1;

/// Which kind of platform, and which policy.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The client chooses the message id.
    ChosenId,
    /// It can't; an uncertain send is sent again.
    Resend,
    /// It can't; an uncertain send becomes a dead letter.
    DeadLetter,
}

struct World {
    kind: Kind,
    /// Leave a rule out, to see that the properties can fail.
    without: Option<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    FenceBeforeLeaseEnds,
    TokenCheckedAtWrites,
    ReservedBeforeTheWire,
    FirstIdKept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Step {
    /// Holds nothing.
    Idle,
    /// Asked for the lease at this tick; the answer is on its way.
    Asking(u8),
    /// Holds the lease, has not begun.
    Owner,
    /// The send is reserved under this message id.
    Reserved(u8),
    /// It is on the wire, and nothing is stored about how it went.
    OnWire(u8),
    /// It is over for this process.
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    step: Step,
    token: u8,
    believes_until: u8,
    life: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Guard {
    Empty,
    Reserved { by: (u8, u8), id: u8 },
    Sent(u8),
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    /// Who holds the lease by the registry, under which token, until when.
    lease: Option<(u8, u8, u8)>,
    last_token: u8,
    /// The greatest token that a durable write was made under.
    fence: u8,
    guard: Guard,
    uncertain_stored: u8,
    /// Copies on the wire, the id of the first, and whether another one carried another id.
    wire: (u8, u8, bool),
    /// A durable write was made under an older token than one before it.
    went_back: bool,
    /// Durable writes were made under more than one token.
    took_over: bool,
    processes: [Process; 2],
    crashes: u8,
    next_id: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Act {
    Tick,
    Ask(usize),
    Granted(usize),
    Reserve(usize),
    Wire(usize),
    MarkSent(usize),
    Crash(usize),
}

impl World {
    fn fence_ticks(&self) -> u8 {
        if self.without == Some(Rule::FenceBeforeLeaseEnds) { LEASE + 1 } else { FENCE }
    }

    /// A durable write under a token: refused when a greater one has written.
    fn write(&self, state: &mut State, token: u8) -> bool {
        if token < state.fence && self.without != Some(Rule::TokenCheckedAtWrites) {
            return false;
        }
        state.went_back |= token < state.fence;
        state.took_over |= state.fence != 0 && token != state.fence;
        state.fence = state.fence.max(token);
        true
    }

    fn reserve(&self, state: &mut State, who: usize) {
        let Process { token, life, .. } = state.processes[who];
        let by = (who as u8, life);
        if !self.write(state, token) {
            state.processes[who].step = Step::Idle;
            return;
        }
        let (guard, step) = match state.guard {
            Guard::Sent(_) | Guard::Dead => (state.guard, Step::Finished),
            Guard::Empty => {
                state.next_id += 1;
                (Guard::Reserved { by, id: state.next_id }, Step::Reserved(state.next_id))
            }
            Guard::Reserved { id, .. } => match self.kind {
                Kind::ChosenId if self.without == Some(Rule::FirstIdKept) => {
                    state.next_id += 1;
                    (Guard::Reserved { by, id: state.next_id }, Step::Reserved(state.next_id))
                }
                Kind::ChosenId => (Guard::Reserved { by, id }, Step::Reserved(id)),
                Kind::Resend => {
                    state.uncertain_stored += 1;
                    state.next_id += 1;
                    (Guard::Reserved { by, id: state.next_id }, Step::Reserved(state.next_id))
                }
                Kind::DeadLetter => {
                    state.uncertain_stored += 1;
                    (Guard::Dead, Step::Finished)
                }
            },
        };
        state.guard = guard;
        state.processes[who].step = step;
    }
}

impl Model for World {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let process = Process { step: Step::Idle, token: 0, believes_until: 0, life: 0 };
        vec![State {
            now: 0,
            lease: None,
            last_token: 0,
            fence: 0,
            guard: Guard::Empty,
            uncertain_stored: 0,
            wire: (0, 0, false),
            went_back: false,
            took_over: false,
            processes: [process; 2],
            crashes: 0,
            next_id: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        if state.now < END_OF_TIME {
            actions.push(Act::Tick);
        }
        for (who, process) in state.processes.iter().enumerate() {
            match process.step {
                Step::Idle => actions.push(Act::Ask(who)),
                Step::Asking(_) => actions.push(Act::Granted(who)),
                Step::Owner => actions.push(Act::Reserve(who)),
                Step::Reserved(_) => actions.push(Act::Wire(who)),
                Step::OnWire(_) => actions.push(Act::MarkSent(who)),
                Step::Finished => {}
            }
            if state.crashes < CRASHES && process.step != Step::Idle {
                actions.push(Act::Crash(who));
            }
        }
    }

    fn next_state(&self, last: &State, action: Act) -> Option<State> {
        let mut state = last.clone();
        match action {
            Act::Tick => state.now += 1,
            Act::Ask(who) => state.processes[who].step = Step::Asking(state.now),
            Act::Granted(who) => {
                let Step::Asking(since) = state.processes[who].step else { return None };
                let held = state.lease.is_some_and(|(by, _, until)| by != who as u8 && until > state.now);
                if held {
                    state.processes[who].step = Step::Idle;
                } else {
                    state.last_token += 1;
                    state.lease = Some((who as u8, state.last_token, state.now + LEASE));
                    let process = &mut state.processes[who];
                    process.token = state.last_token;
                    process.believes_until = since + self.fence_ticks();
                    process.step = Step::Owner;
                }
            }
            Act::Reserve(who) => {
                if state.now >= state.processes[who].believes_until {
                    state.processes[who].step = Step::Idle;
                } else if self.without == Some(Rule::ReservedBeforeTheWire) {
                    state.next_id += 1;
                    state.processes[who].step = match state.guard {
                        Guard::Empty => Step::Reserved(state.next_id),
                        _ => Step::Finished,
                    };
                } else {
                    self.reserve(&mut state, who);
                }
            }
            Act::Wire(who) => {
                let Step::Reserved(id) = state.processes[who].step else { return None };
                // A process that slept validates before it acts.
                if state.now >= state.processes[who].believes_until {
                    state.processes[who].step = Step::Idle;
                } else {
                    let (copies, first, differ) = state.wire;
                    state.wire =
                        (copies + 1, if copies == 0 { id } else { first }, differ || (copies > 0 && id != first));
                    state.processes[who].step = Step::OnWire(id);
                }
            }
            Act::MarkSent(who) => {
                let Step::OnWire(id) = state.processes[who].step else { return None };
                let token = state.processes[who].token;
                if self.write(&mut state, token) {
                    state.guard = Guard::Sent(id);
                    state.processes[who].step = Step::Finished;
                } else {
                    state.processes[who].step = Step::Idle;
                }
            }
            Act::Crash(who) => {
                let life = state.processes[who].life + 1;
                state.processes[who] = Process { step: Step::Idle, token: 0, believes_until: 0, life };
                state.crashes += 1;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("never two owners inside their validity", |_, state: &State| {
                let owns = |process: &Process| {
                    !matches!(process.step, Step::Idle | Step::Asking(_)) && state.now < process.believes_until
                };
                state.processes.iter().filter(|process| owns(process)).count() <= 1
            }),
            Property::always("durable writes never go back to an older token", |_, state: &State| !state.went_back),
            Property::always("never two provider ids where the client chooses", |world: &World, state: &State| {
                world.kind != Kind::ChosenId || !state.wire.2
            }),
            Property::always("a second copy is preceded by a stored uncertain", |world: &World, state: &State| {
                world.kind != Kind::Resend || state.wire.0 <= 1 + state.uncertain_stored
            }),
            Property::always("no second copy under dead_letter", |world: &World, state: &State| {
                world.kind != Kind::DeadLetter || state.wire.0 <= 1
            }),
            Property::sometimes("a job is done after a crash", |_, state: &State| {
                state.crashes > 0 && matches!(state.guard, Guard::Sent(_))
            }),
            Property::sometimes("the other process takes over", |_, state: &State| state.took_over),
        ]
    }
}

/// The properties that are violated, by name.
fn violated(kind: Kind, without: Option<Rule>) -> Vec<&'static str> {
    let checker = World { kind, without }.checker().threads(1).spawn_bfs().join();
    let world = checker.model();
    let mut names: Vec<_> = world
        .properties()
        .into_iter()
        .filter(|property| {
            let found = checker.discovery(property.name).is_some();
            match property.expectation {
                stateright::Expectation::Always => found,
                _ => !found,
            }
        })
        .map(|property| property.name)
        .collect();
    names.sort_unstable();
    println!("{kind:?} without {without:?}: {} states, violated: {names:?}", checker.unique_state_count());
    names
}

/// Contract: C1, Q8.
#[test]
fn the_protocol_holds_in_every_interleaving() {
    for kind in [Kind::ChosenId, Kind::Resend] {
        assert_eq!(violated(kind, None), [""; 0], "{kind:?}");
    }
    assert_eq!(violated(Kind::DeadLetter, None), [""; 0]);
}

/// Contract: C1, Q8. Each rule is there for a reason: without it something breaks.
#[test]
fn each_rule_is_needed() {
    assert!(
        violated(Kind::ChosenId, Some(Rule::FenceBeforeLeaseEnds)).contains(&"never two owners inside their validity")
    );
    assert!(
        violated(Kind::ChosenId, Some(Rule::TokenCheckedAtWrites))
            .contains(&"durable writes never go back to an older token")
    );
    assert!(
        violated(Kind::ChosenId, Some(Rule::FirstIdKept)).contains(&"never two provider ids where the client chooses")
    );
    assert!(
        violated(Kind::DeadLetter, Some(Rule::ReservedBeforeTheWire)).contains(&"no second copy under dead_letter")
    );
}
