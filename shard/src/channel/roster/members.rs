//! The channels that a roster runs, claims or closes, and the page of each in the book that others read.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::sync::{mpsc::UnboundedSender, oneshot};

use super::handle::{Book, Page};
use crate::{
    channel::{State, actor::Command, hold::Hold, post::Post},
    directory::ChannelSpec,
    identity::ChannelId,
    platform::{Platform, PlatformKind},
    registry::{Lease, Resource},
};

/// Where a member is between being wanted and being gone.
pub(super) enum Phase {
    /// It has no lease; one is claimed from then on (time since boot).
    Unheld {
        /// When.
        retry_at: Duration,
    },
    /// Its claim is under way.
    Claiming,
    /// Its actor lives; when it is no longer wanted, the actor has been told so.
    Running {
        /// Its lease.
        hold: Arc<Hold>,
        /// Its actor's ear.
        actor: UnboundedSender<Command>,
    },
    /// Its actor has ended, and the lease is on its way back.
    Releasing,
}

pub(super) struct Member {
    pub(super) post: Arc<Post>,
    pub(super) platform: Arc<dyn Platform>,
    pub(super) phase: Phase,
    pub(super) wanted: bool,
    /// Whether a claim of it has ever been answered.
    pub(super) answered: bool,
    /// Who wants to know when it has come to rest.
    pub(super) waiters: Vec<oneshot::Sender<()>>,
}

pub(super) struct Members {
    all: HashMap<ChannelId, Member>,
    book: Arc<Book>,
}

impl Members {
    pub(super) fn new(book: Arc<Book>) -> Self {
        Self { all: HashMap::new(), book }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn get(&mut self, channel: ChannelId) -> Option<&mut Member> {
        self.all.get_mut(&channel)
    }

    pub(super) fn add(&mut self, post: Arc<Post>, platform: Arc<dyn Platform>, retry_at: Duration) {
        let spec = post.spec();
        let page = Page { platform: platform.clone(), post: post.clone(), hold: None, sender: platform.sender(&spec) };
        let phase = Phase::Unheld { retry_at };
        let member = Member { post, platform, phase, wanted: true, answered: false, waiters: Vec::new() };
        self.book.pages.write().expect("pages").insert(spec.id, page);
        self.all.insert(spec.id, member);
        self.book.tell_of(spec.id);
    }

    /// New settings. A member whose token changed connects anew.
    pub(super) fn update(&mut self, spec: Arc<ChannelSpec>) {
        let Some(member) = self.all.get_mut(&spec.id) else { return };
        let before = member.post.spec();
        member.post.set_spec(spec.clone());
        self.book.tell_of(spec.id);
        if before.token == spec.token {
            return;
        }
        if let Some(page) = self.book.pages.write().expect("pages").get_mut(&spec.id) {
            page.sender = member.platform.sender(&spec);
        }
        member.tell(Command::Restart { changed: true });
    }

    /// The member's lease is there, or gone.
    pub(super) fn set_hold(&mut self, channel: ChannelId, hold: Option<Arc<Hold>>) {
        if let Some(page) = self.book.pages.write().expect("pages").get_mut(&channel) {
            page.hold = hold;
        }
        self.book.tell_of(channel);
    }

    /// Begins to close a member. One that holds nothing is gone at once; one whose claim is under way is seen to when
    /// that is answered.
    pub(super) fn stop(&mut self, channel: ChannelId) {
        self.set_hold(channel, None);
        let Some(member) = self.all.get_mut(&channel) else { return };
        member.wanted = false;
        member.tell(Command::Stop);
        if matches!(member.phase, Phase::Unheld { .. }) {
            self.remove(channel);
        }
    }

    /// Begins to close all.
    pub(super) fn stop_all(&mut self) {
        for channel in self.all.keys().copied().collect::<Vec<_>>() {
            self.stop(channel);
        }
    }

    pub(super) fn remove(&mut self, channel: ChannelId) {
        self.book.pages.write().expect("pages").remove(&channel);
        self.book.tell_of(channel);
        if let Some(member) = self.all.remove(&channel) {
            for waiter in member.waiters {
                // Who doesn't wait any more needn't know.
                let _ = waiter.send(());
            }
        }
    }

    /// Members that are due to be claimed, at most so many; they count as claiming from now on.
    pub(super) fn take_due(&mut self, now: Duration, limit: usize) -> Vec<ChannelId> {
        let due = |member: &Member| matches!(member.phase, Phase::Unheld { retry_at } if retry_at <= now);
        let mut taken = Vec::new();
        for (channel, member) in self.all.iter_mut().filter(|(_, member)| due(member)).take(limit) {
            member.phase = Phase::Claiming;
            taken.push(*channel);
        }
        taken
    }

    /// What is held.
    pub(super) fn leases(&self) -> Vec<Lease> {
        self.holds().filter(|hold| !hold.is_lost()).map(|hold| hold.lease()).collect()
    }

    /// A renewal that began then was answered: what it didn't name as lost is proven anew.
    pub(super) fn renewed(&self, began: Duration, asked: &[Lease], lost: &[Lease]) {
        for lease in asked {
            let Resource::Channel(channel) = lease.resource else { continue };
            let Some(Member { phase: Phase::Running { hold, .. }, .. }) = self.all.get(&channel) else { continue };
            if hold.lease() != *lease {
                continue;
            }
            if lost.contains(lease) {
                tracing::warn!(%channel, token = lease.token, "lease lost: the channel is closed");
                hold.lose();
            } else {
                hold.prove(began);
            }
        }
    }

    /// Closes all that can't be proven to be ours any longer; how many.
    pub(super) fn fence(&self) -> usize {
        let unproven = self.holds().filter(|hold| !hold.is_lost() && !hold.is_proven());
        unproven.map(|hold| hold.lose()).count()
    }

    /// For how long the quietest connected member has heard nothing, in milliseconds, for each network that has members.
    pub(super) fn silence(&self, now_ms: i64) -> HashMap<PlatformKind, i64> {
        let mut longest = HashMap::new();
        for member in self.all.values() {
            let silent = match member.post.heard_ms() {
                Some(heard) if member.post.standing().state == State::Connected => now_ms - heard,
                _ => 0,
            };
            let most = longest.entry(member.platform.kind()).or_insert(0);
            *most = silent.max(*most);
        }
        longest
    }

    /// Whether each wanted member's claim has been answered at least once.
    pub(super) fn all_answered(&self) -> bool {
        self.all.values().all(|member| member.answered || !member.wanted)
    }

    fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.all.values().filter_map(|member| match &member.phase {
            Phase::Running { hold, .. } => Some(hold),
            _ => None,
        })
    }
}

impl Member {
    pub(super) fn tell(&self, command: Command) {
        if let Phase::Running { actor, .. } = &self.phase {
            // An actor that has just ended is about to be noticed.
            let _ = actor.send(command);
        }
    }

    /// It waits for its lease, from `retry_at` on.
    pub(super) fn wait(&mut self, retry_at: Duration, reason: String, now_ms: i64) {
        self.phase = Phase::Unheld { retry_at };
        self.post.stand(State::Connecting, Some(reason), now_ms);
    }
}
