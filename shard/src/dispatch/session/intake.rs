//! What comes in: from the work queue, and from the parked one.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use tracing::warn;

use super::{Held, Session};
use crate::{
    dispatch::{SUSPECTED_FROM, forward::Parcel, mover::Moved, outcome::note_death, worker::while_ticking},
    identity::QueueName,
    job::{Job, JobId, NotAJob},
    progress::Stamp,
    queue::{Arrival, Consumer, Delivery, Key},
    registry::RegistryError,
};

/// A delivery that has been read.
pub(super) struct Read {
    delivery: Delivery,
    job: Result<Arc<Job>, NotAJob>,
}

impl From<Delivery> for Read {
    fn from(delivery: Delivery) -> Self {
        Self { job: Job::parse(&delivery.message.body).map(Arc::new), delivery }
    }
}

impl Session<'_> {
    /// What was out when a process died comes in one go: its deaths are counted in one write. The first delivery that
    /// nobody had before is given back.
    pub(super) async fn take_redelivered(
        &mut self,
        first: Delivery,
        consumer: &mut dyn Consumer,
        stamp: &Stamp,
    ) -> Result<Option<Delivery>, String> {
        let mut batch = vec![Read::from(first)];
        let mut fresh = None;
        while batch.len() < self.prefetch {
            match timeout(Duration::from_millis(2), consumer.next()).await.ok() {
                Some(Some(Ok(delivery))) if delivery.redelivered => batch.push(Read::from(delivery)),
                Some(Some(Ok(delivery))) => {
                    fresh = Some(delivery);
                    break;
                }
                Some(Some(Err(error))) => return Err(error.to_string()),
                Some(None) => return Err("the subscription ended".to_owned()),
                None => break,
            }
        }
        self.suspect(&batch, stamp).await?;
        for read in batch {
            self.take(read);
        }
        Ok(fresh)
    }

    /// Counts deaths, and notes who was out in too many of them. What was out in an earlier session of this very process
    /// has seen none.
    async fn suspect(&mut self, batch: &[Read], stamp: &Stamp) -> Result<(), String> {
        let again = |read: &&Read| read.delivery.redelivered;
        let jobs = batch.iter().filter(again).filter_map(|read| read.job.as_ref().ok());
        let jobs: Vec<_> = jobs.map(|job| (job.channel, job.id.clone())).collect();
        let jobs: Vec<_> = jobs.into_iter().filter(|(_, id)| !self.work.was_out(id)).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let counts = while_ticking(stamp, self.ctx.registry.count_deaths(&jobs, SUSPECTED_FROM)).await;
        let counts = match counts {
            Ok(counts) => counts,
            Err(error @ RegistryError::Fenced { .. }) => return Err(error.to_string()),
            Err(error) => {
                warn!(queue = %self.queue, %error, "deaths could not be counted");
                return Ok(());
            }
        };
        let suspects = jobs.into_iter().zip(counts).filter(|(_, count)| *count >= SUSPECTED_FROM);
        self.work.suspects.extend(suspects.map(|((_, id), _)| id));
        Ok(())
    }

    /// A delivery from the work queue: into its lane, or away when it is no job, or not ours.
    pub(super) fn take(&mut self, read: Read) {
        let Read { delivery, job } = read;
        let Delivery { receipt, message, .. } = delivery;
        let job = match job {
            Ok(job) => job,
            Err(not_a_job) => {
                let receipt_and_message = Delivery { receipt, message, redelivered: false };
                return self.refuse(receipt_and_message, &not_a_job);
            }
        };
        let lane = job.lane(self.queue.base);
        if let Some(home) = self.elsewhere(&job)
            && !self.lanes.waits(&lane)
        {
            self.forward(Parcel { channel: job.channel, receipt, to: home, message, key: None });
            return;
        }
        self.fresh += 1;
        let (key, suspect) = self.name(&job.id);
        let arrival = Arrival { key, id: job.id.clone(), lane, barrier: job.task.is_barrier(), suspect };
        self.held.insert(key, Held { receipt, message, job, suspect, parked: false });
        let actions = self.lanes.arrived(arrival, self.time.now());
        self.act(actions);
    }

    /// A fresh key, and whether the job is a suspect.
    fn name(&mut self, job: &JobId) -> (Key, bool) {
        self.next_key += 1;
        (self.next_key, self.work.suspects.contains(job))
    }

    /// Contract Q5: straight to the dead letters.
    fn refuse(&mut self, delivery: Delivery, not_a_job: &NotAJob) {
        let Delivery { receipt, mut message, .. } = delivery;
        warn!(queue = %self.queue, error = %not_a_job, "a message is no job; it goes to the dead letters");
        let (origin, now) = (self.queue.to_string(), self.ctx.clock.wall_ms());
        note_death(&mut message.headers, "not_a_job", &not_a_job.to_string(), &origin, now);
        self.count("not_a_job");
        self.bury(None, receipt, message);
    }

    /// Where a job belongs, if that is not here.
    pub(super) fn elsewhere(&self, job: &Job) -> Option<QueueName> {
        let home = self.ctx.shard.queue_for_channel(job.base(), job.channel);
        (home != self.queue).then_some(home)
    }

    /// What came of a move.
    pub(super) async fn moved(&mut self, step: Moved, stamp: &Stamp) -> Result<(), String> {
        let actions = match step {
            Moved::Ended(error) => return Err(error),
            Moved::Cleared(lane) => self.lanes.cleared(&lane, self.time.now()),
            Moved::Unparked { lane, deliveries } => {
                let found = deliveries.len();
                let read: Vec<Read> = deliveries.into_iter().map(Read::from).collect();
                self.suspect(&read, stamp).await?;
                let mut lot = Vec::with_capacity(found);
                for Read { delivery, job } in read {
                    // Only jobs are ever parked, though perhaps by a version that knew more of them.
                    let job = match job {
                        Ok(job) => job,
                        Err(not_a_job) => {
                            self.refuse(delivery, &not_a_job);
                            continue;
                        }
                    };
                    let Delivery { receipt, message, .. } = delivery;
                    let (key, suspect) = self.name(&job.id);
                    let barrier = job.task.is_barrier();
                    let arrival = Arrival { key, id: job.id.clone(), lane: lane.clone(), barrier, suspect };
                    lot.push((arrival, message.headers.lane_seq.unwrap_or_default()));
                    self.held.insert(key, Held { receipt, message, job, suspect, parked: true });
                }
                let more = lot.len() < found;
                self.lanes.unparked(&lane, lot, more, self.time.now())
            }
        };
        self.act(actions);
        Ok(())
    }
}
