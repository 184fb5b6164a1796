//! Is a shard alive, and does it get on? Two clocks: frames (is anything there at all) and good check-ins (do all loops
//! move). The first steers connections away, the second ends the shard before its lease could be taken from it.

use std::time::Duration;

use crate::{
    action::{Action, Deadly},
    exit_status::ExitReason,
    state::{Doomed, State},
};

impl State {
    pub(crate) fn note_sign_of_life(&mut self, slot: u32) {
        let now = self.now();
        if let Some(life) = self.life_mut(slot) {
            life.heard = Some(now);
            life.silent = false;
        }
    }

    pub(crate) fn checked_in(&mut self, slot: u32, stalled: Vec<String>) {
        let now = self.now();
        let Some(life) = self.life_mut(slot) else { return };
        if stalled.is_empty() || life.well.is_none() {
            life.well = Some(now);
        }
        life.stalled = stalled;
    }

    pub(crate) fn is_ready(&mut self, slot: u32) {
        let now = self.now();
        let Some(life) = self.life_mut(slot) else { return };
        life.ready.get_or_insert(now);
        life.well.get_or_insert(now);
        life.not_ready = None;
        life.waiting = false;
        self.ever_ready = true;
        self.slot_mut(slot).boot_failures = 0;
    }

    pub(crate) fn is_not_ready(&mut self, slot: u32, reason: String, waiting: bool) {
        let now = self.now();
        if let Some(life) = self.life_mut(slot) {
            life.not_ready = Some(reason);
            if std::mem::replace(&mut life.waiting, waiting) && !waiting {
                life.booting = now;
            }
        }
    }

    pub(crate) fn link_closed(&mut self, slot: u32) {
        let now = self.now();
        if let Some(life) = self.life_mut(slot) {
            // A dying child's link closes a moment before it can be reaped: this alone is no reason to end anybody.
            life.link_closed.get_or_insert(now);
        }
    }

    pub(crate) fn watch_life(&mut self, slot: u32) {
        let (now, policy) = (self.now(), self.policy.clone());
        let stopping = self.stopping.is_some();
        let Some(life) = self.life_mut(slot) else { return };
        if let Some(doomed) = life.doomed {
            if now >= doomed.aborted + policy.abort_grace {
                self.kill(slot);
            }
            return;
        }
        let past = |since: Option<Duration>, limit: Duration| since.is_some_and(|since| now >= since + limit);
        let checks_in = life.well.and(life.heard);
        if past(checks_in, policy.silent) || past(life.link_closed, policy.silent) {
            life.silent = true;
        }
        let unlinked = life.leaving.is_none() && past(life.link_closed, policy.silent);
        let mute = past(checks_in, policy.hang);
        // Loops end while a shard drains: then only a shard that says nothing at all is hung.
        let stuck = life.leaving.is_none() && past(life.well, policy.hang);
        let boots = life.ready.is_none() && life.leaving.is_none() && !life.waiting;
        let late = boots && now >= life.booting + policy.boot;
        let stable = past(life.ready, policy.backoff.stable);
        if mute || stuck || unlinked {
            self.doom(slot, ExitReason::Hang);
        } else if late && !stopping {
            self.doom(slot, ExitReason::BootTimeout);
        } else if stable {
            self.is_stable(slot);
        }
    }

    /// SIGABRT now, SIGKILL when the grace is over.
    fn doom(&mut self, slot: u32, why: ExitReason) {
        let now = self.now();
        let Some(life) = self.life_mut(slot) else { return };
        if life.killed || life.doomed.is_some() {
            return;
        }
        life.doomed = Some(Doomed { why, aborted: now });
        let pid = life.pid;
        self.act(Action::Kill { slot, pid, signal: Deadly::Abort });
    }

    /// SIGKILL, once.
    pub(crate) fn kill(&mut self, slot: u32) {
        let Some(life) = self.life_mut(slot) else { return };
        if !std::mem::replace(&mut life.killed, true) {
            let pid = life.pid;
            self.act(Action::Kill { slot, pid, signal: Deadly::Kill });
        }
    }
}
