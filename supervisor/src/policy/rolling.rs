//! The rolling restart: one slot after the other, the next only when the last one serves.
//!
//! Slots that are down go first: they have nothing to lose, and a new configuration that is bad is found out before a
//! healthy shard is touched.

use std::collections::VecDeque;

use crate::{
    action::News,
    exit_status::ExitReason,
    state::{Condition, Life, State},
};

/// A roll under way.
#[derive(Debug)]
pub(crate) struct Roll {
    id: u64,
    pending: VecDeque<u32>,
    current: Option<u32>,
}

impl State {
    pub(crate) fn request_roll(&mut self) {
        if self.stopping.is_some() {
            return self.tell(News::RollRefused);
        }
        if self.roll.is_some() {
            // However many ask meanwhile, one more roll after this one serves them all.
            self.roll_queued = true;
            let id = self.generation + 1;
            return self.tell(News::RollAccepted { id });
        }
        let id = self.generation + 1;
        self.tell(News::RollAccepted { id });
        self.begin_roll();
    }

    fn begin_roll(&mut self) {
        self.roll_queued = false;
        self.generation += 1;
        let (mut down, up): (Vec<u32>, Vec<u32>) = self.indices().partition(|slot| self.life(*slot).is_none());
        down.extend(up);
        self.roll = Some(Roll { id: self.generation, pending: down.into(), current: None });
        self.tell(News::RollStarted { id: self.generation });
    }

    pub(crate) fn advance_roll(&mut self) {
        while let Some(roll) = &mut self.roll {
            let (id, current, next) = (roll.id, roll.current, roll.pending.front().copied());
            let done = match (current, next) {
                // Between being asked to leave and serving again there is nothing to do but wait.
                (Some(slot), _) => self.rolled(slot) || self.gives_up_on(slot),
                (None, Some(slot)) => self.take_turn(slot, id),
                (None, None) => {
                    self.roll = None;
                    self.tell(News::RollDone { id });
                    if self.roll_queued {
                        self.begin_roll();
                    }
                    true
                }
            };
            if !done {
                return;
            }
            if let Some(roll) = &mut self.roll
                && current.is_some()
                && roll.current == current
            {
                roll.current = None;
            }
        }
    }

    /// A slot's turn begins, unless that would take a second one away.
    fn take_turn(&mut self, slot: u32, id: u64) -> bool {
        let fresh = self.life(slot).is_some_and(|life| life.generation == id);
        let old = self.life(slot).is_some() && !fresh;
        if old && !self.others_settled(slot) {
            return false;
        }
        if let Some(roll) = &mut self.roll {
            roll.pending.pop_front();
            roll.current = Some(slot);
        }
        if old {
            self.leave(slot, ExitReason::Roll);
        } else if !fresh && !matches!(self.slot(slot).condition, Condition::Spawning) {
            // An operator wants it tried: its past does not count.
            let state = self.slot_mut(slot);
            state.deaths.clear();
            state.boot_failures = 0;
            self.spawn(slot);
        }
        true
    }

    /// This slot served, fell, and is past its intensity before the roll could go on.
    fn gives_up_on(&mut self, slot: u32) -> bool {
        let reason = match self.slot(slot).condition {
            Condition::Slow { reason, .. } => reason,
            Condition::Config => ExitReason::Config,
            _ => return false,
        };
        self.roll_failed(slot, reason);
        true
    }

    /// This slot's new life serves.
    fn rolled(&self, slot: u32) -> bool {
        self.slot(slot).serves() && self.life(slot).is_some_and(|life| life.generation == self.generation)
    }

    /// No other slot is on its way up or down: a roll never takes a second one away. A shard that runs and says that it
    /// cannot serve just now waits for something that no restart brings, and is not waited for.
    pub(crate) fn others_settled(&self, slot: u32) -> bool {
        self.indices().filter(|other| *other != slot).all(|other| {
            let state = self.slot(other);
            let stays = |life: &Life| life.ready.is_some() && life.takes_connections();
            state.life().is_some_and(stays) || state.written_off()
        })
    }

    /// It is this slot's turn again when the others are settled.
    pub(crate) fn roll_postponed(&mut self, slot: u32) {
        if let Some(roll) = &mut self.roll
            && roll.current == Some(slot)
        {
            roll.current = None;
            roll.pending.push_front(slot);
        }
    }

    /// A slot has lost a life that the roll had not asked to leave.
    pub(crate) fn roll_lost(&mut self, slot: u32, reason: ExitReason, was_ready: bool) {
        let Some(roll) = &self.roll else { return };
        if roll.current == Some(slot) && !was_ready {
            self.roll_failed(slot, reason);
        }
    }

    fn roll_failed(&mut self, slot: u32, reason: ExitReason) {
        let Some(Roll { id, .. }) = self.roll.take() else { return };
        self.tell(News::RollFailed { id, slot, reason });
        if self.roll_queued {
            self.begin_roll();
        }
    }

    /// Shutdown ends a roll, and the one that waits.
    pub(crate) fn roll_stopped(&mut self) {
        let Some(roll) = self.roll.take() else { return };
        let slot = roll.current.or(roll.pending.front().copied()).unwrap_or_default();
        self.tell(News::RollFailed { id: roll.id, slot, reason: ExitReason::Stop });
        if std::mem::take(&mut self.roll_queued) {
            self.tell(News::RollFailed { id: roll.id + 1, slot, reason: ExitReason::Stop });
        }
    }
}
