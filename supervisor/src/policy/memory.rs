//! A shard above its memory limit is replaced in good order, one at a time, before the kernel chooses whom to kill.
//!
//! Only a life that has been stable is replaced: a limit that is too low for the work must not keep a shard from doing it.

use crate::{exit_status::ExitReason, state::State};

impl State {
    pub(crate) fn memory(&mut self, slot: u32, rss: u64) {
        let Some(limit) = self.policy.memory else { return };
        let (now, stable) = (self.now(), self.policy.backoff.stable);
        let Some(life) = self.life_mut(slot) else { return };
        life.over_limit = if rss > limit.bytes { life.over_limit.saturating_add(1) } else { 0 };
        let ran_well = life.serves() && life.ready.is_some_and(|ready| now >= ready + stable);
        let due = ran_well && life.over_limit >= limit.samples;
        if due && self.others_settled(slot) && self.roll.is_none() && self.stopping.is_none() {
            self.leave(slot, ExitReason::Memory);
        }
    }
}
