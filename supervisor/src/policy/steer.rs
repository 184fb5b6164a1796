//! Keeping new connections away from a shard that is silent or about to leave: a program in the kernel, attached by any
//! living member of the group and shared by all of them.

use std::time::Duration;

use crate::{
    action::Action,
    policy::group::Plan,
    state::{Life, State},
};

/// What the kernel does now, and what it was asked to do.
#[derive(Debug)]
pub(crate) struct Steering {
    in_force: InForce,
    asked: Option<Asked>,
    /// Who did not answer last; somebody else is asked, if there is anybody.
    spare: Option<u32>,
    next_id: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum InForce {
    Known(Option<Plan>),
    /// It was asked for and not confirmed.
    Unknown,
}

#[derive(Debug)]
struct Asked {
    slot: u32,
    id: u64,
    at: Duration,
    plan: Option<Plan>,
}

impl Default for Steering {
    fn default() -> Self {
        Self { in_force: InForce::Known(None), asked: None, spare: None, next_id: 1 }
    }
}

impl State {
    fn takes_connections(&self, slot: u32, incarnation: u64) -> bool {
        self.life(slot).is_some_and(|life| life.incarnation == incarnation && life.takes_connections())
    }

    fn wanted_plan(&self) -> Option<Plan> {
        self.group.plan(|(slot, incarnation)| self.takes_connections(slot, incarnation))
    }

    /// The kernel does what it should.
    pub(crate) fn steering_settled(&self) -> bool {
        self.steering.asked.is_none() && self.steering.in_force == InForce::Known(self.wanted_plan())
    }

    pub(crate) fn advance_steering(&mut self) {
        if self.steering.asked.is_some() || self.steering_settled() {
            return;
        }
        let mut able: Vec<u32> = self
            .group
            .members()
            .iter()
            .filter(|(slot, incarnation)| self.takes_connections(*slot, *incarnation))
            .map(|(slot, _)| *slot)
            .collect();
        able.sort_by_key(|slot| (self.steering.spare == Some(*slot), *slot));
        let Some(slot) = able.first().copied() else { return };
        let (id, plan) = (self.steering.next_id, self.wanted_plan());
        self.steering.next_id += 1;
        self.steering.asked = Some(Asked { slot, id, at: self.now(), plan: plan.clone() });
        self.act(Action::Steer { slot, id, plan });
    }

    pub(crate) fn steered(&mut self, slot: u32, id: u64) {
        if self.steering.asked.as_ref().is_some_and(|asked| asked.slot == slot && asked.id == id)
            && let Some(asked) = self.steering.asked.take()
        {
            self.steering.in_force = InForce::Known(asked.plan);
            self.steering.spare = None;
        }
    }

    pub(crate) fn watch_steering(&mut self) {
        let Some(asked) = &self.steering.asked else { return };
        let silent = self.life(asked.slot).is_none_or(|life: &Life| life.silent);
        if silent || self.now() >= asked.at + self.policy.steer {
            self.steering_lost(asked.slot);
        }
    }

    /// Who was asked cannot answer any more.
    pub(crate) fn steering_lost(&mut self, slot: u32) {
        if self.steering.asked.as_ref().is_some_and(|asked| asked.slot == slot) {
            self.steering.asked = None;
            self.steering.in_force = InForce::Unknown;
            self.steering.spare = Some(slot);
        }
    }

    /// The program goes with the last listener.
    pub(crate) fn group_changed(&mut self) {
        if self.group.members().is_empty() {
            self.steering.in_force = InForce::Known(None);
            self.steering.asked = None;
        }
    }
}
