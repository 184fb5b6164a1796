//! A send behind the guard (contract Q8): reserved before it is on the wire, marked after it.
//!
//! | the guard says | and | then |
//! |---|---|---|
//! | fresh | | it is sent |
//! | again | an earlier life chose an id | it is sent under that id |
//! | sent | | it is answered with what is stored |
//! | busy | somebody else is alive | later |
//! | busy | it is we, and no send of ours is under way | a try of ours has broken off: as after a death |
//! | uncertain | `on_uncertain` is `resend` | it is sent, and told as uncertain |
//! | uncertain | `on_uncertain` is `dead_letter` | it is a dead letter |
//!
//! A job whose time is over is sent no more, but is still answered where it was sent in time.

use std::time::Duration;

use tracing::{debug, info, warn};

use super::{
    Ready,
    outcome::{Verdict, failed_attempt},
    perform::{Performer, STORE_PAUSE, at_work},
};
use crate::{
    job::{Job, JobId, OnUncertain},
    platform::Failed,
    registry::{RegistryError, Reservation, Reserve, Sent},
};

/// How long to wait for somebody else who is sending the same job.
const BUSY_PAUSE: Duration = Duration::from_secs(2);

/// What the guard lets a send do.
enum Leave {
    /// On the wire, under this id where one is chosen.
    Send { provider_id: Option<String>, uncertain: bool },
    /// Not any more.
    Settled(Verdict),
}

/// A send that is under way in this process.
struct Sending<'a> {
    performer: &'a Performer,
    job: &'a JobId,
}

impl<'a> Sending<'a> {
    /// `None` when it is under way already.
    fn begin(performer: &'a Performer, job: &'a JobId) -> Option<Self> {
        let fresh = performer.sending.lock().expect("sending").insert(job.clone());
        fresh.then_some(Self { performer, job })
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.performer.sending.lock().expect("sending").remove(self.job);
    }
}

impl Performer {
    /// Sends, unless it was sent.
    pub(super) async fn guarded(&self, ready: &mut Ready, job: &Job, failures: u32) -> Verdict {
        let Some(_under_way) = Sending::begin(self, &job.id) else {
            return Verdict::Postpone { after: BUSY_PAUSE, failure: None };
        };
        let (provider_id, uncertain) = match self.ask_guard(ready, job, failures).await {
            Leave::Send { provider_id, uncertain } => (provider_id, uncertain),
            Leave::Settled(verdict) => return verdict,
        };
        match at_work(ready, job, provider_id.as_deref()).await {
            Ok(done) => {
                let sent = Sent::from(done);
                // One after the other: told before it is marked, a job could be told as done and, after a death between
                // the two, as failed.
                if let Err(error) = self.mark_sent(ready, job, &sent).await {
                    return self.not_stored(&error);
                }
                self.finish(ready, job, sent, uncertain).await
            }
            Err(Failed::Ambiguous { error }) => {
                Box::pin(self.ambiguous(ready, job, failures, &provider_id, error)).await
            }
            Err(failed) => {
                if let Err(error) = self.until_stored(job, || self.ctx.registry.cancel(&ready.fence, &job.id)).await {
                    return self.not_stored(&error);
                }
                Box::pin(self.refused(ready, job, failures, failed)).await
            }
        }
    }

    async fn ask_guard(&self, ready: &mut Ready, job: &Job, failures: u32) -> Leave {
        let chosen = ready.platform.provider_id(job);
        let mut resend = false;
        loop {
            let request = Reserve {
                job: job.id.clone(),
                fence: ready.fence,
                holder: self.ctx.holder.clone(),
                provider_id: chosen.clone(),
                resend,
            };
            let reservation = match self.ctx.registry.reserve(request).await {
                Ok(reservation) => reservation,
                Err(error) => return Leave::Settled(self.not_stored(&error)),
            };
            let provider_id = match reservation {
                Reservation::Fresh => {
                    if self.is_expired(job) {
                        // A doubt stays on record when its reservation is cancelled.
                        let cancel = || self.ctx.registry.cancel(&ready.fence, &job.id);
                        return Leave::Settled(match self.until_stored(job, cancel).await {
                            Ok(()) => self.expired(ready, job, failures, resend).await,
                            Err(error) => self.not_stored(&error),
                        });
                    }
                    chosen
                }
                Reservation::Again { provider_id } => Some(provider_id),
                Reservation::Busy { by } if by == self.ctx.holder && chosen.is_some() => chosen,
                Reservation::Busy { by } if by == self.ctx.holder => {
                    let why = "an earlier try of this process broke off";
                    let mark = || self.ctx.registry.mark_uncertain(&ready.fence, &job.id, why);
                    if let Err(error) = self.until_stored(job, mark).await {
                        return Leave::Settled(self.not_stored(&error));
                    }
                    continue;
                }
                Reservation::Busy { by } => {
                    debug!(job = %job.id, by = %by, "somebody else is sending this job");
                    return Leave::Settled(Verdict::Postpone { after: BUSY_PAUSE, failure: None });
                }
                Reservation::Sent(sent) => {
                    debug!(job = %job.id, "answered from the send guard");
                    return Leave::Settled(self.finish(ready, job, sent, false).await);
                }
                Reservation::Uncertain { by } => {
                    self.ctx.metrics.uncertain.inc();
                    if job.task.on_uncertain() == OnUncertain::DeadLetter {
                        let error = format!("{by} was sending it when it ended; the platform may have done it");
                        return Leave::Settled(self.bury(ready, job, failures, "uncertain", error).await);
                    }
                    info!(job = %job.id, by = %by, "sending again what may have been sent");
                    resend = true;
                    continue;
                }
            };
            if self.is_expired(job) {
                return Leave::Settled(self.expired(ready, job, failures, true).await);
            }
            return Leave::Send { provider_id, uncertain: resend };
        }
    }

    async fn expired(&self, ready: &mut Ready, job: &Job, failures: u32, tried: bool) -> Verdict {
        let doubt = if tried { "; an earlier try may have reached the platform" } else { "" };
        self.bury(ready, job, failures, "expired", format!("expires_at has passed{doubt}")).await
    }

    /// What is known to be sent is stored under whatever right this process has by now.
    async fn mark_sent(&self, ready: &mut Ready, job: &Job, sent: &Sent) -> Result<(), RegistryError> {
        loop {
            let fence = ready.fence;
            let mark = || self.ctx.registry.mark_sent(&fence, &job.id, sent.clone());
            match self.until_stored(job, mark).await {
                Ok(()) => return Ok(()),
                Err(error) => match Box::pin(self.anew(job.channel, fence)).await {
                    Some(newer) => *ready = newer,
                    None => return Err(error),
                },
            }
        }
    }

    async fn ambiguous(
        &self,
        ready: &mut Ready,
        job: &Job,
        failures: u32,
        provider_id: &Option<String>,
        error: String,
    ) -> Verdict {
        if provider_id.is_none() {
            let mark = || self.ctx.registry.mark_uncertain(&ready.fence, &job.id, &error);
            if let Err(error) = self.until_stored(job, mark).await {
                return self.not_stored(&error);
            }
            if job.task.on_uncertain() == OnUncertain::DeadLetter {
                self.ctx.metrics.uncertain.inc();
                return self.bury(ready, job, failures, "uncertain", error).await;
            }
        }
        // With a chosen id the next try carries the same one and can't be shown twice.
        let verdict = failed_attempt(&self.ctx.retry, failures, error);
        self.told(ready, job, failures, verdict).await
    }

    fn not_stored(&self, error: &RegistryError) -> Verdict {
        match error {
            RegistryError::Fenced { .. } => self.ctx.metrics.fenced.inc(),
            RegistryError::Unavailable(_) | RegistryError::Refused(_) => {
                warn!(%error, "the registry did not take a write");
            }
        }
        Verdict::Postpone { after: STORE_PAUSE, failure: None }
    }
}
