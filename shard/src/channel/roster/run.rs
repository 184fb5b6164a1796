//! The roster's loop: what is due is begun, what is answered is taken in, what can't be proven is closed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::oneshot,
    task::{Id, JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

use super::{
    Roster,
    handle::Request,
    members::{Members, Phase},
};
use crate::{
    channel::{
        actor::{Actor, Command},
        hold::Hold,
        post::Post,
        wanted::Wanted,
    },
    directory::{ChannelSpec, DirectoryError},
    identity::ChannelId,
    progress::Stamp,
    registry::{Claim, LEASE, Lease, RENEW_EVERY, RegistryError, Renewal, Resource},
};

/// How often leases are looked at; well below what lies between self-fencing and a lease's end.
const LOOK: Duration = Duration::from_millis(500);
/// So many leases are claimed in one call.
const CLAIM_MOST: usize = 500;
/// How long a registry may take to answer.
const REGISTRY_PATIENCE: Duration = Duration::from_secs(3);
/// How long a directory may take to answer.
const DIRECTORY_PATIENCE: Duration = Duration::from_secs(20);
/// How soon a claim is tried again that was not answered.
const CLAIM_AGAIN: Duration = Duration::from_secs(2);
/// How soon a lease is claimed again that was lost or fenced.
const AFTER_LOSS: Duration = Duration::from_secs(1);
/// The directory isn't asked more often than this, whoever wants to know.
const LIST_GAP: Duration = Duration::from_millis(100);

/// What was answered, by whom.
enum Answer {
    Listed(Duration, Result<Vec<Arc<ChannelSpec>>, DirectoryError>),
    Claimed(Duration, Vec<ChannelId>, Result<Vec<Claim>, RegistryError>),
    Renewed(Duration, Vec<Lease>, Result<Renewal, RegistryError>),
    Released(Vec<Lease>, Result<(), RegistryError>),
}

struct Work {
    roster: Roster,
    members: Members,
    wanted: Wanted,
    unsupported: BTreeSet<ChannelId>,
    answers: FuturesUnordered<BoxFuture<'static, Answer>>,
    actors: JoinSet<ChannelId>,
    actor_of: HashMap<Id, ChannelId>,
    to_release: Vec<Lease>,
    /// When the directory is asked next.
    list_at: Instant,
    list_began: Instant,
    listing: bool,
    /// The answer under way is older than what we know by now.
    listing_is_stale: bool,
    listed: bool,
    claiming: bool,
    claims_from: Duration,
    renewing: bool,
    renew_from: Duration,
    releasing: bool,
    registry_away: bool,
    directory_away: bool,
    drained: Option<Vec<oneshot::Sender<()>>>,
    reconcile_stamp: Stamp,
    renew_stamp: Stamp,
}

impl Roster {
    /// Works until it is drained.
    pub async fn run(self) {
        let progress = self.ports.progress.clone();
        let reconcile_limit = self.config.reconcile_every * 2 + DIRECTORY_PATIENCE;
        let directory = self.ports.directory.clone();
        let mut work = Work {
            members: Members::new(self.book.clone()),
            wanted: Wanted::default(),
            unsupported: BTreeSet::new(),
            answers: FuturesUnordered::new(),
            actors: JoinSet::new(),
            actor_of: HashMap::new(),
            to_release: Vec::new(),
            list_at: Instant::now(),
            list_began: Instant::now(),
            listing: false,
            listing_is_stale: false,
            listed: false,
            claiming: false,
            claims_from: Duration::ZERO,
            renewing: false,
            renew_from: Duration::ZERO,
            releasing: false,
            registry_away: false,
            directory_away: false,
            drained: None,
            reconcile_stamp: progress.register("reconcile", reconcile_limit),
            renew_stamp: progress.register("renew", RENEW_EVERY + REGISTRY_PATIENCE * 3),
            roster: self,
        };
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changed = directory.changed();
        loop {
            work.begin_what_is_due();
            tokio::select! {
                _ = look.tick() => work.look(),
                Some(answer) = work.answers.next(), if !work.answers.is_empty() => work.take_in(answer),
                Some(ended) = work.actors.join_next_with_id(), if !work.actors.is_empty() => work.actor_ended(ended),
                Some(request) = work.roster.requests.recv() => work.request(request),
                () = &mut changed => {
                    changed = directory.changed();
                    work.list_now();
                }
                () = sleep_until(work.list_at), if !work.listing && work.drained.is_none() => {}
            }
            if work.members.is_empty()
                && !work.releasing
                && work.to_release.is_empty()
                && !work.claiming
                && let Some(waiters) = work.drained.take()
            {
                for waiter in waiters {
                    // Who doesn't wait any more needn't know.
                    let _ = waiter.send(());
                }
                return;
            }
        }
    }
}

impl Work {
    fn boottime(&self) -> Duration {
        self.roster.ports.clock.boottime()
    }

    fn wall_ms(&self) -> i64 {
        self.roster.ports.clock.wall_ms()
    }

    fn begin_what_is_due(&mut self) {
        let now = self.boottime();
        if !self.renewing && now >= self.renew_from {
            self.renew(now);
        }
        if !self.releasing && !self.to_release.is_empty() {
            self.release();
        }
        if self.drained.is_some() {
            return;
        }
        if !self.listing && Instant::now() >= self.list_at {
            self.list(now);
        }
        if !self.claiming && now >= self.claims_from {
            self.claim(now);
        }
    }

    /// At each look: what can't be proven is closed, whatever else hangs.
    fn look(&mut self) {
        let fenced = self.members.fence();
        if fenced > 0 {
            tracing::error!(channels = fenced, "leases could not be renewed in time: their channels are closed");
        }
        for (platform, silent_ms) in self.members.silence(self.wall_ms()) {
            self.roster.ports.metrics.silence.with_label_values(&[platform.as_str()]).set(silent_ms / 1000);
        }
        if self.drained.is_some() {
            self.reconcile_stamp.tick();
        }
    }

    fn list(&mut self, began: Duration) {
        self.listing = true;
        self.listing_is_stale = false;
        self.list_began = Instant::now();
        self.list_at = self.list_began + self.roster.config.reconcile_every;
        let directory = self.roster.ports.directory.clone();
        self.answers.push(Box::pin(async move {
            let result = timeout(DIRECTORY_PATIENCE, directory.channels()).await;
            let late = |_| Err(DirectoryError::Unavailable("no answer in time".into()));
            Answer::Listed(began, result.unwrap_or_else(late))
        }));
    }

    /// Has the directory asked soon, by a question that is put after this.
    fn list_now(&mut self) {
        self.list_at = self.list_at.min(Instant::now().max(self.list_began + LIST_GAP));
    }

    fn claim(&mut self, began: Duration) {
        let channels = self.members.take_due(began, CLAIM_MOST);
        if channels.is_empty() {
            return;
        }
        self.claiming = true;
        let resources: Vec<_> = channels.iter().map(|channel| Resource::Channel(*channel)).collect();
        let (registry, holder) = (self.roster.ports.registry.clone(), self.roster.config.holder.clone());
        let supersede = self.roster.config.supersede;
        self.answers.push(Box::pin(async move {
            let result = timeout(REGISTRY_PATIENCE, registry.claim(&holder, &resources, supersede)).await;
            Answer::Claimed(began, channels, result.unwrap_or_else(|_| Err(late())))
        }));
    }

    fn renew(&mut self, began: Duration) {
        let leases = self.members.leases();
        // Half a look early, since it is a look that begins it.
        self.renew_from = began + RENEW_EVERY - LOOK / 2;
        if leases.is_empty() {
            self.renew_stamp.tick();
            return;
        }
        self.renewing = true;
        let (registry, holder) = (self.roster.ports.registry.clone(), self.roster.config.holder.clone());
        self.answers.push(Box::pin(async move {
            let result = timeout(REGISTRY_PATIENCE, registry.renew(&holder, &leases)).await;
            Answer::Renewed(began, leases, result.unwrap_or_else(|_| Err(late())))
        }));
    }

    fn release(&mut self) {
        self.releasing = true;
        let leases = std::mem::take(&mut self.to_release);
        let (registry, holder) = (self.roster.ports.registry.clone(), self.roster.config.holder.clone());
        self.answers.push(Box::pin(async move {
            let result = timeout(REGISTRY_PATIENCE, registry.release(&holder, &leases)).await;
            Answer::Released(leases, result.unwrap_or_else(|_| Err(late())))
        }));
    }

    fn take_in(&mut self, answer: Answer) {
        match answer {
            Answer::Listed(began, result) => self.take_listed(began, result),
            Answer::Claimed(began, channels, result) => self.take_claimed(began, channels, result),
            Answer::Renewed(began, leases, result) => {
                self.renewing = false;
                self.renew_stamp.tick();
                match result {
                    Ok(renewal) => {
                        self.registry_is_back();
                        self.members.renewed(began, &leases, &renewal.lost);
                    }
                    Err(error) => {
                        self.registry_is_away(&error);
                        self.renew_from = self.boottime() + LOOK;
                    }
                }
            }
            Answer::Released(leases, result) => {
                self.releasing = false;
                if let Err(error) = result {
                    tracing::warn!(%error, leases = leases.len(), "leases were not given back: they end by themselves");
                }
                let now = self.boottime();
                for lease in leases {
                    let Resource::Channel(channel) = lease.resource else { continue };
                    match self.members.get(channel) {
                        Some(member) if member.wanted => member.phase = Phase::Unheld { retry_at: now },
                        _ => self.members.remove(channel),
                    }
                }
            }
        }
    }

    fn take_listed(&mut self, began: Duration, result: Result<Vec<Arc<ChannelSpec>>, DirectoryError>) {
        self.listing = false;
        self.reconcile_stamp.tick();
        if self.drained.is_some() || self.listing_is_stale {
            return;
        }
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                if !std::mem::replace(&mut self.directory_away, true) {
                    tracing::warn!(%error, "the directory does not answer: what runs goes on");
                }
                let soon = if self.listed { self.roster.config.reconcile_every } else { LOOK };
                self.list_at = self.list_at.min(Instant::now() + soon);
                return;
            }
        };
        if std::mem::take(&mut self.directory_away) {
            tracing::info!("the directory answers again");
        }
        let change = self.wanted.accept(answer, self.roster.config.shard);
        if change.held_back > 0 {
            let held_back = change.held_back;
            tracing::warn!(held_back, "the directory has forgotten most channels: they run until it says so twice");
            self.list_now();
        }
        for channel in change.stop {
            self.unsupported.remove(&channel);
            self.members.stop(channel);
        }
        for spec in change.start.into_iter().chain(change.update) {
            self.want(spec);
        }
        let mut disabled = self.wanted.disabled().clone();
        disabled.extend(&self.unsupported);
        *self.roster.book.disabled.write().expect("disabled") = disabled;
        self.roster.book.answered(began);
        self.listed = true;
        self.see_whether_ready();
    }

    fn want(&mut self, spec: Arc<ChannelSpec>) {
        let (now, now_ms) = (self.boottime(), self.wall_ms());
        if let Some(member) = self.members.get(spec.id) {
            if member.platform.kind() == spec.platform {
                member.wanted = true;
                self.members.update(spec);
            } else {
                // It closes as what it was; a later answer starts it as what it is now.
                self.wanted.forget(spec.id);
                self.members.stop(spec.id);
            }
            return;
        }
        match self.roster.platforms.get(&spec.platform) {
            Some(platform) => {
                self.unsupported.remove(&spec.id);
                let post = Arc::new(Post::new(spec, self.roster.ports.metrics.clone(), now_ms));
                self.members.add(post, platform.clone(), now);
            }
            None => {
                tracing::warn!(channel = %spec.id, platform = %spec.platform, "this build does not know the platform");
                self.unsupported.insert(spec.id);
            }
        }
    }

    fn take_claimed(&mut self, began: Duration, channels: Vec<ChannelId>, result: Result<Vec<Claim>, RegistryError>) {
        self.claiming = false;
        let (now, now_ms) = (self.boottime(), self.wall_ms());
        let claims = match result {
            Ok(claims) if claims.len() == channels.len() => {
                self.registry_is_back();
                claims
            }
            other => {
                let odd = RegistryError::Unavailable("it did not answer each claim".into());
                let error = other.err().unwrap_or(odd);
                self.registry_is_away(&error);
                self.claims_from = now + CLAIM_AGAIN;
                Vec::new()
            }
        };
        let mut claims = claims.into_iter();
        for channel in channels {
            let claim = claims.next();
            let Some(member) = self.members.get(channel) else { continue };
            member.answered |= claim.is_some();
            match claim {
                Some(Claim::Held(lease)) if member.wanted && self.drained.is_none() => {
                    self.start(channel, lease, began);
                }
                Some(Claim::Held(lease)) => {
                    member.phase = Phase::Releasing;
                    self.to_release.push(lease);
                }
                _ if !member.wanted => self.members.remove(channel),
                Some(Claim::Taken { by, remaining }) => {
                    let retry_at = now + remaining.min(LEASE) + Duration::from_millis(50);
                    member.wait(retry_at, format!("held by {by}"), now_ms);
                }
                None => member.wait(now + CLAIM_AGAIN, "waiting for its lease".into(), now_ms),
            }
        }
        self.see_whether_ready();
    }

    fn start(&mut self, channel: ChannelId, lease: Lease, began: Duration) {
        let hold = Arc::new(Hold::new(channel, lease, began, self.roster.ports.clock.clone()));
        let cold = self.roster.config.cold_start && !*self.roster.ready.borrow();
        let jitter = self.roster.config.ramp.jitter.mul_f64(rand::random());
        let delay = if cold { jitter } else { Duration::ZERO };
        let Some(member) = self.members.get(channel) else { return };
        let env = self.roster.env.clone();
        let (actor, ear) = Actor::new(env, member.platform.clone(), member.post.clone(), hold.clone());
        member.phase = Phase::Running { hold: hold.clone(), actor: ear };
        let id = self.actors.spawn(actor.run(delay)).id();
        self.actor_of.insert(id, channel);
        self.members.set_hold(channel, Some(hold));
    }

    fn actor_ended(&mut self, ended: Result<(Id, ChannelId), JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let (now, now_ms) = (self.boottime(), self.wall_ms());
        let Some(channel) = self.actor_of.remove(&id) else { return };
        if ended.is_err() {
            tracing::error!(%channel, "a channel's task panicked: it is started anew");
        }
        self.members.set_hold(channel, None);
        let Some(member) = self.members.get(channel) else { return };
        let Phase::Running { hold, .. } = &member.phase else { return };
        let (lost, lease) = (hold.is_lost(), hold.lease());
        hold.lose();
        match (member.wanted, lost) {
            (true, _) => member.wait(now + AFTER_LOSS, "its lease was lost".into(), now_ms),
            (false, true) => self.members.remove(channel),
            (false, false) => {
                member.phase = Phase::Releasing;
                self.to_release.push(lease);
            }
        }
    }

    fn request(&mut self, request: Request) {
        let now = self.boottime();
        match request {
            Request::Reconcile => self.list_now(),
            Request::Kick(channel) => match self.members.get(channel) {
                Some(member) if member.wanted => {
                    member.tell(Command::Kick);
                    if let Phase::Unheld { retry_at } = &mut member.phase {
                        *retry_at = now;
                    }
                }
                _ => self.list_now(),
            },
            Request::Restart(channel) => {
                if let Some(member) = self.members.get(channel) {
                    member.tell(Command::Restart { changed: false });
                }
            }
            Request::AwaitStopped(channel, stopped) => {
                self.wanted.disable(channel);
                self.roster.book.disabled.write().expect("disabled").insert(channel);
                self.listing_is_stale = self.listing;
                self.list_now();
                match self.members.get(channel) {
                    Some(member) => {
                        member.waiters.push(stopped);
                        self.members.stop(channel);
                    }
                    None => {
                        // Who doesn't wait any more needn't know.
                        let _ = stopped.send(());
                    }
                }
            }
            Request::Drain(drained) => {
                self.drained.get_or_insert_default().push(drained);
                self.members.stop_all();
            }
        }
    }

    fn see_whether_ready(&mut self) {
        if self.listed && !*self.roster.ready.borrow() && self.members.all_answered() {
            self.roster.ready.send_replace(true);
            tracing::info!("the first claim pass is done");
        }
    }

    fn registry_is_away(&mut self, error: &RegistryError) {
        if !std::mem::replace(&mut self.registry_away, true) {
            tracing::warn!(%error, "the registry does not answer: what can be proven goes on, nothing is claimed");
        }
    }

    fn registry_is_back(&mut self) {
        if std::mem::take(&mut self.registry_away) {
            tracing::info!("the registry answers again");
        }
    }
}

fn late() -> RegistryError {
    RegistryError::Unavailable("no answer in time".into())
}
