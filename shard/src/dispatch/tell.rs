//! What came of a job, stored for whoever wants to know: it is settled only after that. Where nobody does it is not told: what
//! came of a send is in the send guard, and why a job failed lies beside it in the dead letters.

use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::{
    Availability, Ready,
    outcome::Verdict,
    perform::{Performer, STORE_PAUSE},
};
use crate::{
    event::{Event, EventKind, JobDone, JobFailed},
    identity::ChannelId,
    job::{Job, Task},
    registry::{Fence, RegistryError, Sent},
    sink::{Batch, OutboxError},
};

impl Performer {
    /// The job is done once its event is stored.
    pub(super) async fn finish(&self, ready: &mut Ready, job: &Job, sent: Sent, uncertain: bool) -> Verdict {
        if self.ctx.job_events_to.is_empty() {
            return Verdict::Done;
        }
        let fetched = fetched(&job.task, sent.result.as_ref());
        let kind = EventKind::JobDone(JobDone {
            job_id: job.id.to_string(),
            name: job.task.name().to_owned(),
            message_id: sent.provider_id,
            result: sent.result,
            uncertain,
        });
        // Apart, so that a job that nobody is told of is the smaller.
        Box::pin(self.tell(ready, job, fetched.into_iter().chain([kind]).collect(), Verdict::Done)).await
    }

    /// The job is a dead letter once its event is stored.
    pub(super) async fn bury(
        &self,
        ready: &mut Ready,
        job: &Job,
        failures: u32,
        reason: &'static str,
        error: String,
    ) -> Verdict {
        if self.ctx.job_events_to.is_empty() {
            return Verdict::Bury { reason, error };
        }
        let kind = EventKind::JobFailed(JobFailed {
            job_id: job.id.to_string(),
            name: job.task.name().to_owned(),
            reason: reason.to_owned(),
            attempts: failures + 1,
            error: error.clone(),
        });
        Box::pin(self.tell(ready, job, vec![kind], Verdict::Bury { reason, error })).await
    }

    /// Whatever verdict it is: an end is told first.
    pub(super) async fn told(&self, ready: &mut Ready, job: &Job, failures: u32, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Bury { reason, error } => self.bury(ready, job, failures, reason, error).await,
            other => other,
        }
    }

    /// Stores events under whatever right this process has by now; without any the job is looked at again.
    async fn tell(&self, ready: &mut Ready, job: &Job, kinds: Vec<EventKind>, verdict: Verdict) -> Verdict {
        let conversation = job.task.chat().map(str::to_owned);
        let (now, platform) = (self.now(), ready.spec.platform);
        let event = |kind: EventKind| {
            let about = if matches!(kind, EventKind::JobDone(_) | EventKind::JobFailed(_)) { "job" } else { "stored" };
            let key = format!("{about}/{}", job.id);
            Event::new(job.channel, platform, conversation.clone(), now, &key, kind)
        };
        let events: Vec<Event> = kinds.into_iter().map(event).collect();
        let mut told = false;
        loop {
            let batch = Batch { fence: ready.fence, events: events.clone(), offset: None };
            match self.ctx.outbox.append(batch, &self.ctx.job_events_to).await {
                Ok(stored) => {
                    (self.ctx.on_stored)(stored);
                    return verdict;
                }
                Err(OutboxError::Fenced(_)) => {
                    self.ctx.metrics.fenced.inc();
                    match self.anew(job.channel, ready.fence).await {
                        Some(newer) => *ready = newer,
                        None => return Verdict::Postpone { after: STORE_PAUSE, failure: None },
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        warn!(job = %job.id, %error, "could not store what came of a job; trying until it is");
                    }
                    tokio::time::sleep(STORE_PAUSE).await;
                }
            }
        }
    }

    /// The channel under a newer right than one that has been refused. A lease that went and came back is this process's
    /// as before, and what it knows is as true.
    pub(super) async fn anew(&self, channel: ChannelId, refused: Fence) -> Option<Ready> {
        let until = Instant::now() + self.ctx.patience;
        loop {
            match self.ctx.channels.availability(channel) {
                Availability::Ready(ready) if ready.fence.token > refused.token => return Some(ready),
                Availability::Ready(_) | Availability::Starting => {}
                Availability::Disabled | Availability::Unknown => return None,
            }
            timeout_at(until, self.ctx.channels.changed()).await.ok()?;
        }
    }

    /// What came of a send must be stored, whatever it takes, unless a newer owner exists.
    pub(super) async fn until_stored<F>(&self, job: &Job, mut write: impl FnMut() -> F) -> Result<(), RegistryError>
    where
        F: Future<Output = Result<(), RegistryError>>,
    {
        let mut told = false;
        loop {
            match write().await {
                Ok(()) => return Ok(()),
                Err(fenced @ RegistryError::Fenced { .. }) => return Err(fenced),
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        warn!(job = %job.id, %error, "could not store what came of a send; trying until it is");
                    }
                    tokio::time::sleep(STORE_PAUSE).await;
                }
            }
        }
    }
}

/// What a job stored is an event of its own, for those who don't know the job.
fn fetched(task: &Task, result: Option<&Value>) -> Option<EventKind> {
    let about = |chat: &str| {
        let mut data = result.and_then(Value::as_object).cloned().unwrap_or_default();
        data.insert("chat_id".to_owned(), chat.into());
        data
    };
    match task {
        Task::DownloadMedia(data) => {
            let mut told = about(&data.chat_id);
            told.insert("message_id".to_owned(), data.message_id.as_str().into());
            Some(EventKind::MediaStored(told))
        }
        Task::FetchAvatar(data) => Some(EventKind::AvatarStored(about(&data.chat_id))),
        _ => None,
    }
}
