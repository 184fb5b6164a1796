//! The end of a session that was asked for (contract Q10): what has not begun goes back at once, in order; what runs gets
//! the grace.

use futures_util::StreamExt;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};
use tracing::warn;

use super::{Session, TICK};
use crate::{
    dispatch::{mover::Moved, worker::while_ticking},
    progress::Stamp,
    queue::{Key, Receipt},
};

impl Session<'_> {
    /// Until nothing is at work and nothing being settled, or `deadline`. A job that must be tried again is put aside as
    /// ever; none is begun.
    pub(in crate::dispatch) async fn drain(
        &mut self,
        moved: &mut mpsc::UnboundedReceiver<Moved>,
        stamp: &Stamp,
        deadline: Instant,
    ) {
        self.draining = true;
        let waiting = self.lanes.waiting();
        let receipts = self.receipts(waiting);
        self.give_back(receipts, stamp).await;
        // Those wait for a turn that does not come any more.
        let receipts = self.forwarding.give_up();
        self.give_back(receipts, stamp).await;
        while !self.work.is_idle() || !self.settling.is_empty() {
            stamp.tick();
            tokio::select! {
                Some(done) = self.work.next() => self.worked(done),
                Some(settled) = self.settling.next() => {
                    if let Err(error) = self.settled(settled) {
                        warn!(queue = %self.queue, %error, "a job could not be settled while stopping");
                    }
                }
                Some(step) = moved.recv() => self.give_back_moved(step, stamp).await,
                () = sleep(TICK) => {}
                () = sleep_until(deadline) => break,
            }
        }
        if !self.work.is_idle() {
            warn!(queue = %self.queue, jobs = self.work.len(), "the grace is over; these jobs are given back unfinished");
            self.work.abort().await;
        }
        let left = self.held.keys().copied().collect();
        let receipts = self.receipts(left);
        self.give_back(receipts, stamp).await;
    }

    /// What was fetched for lanes that do not go on any more.
    pub(in crate::dispatch) async fn give_back_moved(&mut self, step: Moved, stamp: &Stamp) {
        if let Moved::Unparked { deliveries, .. } = step {
            let receipts = deliveries.into_iter().map(|delivery| delivery.receipt).collect();
            self.give_back(receipts, stamp).await;
        }
    }

    fn receipts(&mut self, keys: Vec<Key>) -> Vec<Receipt> {
        keys.into_iter().filter_map(|key| self.let_go(key)).map(|held| held.receipt).collect()
    }

    async fn give_back(&mut self, receipts: Vec<Receipt>, stamp: &Stamp) {
        if receipts.is_empty() {
            return;
        }
        if let Err(error) = while_ticking(stamp, self.ctx.queue.release(receipts)).await {
            warn!(queue = %self.queue, %error, "jobs could not be given back; they come again when the queue is next read");
        }
    }
}
