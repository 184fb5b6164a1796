//! Who may join the group of listeners, one at a time, so that the order of joining is known.
//!
//! A shard that does not answer its permission is passed over: a bad shard never keeps a healthy one from listening.

use std::{collections::VecDeque, time::Duration};

use crate::{
    action::Action,
    policy::group::{Mark, Member},
    state::{LeavingStage, Life, State},
};

/// How long a process may take from closing its files to being reapable.
const EXITING: Duration = Duration::from_millis(300);

/// The queue before the port.
#[derive(Debug, Default)]
pub(crate) struct Listen {
    granted: Option<Granted>,
    waiting: VecDeque<Member>,
}

#[derive(Debug, Clone, Copy)]
struct Granted {
    member: Member,
    at: Duration,
    mark: Mark,
}

impl State {
    fn member(&self, slot: u32) -> Option<Member> {
        self.life(slot).map(|life| (slot, life.incarnation))
    }

    pub(crate) fn wants_to_listen(&mut self, slot: u32) {
        let Some(member) = self.member(slot) else { return };
        let known = self.listen.waiting.contains(&member)
            || self.listen.granted.is_some_and(|granted| granted.member == member)
            || self.group.members().contains(&member);
        if !known {
            self.listen.waiting.push_back(member);
        }
    }

    pub(crate) fn advance_grant(&mut self) {
        if self.listen.granted.is_some() || self.stopping.is_some() {
            return;
        }
        if let Some(member) = self.listen.waiting.pop_front() {
            self.listen.granted = Some(Granted { member, at: self.now(), mark: self.group.mark() });
            self.act(Action::Grant { slot: member.0 });
        }
    }

    pub(crate) fn listens(&mut self, slot: u32) {
        let (Some(member), now) = (self.member(slot), self.now()) else { return };
        let granted = self.listen.granted.filter(|granted| granted.member == member);
        if granted.is_some() {
            self.listen.granted = None;
        } else {
            // Too late, or unasked: it may have joined at any moment.
            self.group.may_join_unseen(member);
        }
        self.group.joined(member, granted.map(|granted| granted.mark).unwrap_or_default(), now);
    }

    pub(crate) fn watch_grant(&mut self) {
        if let Some(granted) = self.listen.granted
            && self.now() >= granted.at + self.policy.grant
        {
            self.listen.granted = None;
            self.group.may_join_unseen(granted.member);
        }
    }

    /// It says that it has closed its listener, after it was asked to.
    pub(crate) fn left_group(&mut self, slot: u32) {
        let (Some(member), now) = (self.member(slot), self.now()) else { return };
        let told = |life: &Life| match life.leaving.map(|leaving| leaving.stage) {
            Some(LeavingStage::Told { mark, .. }) => Some(mark),
            _ => None,
        };
        let mark = self.life(slot).and_then(told).unwrap_or_default();
        self.group.left(member, mark, now);
        self.group_changed();
    }

    /// It is dead: so is its listener.
    pub(crate) fn out_of_group(&mut self, slot: u32, life: &Life) {
        let (member, now) = ((slot, life.incarnation), self.now());
        self.listen.waiting.retain(|other| *other != member);
        if let Some(granted) = self.listen.granted
            && granted.member == member
        {
            self.listen.granted = None;
            self.group.may_have_passed(granted.mark);
        }
        // All that could be reaped at the last tick was: it has closed its files since, or a moment before.
        let mark = self.group.mark_at(self.last_tick.saturating_sub(EXITING));
        self.group.left(member, mark, now);
        self.steering_lost(slot);
        self.group_changed();
    }
}
