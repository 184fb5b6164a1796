//! Leaving in good order: one shard for a roll, or all of them for the end.

use std::time::Duration;

use crate::{
    action::{Action, News},
    exit_status::ExitReason,
    state::{Condition, Leaving, LeavingStage, State, Stopping},
};

impl State {
    /// Asks one shard to leave: connections are steered to the others first, then it is told.
    pub(crate) fn leave(&mut self, slot: u32, why: ExitReason) {
        let until = self.now() + self.policy.steer;
        if let Some(life) = self.life_mut(slot) {
            life.leaving.get_or_insert(Leaving { why, stage: LeavingStage::Steering { until } });
        }
    }

    /// Tells those for whom the way is clear.
    pub(crate) fn advance_leaving(&mut self) {
        let (now, stopping) = (self.now(), self.stopping.is_some());
        for slot in self.indices() {
            let Some(leaving) = self.life(slot).and_then(|life| life.leaving) else { continue };
            let LeavingStage::Steering { until } = leaving.stage else { continue };
            if !stopping && !self.others_settled(slot) {
                // Another one fell while connections were being steered: this one is needed.
                self.stay(slot);
                continue;
            }
            if stopping || now >= until || self.steering_settled() {
                self.tell_to_drain(slot, now + self.policy.drain);
            }
        }
    }

    fn stay(&mut self, slot: u32) {
        if let Some(life) = self.life_mut(slot) {
            life.leaving = None;
        }
        self.roll_postponed(slot);
    }

    fn tell_to_drain(&mut self, slot: u32, deadline: Duration) {
        let (mark, skew) = (self.group.mark(), self.clock.skew);
        let deadline = self.stopping.map_or(deadline, |stopping| stopping.deadline.min(deadline));
        if let Some(leaving) = self.life_mut(slot).and_then(|life| life.leaving.as_mut()) {
            leaving.stage = LeavingStage::Told { deadline, mark };
            self.act(Action::Drain { slot, deadline: deadline + skew });
        }
    }

    /// It has nothing left to do: it needs no long deadline any more.
    pub(crate) fn drained(&mut self, slot: u32) {
        let soon = self.now() + self.policy.drained;
        if let Some(Leaving { stage: LeavingStage::Told { deadline, .. }, .. }) =
            self.life_mut(slot).and_then(|life| life.leaving.as_mut())
        {
            *deadline = (*deadline).min(soon);
        }
    }

    pub(crate) fn watch_leaving(&mut self, slot: u32) {
        let now = self.now();
        let leaving = self.life(slot).and_then(|life| life.leaving);
        if let Some(Leaving { stage: LeavingStage::Told { deadline, .. }, .. }) = leaving
            && now >= deadline
        {
            self.kill(slot);
        }
    }

    pub(crate) fn request_stop(&mut self) {
        match self.stopping {
            None => self.stop(0),
            Some(_) => {
                for slot in self.indices() {
                    self.kill(slot);
                }
            }
        }
    }

    /// Ends everything, and then with this status.
    pub(crate) fn stop(&mut self, code: u8) {
        if self.stopping.is_some() {
            return;
        }
        let deadline = self.now() + self.policy.drain;
        self.stopping = Some(Stopping { code, deadline });
        self.tell(News::Stopping { code });
        self.roll_stopped();
        for slot in self.indices() {
            match &mut self.slot_mut(slot).condition {
                Condition::Alive(life) => match &mut life.leaving {
                    Some(Leaving { stage: LeavingStage::Told { deadline: own, .. }, why }) => {
                        *own = deadline.min(*own);
                        *why = ExitReason::Stop;
                    }
                    other => {
                        let stage = LeavingStage::Steering { until: Duration::ZERO };
                        *other = Some(Leaving { why: ExitReason::Stop, stage });
                    }
                },
                // Its answer is on the way: it is asked to leave as soon as it is there.
                Condition::Spawning => {}
                condition => *condition = Condition::Stopped,
            }
        }
    }

    pub(crate) fn finish_if_over(&mut self) {
        let Some(stopping) = self.stopping else { return };
        for slot in self.indices() {
            // Born while the end began.
            if self.life(slot).is_some_and(|life| life.leaving.is_none()) {
                self.leave(slot, ExitReason::Stop);
                self.advance_leaving();
            }
        }
        let gone = |slot: &crate::state::Slot| matches!(slot.condition, Condition::Stopped);
        if self.slots.iter().all(gone) {
            self.finished = true;
            self.act(Action::Exit { code: stopping.code });
        }
    }
}
