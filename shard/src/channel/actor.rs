//! The task behind one channel: feeds its life cycle with what happens and does what that decides.
//!
//! The connection runs in a task of its own, so that a panic in it ends nothing but itself; the life cycle sees it as a
//! refused try. A change of state is stored as an event before it counts as told; what the outbox doesn't take is tried
//! again until it does.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use uuid::Uuid;

use super::{
    hold::Hold,
    inbox::{ChannelInbox, Keeper},
    life::Life,
    post::Post,
    ramp::Ramp,
    state::{Action, Event, Policy},
};
use crate::{
    event::{ChannelState, Event as Happened, EventKind},
    identity::ChannelId,
    platform::{Closed, Platform},
};

/// How long a connection may take to end before it is cut.
const HANG_UP_GRACE: Duration = Duration::from_secs(5);
/// The same when the lease is lost: it must be over before somebody else may begin.
const LOST_GRACE: Duration = Duration::from_secs(1);
/// How soon a change of state that could not be stored is tried again.
const TELL_AGAIN: Duration = Duration::from_secs(5);
/// So many unstored changes are kept; older ones give way.
const UNTOLD: usize = 16;

/// What the roster and the inbox tell an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// Connect now, whatever was waited for.
    Kick,
    /// Connect anew.
    Restart { changed: bool },
    /// Come to an end.
    Stop,
    /// A connection waits for a person.
    Waits { life: u64 },
    /// A connection was answered.
    Up { life: u64 },
}

/// What all actors of a shard share.
pub(super) struct Env {
    pub(super) keeper: Arc<Keeper>,
    pub(super) ramp: Arc<Ramp>,
    pub(super) policy: Policy,
}

struct Running {
    task: AbortOnDropHandle<Closed>,
    stop: CancellationToken,
    /// When it is cut, once it was asked to end.
    cut_at: Option<Instant>,
}

pub(super) struct Actor {
    env: Arc<Env>,
    platform: Arc<dyn Platform>,
    post: Arc<Post>,
    hold: Arc<Hold>,
    commands: UnboundedReceiver<Command>,
    own: UnboundedSender<Command>,
    born: Instant,
    life: Life,
    lives: u64,
    running: Option<Running>,
    due: Option<Instant>,
    untold: VecDeque<Happened>,
    tell_at: Option<Instant>,
    gone: bool,
}

impl Actor {
    pub(super) fn new(
        env: Arc<Env>,
        platform: Arc<dyn Platform>,
        post: Arc<Post>,
        hold: Arc<Hold>,
    ) -> (Self, UnboundedSender<Command>) {
        let (own, commands) = unbounded_channel();
        let life = Life::new(env.policy.clone());
        let actor = Self {
            env,
            platform,
            post,
            hold,
            commands,
            own: own.clone(),
            born: Instant::now(),
            life,
            lives: 0,
            running: None,
            due: None,
            untold: VecDeque::new(),
            tell_at: None,
            gone: false,
        };
        (actor, own)
    }

    /// Lives until it is stopped or the lease is lost. When it returns there is no connection.
    pub(super) async fn run(mut self, delay: Duration) -> ChannelId {
        self.on(Event::Start { delay }).await;
        let mut lost = false;
        while !self.gone {
            let cut_at = self.running.as_ref().and_then(|running| running.cut_at);
            let wake = [self.due, self.tell_at, cut_at].into_iter().flatten().min();
            let hold = self.hold.clone();
            tokio::select! {
                biased;
                () = hold.lost().cancelled(), if !lost => {
                    lost = true;
                    self.on(Event::Lost).await;
                }
                // Before the end, so that a connection's beginning is never overtaken by its end.
                Some(command) = self.commands.recv() => self.command(command).await,
                closed = ended(&mut self.running) => self.closed(closed).await,
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => self.wake().await,
            }
        }
        self.tell().await;
        if !self.untold.is_empty() && !self.hold.is_lost() {
            tracing::warn!(channel = %self.channel(), events = self.untold.len(), "changes of state were not stored");
        }
        self.channel()
    }

    fn channel(&self) -> ChannelId {
        self.hold.fence().channel
    }

    async fn command(&mut self, command: Command) {
        match command {
            Command::Kick => self.on(Event::Kick).await,
            Command::Restart { changed } => self.on(Event::Restart { changed }).await,
            Command::Stop => self.on(Event::Stop).await,
            Command::Up { life } if life == self.lives => self.on(Event::Up).await,
            Command::Waits { life } if life == self.lives => self.on(Event::Waits).await,
            Command::Up { .. } | Command::Waits { .. } => {}
        }
    }

    async fn closed(&mut self, closed: Closed) {
        self.running = None;
        let labels = [self.post.platform().as_str(), word(&closed)];
        self.env.keeper.metrics.closed.with_label_values(&labels).inc();
        self.on(Event::Ended(closed)).await;
    }

    async fn wake(&mut self) {
        let now = Instant::now();
        if let Some(running) = &mut self.running
            && running.cut_at.is_some_and(|at| at <= now)
        {
            running.cut_at = None;
            running.task.abort();
        }
        if self.tell_at.is_some_and(|at| at <= now) {
            self.tell().await;
        }
        if self.due.is_some_and(|at| at <= now) {
            self.due = None;
            self.on(Event::Due).await;
        }
    }

    async fn on(&mut self, event: Event) {
        let actions = self.life.on(event, self.born.elapsed(), rand::random());
        let mut tell = false;
        for action in actions {
            match action {
                Action::Connect => self.connect(),
                Action::HangUp => self.hang_up(),
                Action::Arm(delay) => self.due = Some(Instant::now() + delay),
                Action::Disarm => self.due = None,
                Action::Tell => tell = true,
                Action::Gone => self.gone = true,
            }
        }
        let (state, reason) = (self.life.state(), self.life.reason().map(str::to_owned));
        self.post.stand(state, reason, self.env.keeper.clock.wall_ms());
        if tell {
            self.note();
            self.tell().await;
        }
    }

    fn connect(&mut self) {
        self.lives += 1;
        let stop = self.hold.lost().child_token();
        let (env, hold, post) = (self.env.clone(), self.hold.clone(), self.post.clone());
        let (platform, actor, life, stopped) = (self.platform.clone(), self.own.clone(), self.lives, stop.clone());
        let task = tokio::spawn(async move {
            let permit = tokio::select! {
                permit = env.ramp.admit(platform.kind()) => permit,
                () = stopped.cancelled() => return Closed::Asked,
            };
            let spec = post.spec();
            let inbox = Arc::new(ChannelInbox::new(env.keeper.clone(), hold, post, life, actor, permit));
            platform.receive(spec, inbox, stopped).await
        });
        self.running = Some(Running { task: AbortOnDropHandle::new(task), stop, cut_at: None });
    }

    fn hang_up(&mut self) {
        if let Some(running) = &mut self.running {
            running.stop.cancel();
            let grace = if self.hold.is_lost() { LOST_GRACE } else { HANG_UP_GRACE };
            running.cut_at = Some(Instant::now() + grace);
        }
    }

    /// Logs the new state and puts its event among those to be stored.
    fn note(&mut self) {
        let (channel, platform) = (self.channel(), self.post.platform());
        let (state, reason) = (self.life.state(), self.life.reason());
        if state.is_alert() {
            tracing::warn!(%channel, %platform, state = state.as_str(), reason, "channel needs attention");
        } else {
            tracing::info!(%channel, %platform, state = state.as_str(), reason, "channel changed its state");
        }
        let told = ChannelState { state: state.as_str().to_owned(), reason: reason.map(str::to_owned) };
        let at = Timestamp::from_millisecond(self.env.keeper.clock.wall_ms()).unwrap_or_default();
        let key = format!("state/{}", Uuid::new_v4());
        if self.untold.len() == UNTOLD {
            self.untold.pop_front();
        }
        self.untold.push_back(Happened::new(channel, platform, None, at, &key, EventKind::ChannelState(told)));
    }

    async fn tell(&mut self) {
        self.tell_at = None;
        if self.untold.is_empty() || !self.hold.is_proven() {
            return;
        }
        let events = self.untold.iter().cloned().collect();
        let handler = self.post.spec().handler.clone();
        match self.env.keeper.keep(&self.hold, &handler, events, None).await {
            Ok(()) => self.untold.clear(),
            Err(error) => {
                tracing::debug!(channel = %self.channel(), %error, "a change of state could not be stored yet");
                self.tell_at = Some(Instant::now() + TELL_AGAIN);
            }
        }
    }
}

/// Waits for the connection's end; for ever when there is none.
async fn ended(running: &mut Option<Running>) -> Closed {
    let Some(running) = running else { return std::future::pending().await };
    match (&mut running.task).await {
        Ok(closed) => closed,
        // Its text may hold anything, so it isn't repeated here.
        Err(error) if error.is_panic() => Closed::Rejected { reason: "panic".into() },
        Err(_) => Closed::Asked,
    }
}

/// The metric's word for an end.
fn word(closed: &Closed) -> &'static str {
    match closed {
        Closed::Asked => "asked",
        Closed::Transient { .. } => "transient",
        Closed::Rejected { reason } if reason == "panic" => "panic",
        Closed::Rejected { .. } => "rejected",
        Closed::Replaced { .. } => "replaced",
        Closed::LoggedOut { .. } => "logged_out",
        Closed::Banned { .. } => "banned",
        Closed::NeedsPairing { .. } => "needs_pairing",
        Closed::Misconfigured { .. } => "misconfigured",
        Closed::Fenced => "fenced",
    }
}
