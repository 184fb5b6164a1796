//! What comes of the work, and how a delivery is settled: exactly once.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use tracing::{error, info};

use super::{Held, Session};
use crate::{
    dispatch::{
        forward::{Parcel, forward_whatever_it_takes},
        outcome::{Verdict, failed_attempt, note_death, note_failure},
        work::Worked,
    },
    identity::ChannelId,
    job::JobId,
    queue::{Key, Message, QueueError, Receipt},
};

/// How long a job that made room for others leaves its channel alone, unless that is up before.
const ROOM: Duration = Duration::from_secs(5);

/// A settlement that has ended.
pub(super) struct Settled {
    /// The delivery whose lane waits for it.
    key: Option<Key>,
    /// The job whose verdict is settled.
    job: Option<JobId>,
    /// The channel whose next message may be forwarded.
    forwarded: Option<ChannelId>,
    result: Result<(), QueueError>,
}

pub(super) type Settling = BoxFuture<'static, Vec<Settled>>;

/// A delivery whose work is done.
pub(super) struct Finished {
    key: Key,
    job: JobId,
    receipt: Receipt,
}

impl Session<'_> {
    /// Begins the work on a delivery; a job of another shard sets off for it.
    pub(super) fn start(&mut self, key: Key) {
        let Some(held) = self.held.get(&key) else { return };
        if let Some(home) = self.elsewhere(&held.job) {
            // Parked under another layout: it goes in its lane's turn, so that what came later stays behind it.
            if let Some(Held { receipt, message, job, .. }) = self.let_go(key) {
                self.forward(Parcel { channel: job.channel, receipt, to: home, message, key: Some(key) });
            }
            return;
        }
        let failures = held.message.headers.attempts;
        self.work.start(self.performer, key, held.job.clone(), failures, held.suspect);
    }

    /// A piece of work has ended.
    pub(super) fn worked(&mut self, worked: Worked) {
        self.judge(worked);
        self.acknowledge();
    }

    /// The same, but what is done is left for [`Session::acknowledge`].
    pub(super) fn judge(&mut self, worked: Worked) {
        let Worked { key: Some(key), verdict } = worked else { return };
        let Some(held) = self.held.get_mut(&key) else { return };
        let verdict = verdict.unwrap_or_else(|broken| {
            error!(queue = %self.queue, job = %held.job.id, error = broken, "the work on a job broke off");
            failed_attempt(&self.ctx.retry, held.message.headers.attempts, broken.to_owned())
        });
        let now = self.time.now();
        match verdict {
            Verdict::Done => {
                self.count(super::DONE);
                if let Some((job, held)) = self.keep_verdict(key, Verdict::Done) {
                    self.finished.push(Finished { key, job, receipt: held.receipt });
                }
            }
            Verdict::GiveWay => {
                self.awaited.insert(held.job.channel);
                let actions = self.lanes.gives_way(key, now + ROOM.as_millis() as i64, now);
                self.act(actions);
            }
            Verdict::Postpone { after, failure } => {
                if let Some(error) = failure {
                    note_failure(&mut held.message.headers, &error);
                    self.count("retried");
                }
                let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
                let actions = self.lanes.postponed(key, now.saturating_add(after), now);
                self.act(actions);
            }
            Verdict::Bury { reason, error } => {
                info!(queue = %self.queue, job = %held.job.id, reason, "a job goes to the dead letters");
                held.message.headers.attempts += 1;
                let (origin, now) = (self.queue.to_string(), self.ctx.clock.wall_ms());
                note_death(&mut held.message.headers, reason, &error, &origin, now);
                self.count(if reason == "exhausted" { "exhausted" } else { "dead" });
                if let Some((job, held)) = self.keep_verdict(key, Verdict::Bury { reason, error }) {
                    self.bury(Some((key, job)), held.receipt, held.message);
                }
            }
        }
    }

    /// Should the session end before it is settled, what came of the job is known to the next one.
    fn keep_verdict(&mut self, key: Key, verdict: Verdict) -> Option<(JobId, Held)> {
        let held = self.let_go(key)?;
        let job = held.job.id.clone();
        self.work.unsettled.insert(job.clone(), verdict);
        Some((job, held))
    }

    /// Acknowledges all that is done by now, together.
    pub(super) fn acknowledge(&mut self) {
        if self.finished.is_empty() {
            return;
        }
        let (finished, queue) = (std::mem::take(&mut self.finished), self.ctx.queue.clone());
        self.settling.push(
            async move {
                let (of, receipts): (Vec<_>, Vec<_>) =
                    finished.into_iter().map(|Finished { key, job, receipt }| ((key, job), receipt)).unzip();
                let results = queue.ack_all(receipts).await;
                let settled =
                    |((key, job), result)| Settled { key: Some(key), job: Some(job), forwarded: None, result };
                of.into_iter().zip(results).map(settled).collect()
            }
            .boxed(),
        );
    }

    pub(super) fn bury(&mut self, of: Option<(Key, JobId)>, receipt: Receipt, message: Message) {
        let queue = self.ctx.queue.clone();
        let (key, job) = of.unzip();
        self.settling.push(
            async move {
                let result = queue.bury(receipt, message).await;
                vec![Settled { key, job, forwarded: None, result }]
            }
            .boxed(),
        );
    }

    pub(super) fn forward(&mut self, parcel: Parcel) {
        let reason = if parcel.to.base == self.queue.base { "other_shard" } else { "other_queue" };
        self.ctx.metrics.forwarded.with_label_values(&[reason]).inc();
        if let Some(parcel) = self.forwarding.enter(parcel) {
            self.send(parcel);
        }
    }

    fn send(&mut self, parcel: Parcel) {
        let queue = self.ctx.queue.clone();
        self.settling.push(
            async move {
                let Parcel { channel, receipt, to, message, key } = parcel;
                let result = forward_whatever_it_takes(&*queue, receipt, to, message).await;
                vec![Settled { key, job: None, forwarded: Some(channel), result }]
            }
            .boxed(),
        );
    }

    /// An error ends the session, after the rest has been looked at.
    pub(super) fn settled(&mut self, settled: Vec<Settled>) -> Result<(), String> {
        let results: Vec<_> = settled.into_iter().map(|settled| self.settled_one(settled)).collect();
        results.into_iter().collect()
    }

    fn settled_one(&mut self, settled: Settled) -> Result<(), String> {
        settled.result.map_err(|error| error.to_string())?;
        if let Some(job) = settled.job {
            self.work.settled(&job);
        }
        if let Some(next) = settled.forwarded.and_then(|channel| self.forwarding.next(channel)) {
            self.send(next);
        }
        if let Some(key) = settled.key {
            let actions = self.lanes.finished(key, self.time.now());
            self.act(actions);
        }
        Ok(())
    }
}
