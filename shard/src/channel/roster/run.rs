//! The roster's loop: what is due is begun, what is answered is taken in, what can't be proven is closed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::oneshot,
    task::{Id, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

use super::{
    Roster,
    handle::Request,
    members::{Members, Phase},
};
use crate::{
    channel::{actor::Command, wanted::Wanted},
    directory::{ChannelSpec, DirectoryError},
    identity::ChannelId,
    progress::Stamp,
    registry::{Claim, Lease, RENEW_EVERY, RegistryError, Renewal, Resource},
};

/// How often leases are looked at; well below what lies between self-fencing and a lease's end.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// So many leases are claimed in one call.
const CLAIM_MOST: usize = 500;
/// How long a registry may take to answer.
const REGISTRY_PATIENCE: Duration = Duration::from_secs(3);
/// How long a directory may take to answer.
const DIRECTORY_PATIENCE: Duration = Duration::from_secs(20);
/// The directory isn't asked more often than this, whoever wants to know.
const LIST_GAP: Duration = Duration::from_millis(100);

/// What was answered, by whom.
pub(super) enum Answer {
    Listed(Duration, Result<Vec<Arc<ChannelSpec>>, DirectoryError>),
    Claimed(Duration, Vec<ChannelId>, Result<Vec<Claim>, RegistryError>),
    Renewed(Duration, Vec<Lease>, Result<Renewal, RegistryError>),
    Released(Vec<Lease>, Result<(), RegistryError>),
}

pub(super) struct Work {
    pub(super) roster: Roster,
    pub(super) members: Members,
    pub(super) wanted: Wanted,
    pub(super) unsupported: BTreeSet<ChannelId>,
    pub(super) answers: FuturesUnordered<BoxFuture<'static, Answer>>,
    pub(super) actors: JoinSet<ChannelId>,
    pub(super) actor_of: HashMap<Id, ChannelId>,
    pub(super) to_release: Vec<Lease>,
    /// When the directory is asked next.
    pub(super) list_at: Instant,
    pub(super) list_began: Instant,
    pub(super) listing: bool,
    /// The answer under way is older than what we know by now.
    pub(super) listing_is_stale: bool,
    pub(super) listed: bool,
    pub(super) claiming: bool,
    pub(super) claims_from: Duration,
    pub(super) renewing: bool,
    pub(super) renew_from: Duration,
    pub(super) releasing: bool,
    pub(super) registry_away: bool,
    pub(super) directory_away: bool,
    /// When the directory last gave a good answer, or when the roster began.
    pub(super) directory_answered: Duration,
    pub(super) drained: Option<Vec<oneshot::Sender<()>>>,
    pub(super) reconcile_stamp: Stamp,
    pub(super) renew_stamp: Stamp,
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
            directory_answered: self.ports.clock.boottime(),
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
    pub(super) fn boottime(&self) -> Duration {
        self.roster.ports.clock.boottime()
    }

    pub(super) fn wall_ms(&self) -> i64 {
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
        let age = self.boottime().saturating_sub(self.directory_answered);
        self.roster.ports.metrics.directory_age.set(age.as_secs() as i64);
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
    pub(super) fn list_now(&mut self) {
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

    pub(super) fn see_whether_ready(&mut self) {
        if self.listed && !*self.roster.ready.borrow() && self.members.all_answered() {
            self.roster.ready.send_replace(true);
            tracing::info!("the first claim pass is done");
        }
    }

    pub(super) fn registry_is_away(&mut self, error: &RegistryError) {
        if !std::mem::replace(&mut self.registry_away, true) {
            tracing::warn!(%error, "the registry does not answer: what can be proven goes on, nothing is claimed");
        }
    }

    pub(super) fn registry_is_back(&mut self) {
        if std::mem::take(&mut self.registry_away) {
            tracing::info!("the registry answers again");
        }
    }
}

fn late() -> RegistryError {
    RegistryError::Unavailable("no answer in time".into())
}
