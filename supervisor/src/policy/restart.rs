//! From a death to the next life: at once after a stable run, later each time otherwise, slowly past the intensity,
//! and not at all for a configuration that is wrong.

use crate::{
    action::News,
    exit_status::{self, Exit, ExitReason},
    state::{Condition, Life, State},
    status::LastExit,
};

impl State {
    pub(crate) fn spawned(&mut self, slot: u32, pid: i32, incarnation: u64) {
        let (now, generation) = (self.now(), self.generation);
        let slot_state = self.slot_mut(slot);
        slot_state.incarnation = incarnation;
        slot_state.lives += 1;
        slot_state.condition = Condition::Alive(Box::new(Life::new(pid, incarnation, generation, now)));
    }

    pub(crate) fn spawn_failed(&mut self, slot: u32) {
        let incarnation = self.slot(slot).incarnation;
        self.ended(slot, incarnation, Exit::NotStarted, ExitReason::Spawn, None);
    }

    pub(crate) fn exited(&mut self, pid: i32, exit: Exit, oom: bool) {
        let is_it = |slot: &u32| self.life(*slot).is_some_and(|life| life.pid == pid);
        let Some(slot) = self.indices().find(is_it) else { return };
        let slot_state = self.slot_mut(slot);
        let Condition::Alive(life) = std::mem::replace(&mut slot_state.condition, Condition::Stopped) else { return };
        let ended_by = life.doomed.map(|doomed| doomed.why).or(life.leaving.map(|leaving| leaving.why));
        let reason = ExitReason::of(exit, oom, ended_by, life.doomed.is_none());
        self.out_of_group(slot, &life);
        self.ended(slot, life.incarnation, exit, reason, Some(*life));
    }

    fn ended(&mut self, slot: u32, incarnation: u64, exit: Exit, reason: ExitReason, life: Option<Life>) {
        let (now, skew) = (self.now(), self.clock.skew);
        self.tell(News::Lost { slot, incarnation, reason, exit });
        self.slot_mut(slot).last_exit = Some(LastExit { incarnation, reason, exit, at: now + skew });
        self.slot_mut(slot).condition = Condition::Stopped;
        if self.stopping.is_some() {
            return;
        }
        let was_ready = life.as_ref().is_some_and(|life| life.ready.is_some());
        if life.as_ref().is_some_and(|life| life.leaving.is_some()) {
            // The primary wanted it gone: that is no death of the slot's own.
            return self.spawn(slot);
        }
        self.roll_lost(slot, reason, was_ready);
        if reason == ExitReason::Config {
            if self.ever_ready {
                self.slot_mut(slot).condition = Condition::Config;
            } else {
                self.stop(exit_status::CONFIG);
            }
            return;
        }
        self.restart(slot, reason, life);
    }

    fn restart(&mut self, slot: u32, reason: ExitReason, life: Option<Life>) {
        let (now, unit, policy) = (self.now(), self.unit(), self.policy.clone());
        let ready = life.and_then(|life| life.ready);
        if ready.is_some_and(|ready| now >= ready + policy.backoff.stable) {
            self.is_stable(slot);
        }
        let state = self.slot_mut(slot);
        if ready.is_none() {
            state.boot_failures += 1;
        }
        let too_many = state.deaths.exceeded(&policy.intensity, now);
        // A child that takes its whole boot deadline to fail never falls often enough for the window.
        let never_up = state.boot_failures > policy.intensity.restarts;
        if too_many || never_up || state.slow {
            let news = !std::mem::replace(&mut state.slow, true);
            state.condition = Condition::Slow { until: now + policy.slow_retry.mul_f64(1.0 + 0.1 * unit), reason };
            if news {
                self.tell(News::GaveUp { slot, reason });
            }
            if !self.ever_ready && self.slots.iter().all(|slot| slot.slow) {
                self.stop(exit_status::GAVE_UP);
            }
            return;
        }
        let delay = policy.backoff.delay(state.failures, unit);
        state.failures += 1;
        // A failed spawn would fail again in the same breath: it waits for the next tick even the first time.
        if delay.is_zero() && reason != ExitReason::Spawn {
            self.spawn(slot);
        } else {
            state.condition = Condition::Backoff { until: now + delay, reason };
        }
    }

    /// It has run for long enough that its next death is a first one.
    pub(crate) fn is_stable(&mut self, slot: u32) {
        let state = self.slot_mut(slot);
        state.failures = 0;
        state.boot_failures = 0;
        if std::mem::take(&mut state.slow) {
            state.deaths.clear();
        }
    }

    pub(crate) fn restart_if_due(&mut self, slot: u32) {
        let now = self.now();
        if let Condition::Backoff { until, .. } | Condition::Slow { until, .. } = self.slot(slot).condition
            && now >= until
        {
            self.spawn(slot);
        }
    }
}
