//! What the roster does with each answer that it was waiting for.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::{Id, JoinError},
    time::Instant,
};

use super::{
    members::Phase,
    run::{Answer, LOOK, Work},
};
use crate::{
    channel::{actor::Actor, hold::Hold, post::Post},
    directory::{ChannelSpec, DirectoryError},
    identity::ChannelId,
    registry::{Claim, LEASE, Lease, RegistryError, Resource},
};

/// How soon a claim is tried again that was not answered.
const CLAIM_AGAIN: Duration = Duration::from_secs(2);
/// How soon a directory is asked again that did not answer.
const LIST_AGAIN: Duration = Duration::from_secs(30);
/// How soon a lease is claimed again that was lost or fenced.
const AFTER_LOSS: Duration = Duration::from_secs(1);

impl Work {
    pub(super) fn take_in(&mut self, answer: Answer) {
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
        let fresh = result.is_ok();
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                if !std::mem::replace(&mut self.directory_away, true) {
                    tracing::warn!(%error, "the directory does not answer: what runs goes on");
                }
                let soon = if self.listed { self.roster.config.reconcile_every.min(LIST_AGAIN) } else { LOOK };
                self.list_at = self.list_at.min(Instant::now() + soon);
                let DirectoryError::Stale { last, .. } = error else { return };
                last
            }
        };
        if fresh {
            self.directory_answered = self.boottime();
            if std::mem::take(&mut self.directory_away) {
                tracing::info!("the directory answers again");
            }
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
        // What it said before can't tell that there is no such channel: who asked for one waits on.
        if fresh {
            self.roster.book.answered(began);
        }
        self.listed = true;
        self.see_whether_ready();
    }

    fn want(&mut self, spec: Arc<ChannelSpec>) {
        let (now, now_ms) = (self.boottime(), self.wall_ms());
        let platform = self.roster.platforms.get(&spec.platform).cloned();
        let left_alone = platform.as_ref().and_then(|platform| platform.holds(&spec).err());
        if let Some(member) = self.members.get(spec.id) {
            if member.platform.kind() == spec.platform && left_alone.is_none() {
                member.wanted = true;
                self.members.update(spec);
            } else {
                // It closes as what it was; a later answer starts it as what it is now.
                self.wanted.forget(spec.id);
                self.members.stop(spec.id);
            }
            return;
        }
        match (platform, left_alone) {
            (Some(_), Some(why)) => {
                if self.unsupported.insert(spec.id) {
                    tracing::info!(channel = %spec.id, platform = %spec.platform, why, "channel is not held");
                }
            }
            (Some(platform), None) => {
                self.unsupported.remove(&spec.id);
                let post = Arc::new(Post::new(spec, self.roster.ports.metrics.clone(), now_ms));
                self.members.add(post, platform, now);
            }
            (None, _) => {
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

    pub(super) fn actor_ended(&mut self, ended: Result<(Id, ChannelId), JoinError>) {
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
}
