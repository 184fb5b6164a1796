//! The loop that performs what the policy wants: signals, links, the control socket and the clock in; spawns, messages
//! and signals to children out. It decides nothing.

use std::{collections::VecDeque, os::fd::AsFd, time::Duration};

use nix::{sys::signal::kill, unistd::Pid};
use rand::Rng;
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot},
    time::MissedTickBehavior,
};
use tracing::{debug, error, warn};

use crate::{
    action::{Action, Deadly, Event, Heard, News},
    clock::{boottime, wall_ms},
    control::{ControlSocket, Response},
    exit_status::{Exit, INTERNAL},
    link::{FromChild, Incoming, Links, ParentLink, ToChild},
    lock::SlotLock,
    memory::{self, OomKills},
    observer::Observer,
    reaper::reap,
    signals::{Signal, Signals},
    spawn::{SpawnError, spawn},
    spec::{Birth, ChildSpec, Policy},
    state::State,
    systemd::Notifier,
};

mod ask;
mod news;

use ask::{Asked, Questions};

/// A view is put together at most this often, unless a slot has changed.
const VIEW_AGE: Duration = Duration::from_millis(100);
/// Memory is looked at this often.
const MEMORY_EVERY: Duration = Duration::from_secs(1);

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The status to exit with.
    pub exit_code: u8,
}

/// A primary before it runs.
pub struct Supervisor {
    slots: u32,
    spec: ChildSpec,
    policy: Policy,
    locks: Vec<SlotLock>,
    control: Option<ControlSocket>,
    observer: Box<dyn Observer>,
}

impl Supervisor {
    /// `slots` children of this kind, watched by this observer.
    pub fn new(slots: u32, spec: ChildSpec, observer: impl Observer + 'static) -> Self {
        let observer = Box::new(observer);
        Self { slots, spec, policy: Policy::default(), locks: Vec::new(), control: None, observer }
    }

    /// Other rules than the default ones.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The locks of the slots, in their order; each is handed to its children.
    pub fn locks(mut self, locks: Vec<SlotLock>) -> Self {
        self.locks = locks;
        self
    }

    /// Answers questions here.
    pub fn control(mut self, socket: ControlSocket) -> Self {
        self.control = Some(socket);
        self
    }

    /// Runs until all children have ended for good. Call it on the main thread: the children live and die with it.
    pub fn run(self) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = runtime.and_then(|runtime| runtime.block_on(self.run_here()));
        let exit_code = ended.unwrap_or_else(|error| {
            error!(%error, "the primary cannot run");
            INTERNAL
        });
        Outcome { exit_code }
    }

    async fn run_here(self) -> std::io::Result<u8> {
        let mut signals = Signals::new()?;
        let (questions, mut asked) = mpsc::channel(16);
        if let Some(socket) = self.control {
            tokio::spawn(socket.serve(Questions(questions)));
        }
        let mut ticker = tokio::time::interval(self.policy.tick);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut primary = Primary {
            state: State::new(self.slots, self.policy.clone(), rand::rng().random()),
            links: Links::new(self.slots),
            slots: self.slots,
            incarnations: vec![0; self.slots as usize],
            lives: vec![0; self.slots as usize],
            watch_memory: self.policy.memory.is_some(),
            memory_due: Duration::ZERO,
            spec: self.spec,
            locks: self.locks,
            observer: self.observer,
            notifier: Notifier::from_env(),
            oom: OomKills::here(),
            view: None,
            waiters: Vec::new(),
            accepting: None,
            outcome: None,
        };
        primary.feed(Event::Start);
        loop {
            if let Some(code) = primary.outcome {
                return Ok(code);
            }
            tokio::select! {
                signal = signals.next() => match signal {
                    Signal::Child => primary.reap(),
                    Signal::Stop => primary.feed(Event::Stop),
                    Signal::Reload => primary.feed(Event::Roll),
                },
                (slot, incoming) = primary.links.next() => primary.incoming(slot, incoming),
                Some(question) = asked.recv() => primary.asked(question),
                _ = ticker.tick() => primary.tick(),
            }
        }
    }
}

/// All that the loop holds.
struct Primary {
    state: State,
    links: Links,
    slots: u32,
    incarnations: Vec<u64>,
    /// How many children each slot has had.
    lives: Vec<u64>,
    watch_memory: bool,
    memory_due: Duration,
    spec: ChildSpec,
    locks: Vec<SlotLock>,
    observer: Box<dyn Observer>,
    notifier: Notifier,
    oom: OomKills,
    view: Option<(Duration, Box<RawValue>)>,
    /// Who waits for which roll.
    waiters: Vec<(u64, oneshot::Sender<Response>)>,
    /// Who has asked for the roll that is being requested right now.
    accepting: Option<oneshot::Sender<Response>>,
    outcome: Option<u8>,
}

impl Primary {
    /// An event, and all that follows from it.
    fn feed(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.state.handle(event, boottime()) {
                // Answers come before anything else that may happen.
                events.extend(self.perform(action));
            }
        }
    }

    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Spawn { slot } => return Some(self.spawn(slot)),
            Action::Grant { slot } => self.links.send(slot, &ToChild::ListenGranted),
            Action::Drain { slot, deadline } => {
                let deadline_ms = deadline.saturating_sub(boottime()).as_millis() as u64;
                self.links.send(slot, &ToChild::Drain { deadline_ms });
            }
            Action::Steer { slot, id, plan } => {
                let message = match plan {
                    Some(plan) => ToChild::Steer { id, total: plan.total, targets: plan.targets },
                    None => ToChild::Unsteer { id },
                };
                self.links.send(slot, &message);
            }
            Action::Kill { slot, pid, signal } => {
                let signal = match signal {
                    Deadly::Abort => nix::sys::signal::SIGABRT,
                    Deadly::Kill => nix::sys::signal::SIGKILL,
                };
                warn!(shard = slot, pid, %signal, "shard is being ended");
                if let Err(error) = kill(Pid::from_raw(pid), signal) {
                    error!(shard = slot, pid, %error, "shard cannot be signalled");
                }
            }
            Action::Tell(news) => self.tell(news),
            Action::Exit { code } => self.outcome = Some(code),
        }
        None
    }

    fn spawn(&mut self, slot: u32) -> Event {
        let started = self.next_incarnation(slot).and_then(|incarnation| {
            let lock = self.locks.get(slot as usize).map(AsFd::as_fd);
            let birth = Birth { slot, incarnation, life: self.lives[slot as usize] + 1 };
            let started = spawn(&self.spec, birth, lock)?;
            self.lives[slot as usize] += 1;
            let link = ParentLink::new(started.link).map_err(|source| SpawnError::Link { slot, source });
            if link.is_err() {
                // Without a link it is no shard; it is reaped like any other.
                let _ = kill(Pid::from_raw(started.pid), nix::sys::signal::SIGKILL);
            }
            Ok((incarnation, started.pid, link?))
        });
        match started {
            Ok((incarnation, pid, link)) => {
                self.links.set(slot, Some(link));
                Event::Spawned { slot, pid, incarnation }
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                error!(shard = slot, %error, cause, "shard not started");
                Event::SpawnFailed { slot }
            }
        }
    }

    fn next_incarnation(&mut self, slot: u32) -> Result<u64, SpawnError> {
        let last = &mut self.incarnations[slot as usize];
        let next = match self.locks.get_mut(slot as usize) {
            Some(lock) => lock.next_incarnation().map_err(|error| SpawnError::Lock { slot, source: error })?,
            None => wall_ms().max(*last + 1),
        };
        *last = next;
        Ok(next)
    }

    fn incoming(&mut self, slot: u32, incoming: Incoming) {
        match incoming {
            Incoming::Frame(frame) => self.frame(slot, frame),
            Incoming::Closed => self.feed(Event::LinkClosed { slot }),
        }
    }

    fn frame(&mut self, slot: u32, frame: FromChild) {
        let incarnation = self.incarnations[slot as usize];
        let heard = match frame {
            FromChild::Hello { pid, incarnation: theirs } => {
                debug!(shard = slot, pid, incarnation = theirs, "shard says hello");
                Heard::Alive
            }
            FromChild::Listen => Heard::Listen,
            FromChild::Listening => Heard::Listening,
            FromChild::Ready => Heard::Ready,
            FromChild::NotReady { reason } => Heard::NotReady(reason),
            FromChild::Waiting { reason } => Heard::Waiting(reason),
            FromChild::CheckIn { stalled, report } => {
                self.observer.report(slot, incarnation, &report);
                Heard::CheckIn { stalled }
            }
            FromChild::ViewRequest { id } => {
                let payload = self.current_view();
                self.links.send(slot, &ToChild::View { id, payload });
                Heard::Alive
            }
            FromChild::Steered { id } => Heard::Steered { id },
            FromChild::LeftGroup => Heard::LeftGroup,
            FromChild::Drained => Heard::Drained,
        };
        self.feed(Event::Heard { slot, heard });
    }

    fn current_view(&mut self) -> Box<RawValue> {
        let now = boottime();
        match &self.view {
            Some((made, view)) if now.saturating_sub(*made) < VIEW_AGE => view.clone(),
            _ => {
                let view = self.observer.view(&self.state.statuses());
                self.view = Some((now, view.clone()));
                view
            }
        }
    }

    fn reap(&mut self) {
        let living: Vec<i32> = self.state.statuses().iter().filter_map(|status| status.pid).collect();
        let ends = reap(&living);
        if ends.is_empty() {
            return;
        }
        let oom = self.oom.rose();
        for (pid, exit) in ends {
            self.ended(pid, exit, oom);
        }
    }

    fn ended(&mut self, pid: i32, exit: Exit, oom: bool) {
        let Some(slot) = self.state.statuses().iter().find(|s| s.pid == Some(pid)).map(|s| s.index) else {
            return debug!(pid, %exit, "a child that is no shard has ended");
        };
        // What it said before it died counts: its last report, its leaving the group.
        while let Some(Incoming::Frame(frame)) = self.links.read_last(slot) {
            self.frame(slot, frame);
        }
        self.links.set(slot, None);
        self.feed(Event::Exited { pid, exit, oom });
    }

    fn tick(&mut self) {
        self.links.refill();
        // Nobody is late because this loop was: what has come is read before the clock is looked at.
        for slot in 0..self.slots {
            while let Some(incoming) = self.links.read_now(slot) {
                self.incoming(slot, incoming);
            }
        }
        self.reap();
        self.feed(Event::Tick);
        let now = boottime();
        if self.watch_memory && now >= self.memory_due {
            self.memory_due = now + MEMORY_EVERY;
            for status in self.state.statuses() {
                if let Some(rss) = status.pid.and_then(memory::resident) {
                    self.feed(Event::Memory { slot: status.index, rss });
                }
            }
        }
        self.notifier.pet(now);
    }

    fn asked(&mut self, question: Asked) {
        match question {
            Asked::Status(answer) => {
                // Who asked may have gone.
                let _ = answer.send(Response::Status { view: self.current_view() });
            }
            Asked::Reload(answer) => {
                self.accepting = Some(answer);
                self.feed(Event::Roll);
            }
        }
    }

    fn tell(&mut self, news: News) {
        self.view = None;
        news::log(&news);
        if let News::Lost { slot, incarnation, reason, .. } = &news {
            self.observer.lost(*slot, *incarnation, *reason);
        }
        match &news {
            News::Ready => self.notifier.ready(),
            News::RollStarted { .. } => self.notifier.reloading(),
            News::RollDone { .. } | News::RollFailed { .. } => self.notifier.ready(),
            News::Stopping { .. } => self.notifier.stopping(),
            _ => {}
        }
        let line = news::status_line(&self.state);
        self.notifier.status(&line);
        self.answer_waiters(&news);
    }

    fn answer_waiters(&mut self, news: &News) {
        let (done, response): (u64, fn(&News) -> Response) = match news {
            News::RollAccepted { id } => {
                self.waiters.extend(self.accepting.take().map(|answer| (*id, answer)));
                return;
            }
            News::RollRefused => {
                if let Some(answer) = self.accepting.take() {
                    let _ = answer.send(Response::Failed { reason: "the primary is stopping".to_owned() });
                }
                return;
            }
            News::RollDone { id } => (*id, |_| Response::Done),
            News::RollFailed { id, .. } => (*id, news::failure),
            _ => return,
        };
        for (_, answer) in self.waiters.extract_if(.., |(id, _)| *id == done) {
            // Who asked may have gone.
            let _ = answer.send(response(news));
        }
    }
}
