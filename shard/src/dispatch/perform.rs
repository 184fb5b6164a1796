//! One job, from the moment its lane lets it start to its verdict.

use std::{
    collections::HashSet,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt;
use jiff::Timestamp;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Availability, CONDEMNED_FROM, Context, Ready,
    outcome::{Verdict, failed_attempt},
    patience::Patience,
};
use crate::{
    identity::ChannelId,
    job::{Job, JobId, Task},
    platform::{Done, Failed},
    registry::{RegistryError, Sent},
};

/// How long to leave a store alone that did not take a write.
pub(super) const STORE_PAUSE: Duration = Duration::from_millis(250);
/// How soon a platform may be asked again at the earliest, whatever it says itself.
const SOONEST: Duration = Duration::from_millis(100);

/// Does the jobs of one queue.
pub(crate) struct Performer {
    pub(super) ctx: Arc<Context>,
    /// Sends of this process that are under way: a reservation of ours for any other job is a leftover.
    pub(super) sending: Mutex<HashSet<JobId>>,
    /// Suspects begun in this life.
    alone: Mutex<HashSet<JobId>>,
    /// Others need the room that waiting jobs take.
    pub(super) crowded: watch::Sender<bool>,
    patience: Patience,
}

/// Why a channel can't work for a job.
enum Waited {
    Starting,
    Disabled,
    Unknown,
    /// The job's own time is over.
    Expired,
    /// It is still to be waited for, but not here.
    GiveWay,
}

impl Performer {
    pub(crate) fn new(ctx: Arc<Context>) -> Self {
        let patience = Patience::new(ctx.patience);
        Self { ctx, sending: Mutex::default(), alone: Mutex::default(), crowded: watch::Sender::new(false), patience }
    }

    /// Does the job. `failures` is how often it failed before.
    pub(crate) async fn perform(&self, job: &Job, failures: u32) -> Verdict {
        if let Some(enqueued) = job.enqueued_at
            && failures == 0
        {
            self.ctx.metrics.job_wait.observe(self.now().duration_since(enqueued).as_secs_f64().max(0.0));
        }
        match &job.task {
            Task::Connect(_) => return Box::pin(self.connect(job, failures)).await,
            Task::Disconnect(data) => return Box::pin(self.disconnect(job, failures, data.logout)).await,
            _ => {}
        }
        // Apart, since hardly any has to wait.
        let waited = match self.ready_at_once(job.channel) {
            Some(ready) => Ok(ready),
            None => Box::pin(self.wait_for_channel(job, true)).await,
        };
        let mut ready = match waited {
            Ok(ready) => ready,
            Err(waited) => return self.no_channel(job, failures, &waited),
        };
        if job.task.is_send() {
            return self.guarded(&mut ready, job, failures).await;
        }
        if self.is_expired(job) {
            return self.bury(&mut ready, job, failures, "expired", "expires_at has passed".to_owned()).await;
        }
        match at_work(&ready, job, None).await {
            Ok(done) => self.finish(&mut ready, job, Sent::from(done), false).await,
            Err(failed) => Box::pin(self.refused(&mut ready, job, failures, failed)).await,
        }
    }

    /// A suspect: that it is begun is stored first, once in each life, so that a job which kills its process is found out.
    pub(crate) async fn perform_alone(&self, job: &Job, failures: u32) -> Verdict {
        if !self.alone.lock().expect("alone").contains(&job.id) {
            match self.ctx.registry.count_deaths(&[(job.channel, job.id.clone())], u32::MAX).await {
                Ok(counts) if counts.first().is_some_and(|count| *count > CONDEMNED_FROM) => {
                    return self.condemn(job, failures).await;
                }
                Ok(_) => {}
                Err(error) => {
                    return Verdict::Postpone {
                        after: Duration::from_secs(1),
                        failure: matches!(error, RegistryError::Refused(_)).then(|| error.to_string()),
                    };
                }
            }
            self.alone.lock().expect("alone").insert(job.id.clone());
        }
        let verdict = self.perform(job, failures).await;
        if matches!(verdict, Verdict::Done | Verdict::Bury { .. }) {
            self.alone.lock().expect("alone").remove(&job.id);
        }
        verdict
    }

    async fn condemn(&self, job: &Job, failures: u32) -> Verdict {
        let error = format!("its shard died in each of {CONDEMNED_FROM} tries");
        match self.ctx.channels.availability(job.channel) {
            Availability::Ready(mut ready) => self.bury(&mut ready, job, failures, "killed_shard", error).await,
            // Nothing of such a job is worth waiting for.
            _ => Verdict::Bury { reason: "killed_shard", error },
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.ctx.clock.wall_ms()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    pub(super) fn is_expired(&self, job: &Job) -> bool {
        job.expires_at.is_some_and(|at| at <= self.now())
    }

    fn ready_at_once(&self, channel: ChannelId) -> Option<Ready> {
        let Availability::Ready(ready) = self.ctx.channels.availability(channel) else { return None };
        self.patience.over(channel);
        Some(ready)
    }

    /// Contract Q9: a job for a channel that is not up yet waits for it; elsewhere, when others need the room.
    async fn wait_for_channel(&self, job: &Job, gives_way: bool) -> Result<Ready, Waited> {
        let mut crowded = None;
        loop {
            let waited = match self.ctx.channels.availability(job.channel) {
                Availability::Ready(ready) => {
                    self.patience.over(job.channel);
                    return Ok(ready);
                }
                Availability::Starting => Waited::Starting,
                Availability::Disabled => return Err(Waited::Disabled),
                Availability::Unknown => Waited::Unknown,
            };
            if self.is_expired(job) {
                return Err(Waited::Expired);
            }
            let now = Instant::now();
            let patience = self.patience.until(job.channel, now);
            if now >= patience {
                return Err(waited);
            }
            let left = job.expires_at.map(|at| at.duration_since(self.now()).unsigned_abs());
            let until = left.map_or(patience, |left| patience.min(now + left));
            let crowded = crowded.get_or_insert_with(|| self.crowded.subscribe());
            tokio::select! {
                () = self.ctx.channels.changed() => {}
                () = sleep_until(until) => {}
                _ = crowded.wait_for(|crowded| *crowded), if gives_way => return Err(Waited::GiveWay),
            }
        }
    }

    /// No event tells of these: it would need the channel's network, and the right to write for it.
    fn no_channel(&self, job: &Job, failures: u32, waited: &Waited) -> Verdict {
        let channel = job.channel;
        let (reason, error) = match waited {
            Waited::Starting => ("exhausted", format!("channel {channel} did not come up in time")),
            Waited::Disabled => ("disabled", format!("channel {channel} is disabled")),
            Waited::Unknown => ("unknown_channel", format!("channel {channel} is in no directory")),
            Waited::Expired => {
                return Verdict::Bury { reason: "expired", error: "expires_at has passed".to_owned() };
            }
            Waited::GiveWay => return Verdict::GiveWay,
        };
        match failed_attempt(&self.ctx.retry, failures, error) {
            Verdict::Bury { error, .. } => Verdict::Bury { reason, error },
            later => later,
        }
    }

    /// The event needs the channel's network and the right to write for it, so that the channel is waited for.
    async fn connect(&self, job: &Job, failures: u32) -> Verdict {
        match self.ctx.channels.connect(job.channel).await {
            Ok(true) => match self.wait_for_channel(job, false).await {
                Ok(mut ready) => self.finish(&mut ready, job, Sent { provider_id: None, result: None }, false).await,
                // It is wanted now: what becomes of it is told by its state.
                Err(_) => Verdict::Done,
            },
            Ok(false) => self.no_channel(job, failures, &Waited::Unknown),
            Err(error) => failed_attempt(&self.ctx.retry, failures, error.to_string()),
        }
    }

    async fn disconnect(&self, job: &Job, failures: u32, logout: bool) -> Verdict {
        // Afterwards it is nobody's, and the right of before is still the last one.
        let before = self.ctx.channels.availability(job.channel);
        match self.ctx.channels.disconnect(job.channel, logout).await {
            Ok(true) => {
                if let Availability::Ready(mut ready) = before {
                    let done = Sent { provider_id: None, result: None };
                    // Refused only when somebody else holds it by now, who tells its state.
                    let _ = self.finish(&mut ready, job, done, false).await;
                }
                Verdict::Done
            }
            Ok(false) => self.no_channel(job, failures, &Waited::Unknown),
            Err(error) => failed_attempt(&self.ctx.retry, failures, error.to_string()),
        }
    }

    /// The platform did not do it.
    pub(super) async fn refused(&self, ready: &mut Ready, job: &Job, failures: u32, failed: Failed) -> Verdict {
        let verdict = match failed {
            Failed::Retry { after: Some(after), .. } => Verdict::Postpone { after: after.max(SOONEST), failure: None },
            Failed::Retry { error, after: None } | Failed::Ambiguous { error } => {
                failed_attempt(&self.ctx.retry, failures, error)
            }
            Failed::NotConnected => failed_attempt(&self.ctx.retry, failures, Failed::NotConnected.to_string()),
            Failed::Permanent { reason, error } => Verdict::Bury { reason, error },
        };
        self.told(ready, job, failures, verdict).await
    }
}

/// The work itself. A panic in it is caught here, since what it did before is as unknown as after a lost connection.
pub(super) async fn at_work(ready: &Ready, job: &Job, provider_id: Option<&str>) -> Result<Done, Failed> {
    let work = AssertUnwindSafe(ready.sender.perform(job, provider_id));
    work.catch_unwind().await.unwrap_or_else(|_| Err(Failed::Ambiguous { error: "the work panicked".to_owned() }))
}

impl From<Done> for Sent {
    fn from(done: Done) -> Self {
        Self { provider_id: done.provider_id, result: done.result }
    }
}
