//! The policy: (state, event, now) to (state, actions). No clock, no process, no socket.

pub mod group;

mod check_in;
mod drain;
pub(crate) mod listen;
mod memory;
mod restart;
pub(crate) mod rolling;
pub(crate) mod steer;

use std::{mem, time::Duration};

use crate::{
    action::{Action, Event, Heard, News},
    state::State,
};

impl State {
    /// Something happened at `now` (CLOCK_BOOTTIME). What comes back is to be done in order; an [`Action::Spawn`] is
    /// answered before any other event.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        self.advance_clock(now);
        match event {
            Event::Start => self.start(),
            Event::Spawned { slot, pid, incarnation } => self.spawned(slot, pid, incarnation),
            Event::SpawnFailed { slot } => self.spawn_failed(slot),
            Event::Exited { pid, exit, oom } => self.exited(pid, exit, oom),
            Event::Heard { slot, heard } => self.heard(slot, heard),
            Event::LinkClosed { slot } => self.link_closed(slot),
            Event::Memory { slot, rss } => self.memory(slot, rss),
            Event::Roll => self.request_roll(),
            Event::Stop => self.request_stop(),
            Event::Tick => self.tick(),
        }
        self.settle();
        mem::take(&mut self.actions)
    }

    fn start(&mut self) {
        for slot in self.indices() {
            self.spawn(slot);
        }
    }

    fn heard(&mut self, slot: u32, heard: Heard) {
        if self.life(slot).is_none() {
            return;
        }
        self.note_sign_of_life(slot);
        match heard {
            Heard::Alive => {}
            Heard::Listen => self.wants_to_listen(slot),
            Heard::Listening => self.listens(slot),
            Heard::Ready => self.is_ready(slot),
            Heard::NotReady(reason) => self.is_not_ready(slot, reason, false),
            Heard::Waiting(reason) => self.is_not_ready(slot, reason, true),
            Heard::CheckIn { stalled } => self.checked_in(slot, stalled),
            Heard::Steered { id } => self.steered(slot, id),
            Heard::LeftGroup => self.left_group(slot),
            Heard::Drained => self.drained(slot),
        }
    }

    fn tick(&mut self) {
        self.last_tick = self.now();
        for slot in self.indices() {
            self.watch_life(slot);
            self.watch_leaving(slot);
            self.restart_if_due(slot);
        }
        self.watch_grant();
        self.watch_steering();
    }

    /// What follows from the state, whichever event led to it.
    fn settle(&mut self) {
        if self.finished {
            return;
        }
        self.advance_grant();
        if self.stopping.is_none() {
            self.advance_roll();
            self.advance_steering();
        }
        self.advance_leaving();
        self.announce_ready();
        self.show_phases();
        self.finish_if_over();
    }

    /// First boot is over when each slot serves, or is written off while another one serves: a broken shard must not
    /// keep a healthy one from being announced, nor have the service manager end both.
    fn announce_ready(&mut self) {
        let settled = self.slots.iter().all(|slot| slot.serves() || slot.written_off());
        let some = self.slots.iter().any(|slot| slot.serves());
        if !self.announced && self.stopping.is_none() && settled && some {
            self.announced = true;
            self.tell(News::Ready);
        }
    }
}
