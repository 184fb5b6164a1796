//! One job, from the moment its lane lets it start to its verdict.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};

use super::{
    Availability, Context, Ready,
    outcome::{Verdict, failed_attempt},
};
use crate::{
    event::{Event, EventKind, JobDone, JobFailed},
    job::{Job, OnUncertain, Task},
    platform::{Done, Failed},
    registry::{RegistryError, Reservation, Reserve, Sent},
    sink::{Batch, OutboxError},
};

/// How long to leave a store alone that can't be reached.
const STORE_PAUSE: Duration = Duration::from_millis(250);
/// How long to wait for another process that is sending the same job.
const BUSY_PAUSE: Duration = Duration::from_secs(2);

/// Does the job. `failures` is how often it failed before.
pub(crate) async fn perform(ctx: &Context, job: &Job, failures: u32) -> Verdict {
    let now = Timestamp::from_millisecond(ctx.clock.wall_ms()).unwrap_or(Timestamp::UNIX_EPOCH);
    if let Some(enqueued) = job.enqueued_at
        && failures == 0
    {
        ctx.metrics.job_wait.observe(now.duration_since(enqueued).as_secs_f64().max(0.0));
    }
    match &job.task {
        Task::Connect(_) => return control(ctx, job, failures, true).await,
        Task::Disconnect(_) => return control(ctx, job, failures, false).await,
        _ => {}
    }
    let ready = match wait_for_channel(ctx, job).await {
        Ok(ready) => ready,
        Err(Waited::Unknown) => {
            let error = format!("channel {} is in no directory", job.channel);
            return match failed_attempt(&ctx.retry, failures, error) {
                Verdict::Bury { error, .. } => Verdict::Bury { reason: "unknown_channel", error },
                later => later,
            };
        }
        Err(Waited::Disabled) => {
            let error = format!("channel {} is disabled", job.channel);
            return match failed_attempt(&ctx.retry, failures, error) {
                Verdict::Bury { error, .. } => Verdict::Bury { reason: "disabled", error },
                later => later,
            };
        }
        Err(Waited::Starting) => {
            return failed_attempt(&ctx.retry, failures, format!("channel {} did not come up in time", job.channel));
        }
    };
    if job.expires_at.is_some_and(|at| at <= now) {
        let error = "expires_at has passed".to_owned();
        return bury(ctx, &ready, job, failures, "expired", error).await;
    }
    if job.task.is_send() {
        guarded(ctx, &ready, job, failures).await
    } else {
        match at_work(&ready, job, None).await {
            Ok(done) => finish(ctx, &ready, job, Sent::from(done), false).await,
            Err(failed) => refused(ctx, &ready, job, failures, failed).await,
        }
    }
}

enum Waited {
    Starting,
    Disabled,
    Unknown,
}

/// Contract Q9: a job for a channel that is not up yet waits for it.
async fn wait_for_channel(ctx: &Context, job: &Job) -> Result<Ready, Waited> {
    let deadline = Instant::now() + ctx.patience;
    loop {
        let waited = match ctx.channels.availability(job.channel) {
            Availability::Ready(ready) => return Ok(ready),
            Availability::Starting => Waited::Starting,
            Availability::Disabled => return Err(Waited::Disabled),
            Availability::Unknown => Waited::Unknown,
        };
        if timeout_at(deadline, ctx.channels.changed()).await.is_err() {
            return Err(waited);
        }
    }
}

async fn control(ctx: &Context, job: &Job, failures: u32, connect: bool) -> Verdict {
    let answer = match &job.task {
        Task::Disconnect(data) if !connect => ctx.channels.disconnect(job.channel, data.logout).await,
        _ => ctx.channels.connect(job.channel).await,
    };
    match answer {
        Ok(true) => {
            // The event needs the channel's platform and fence; a channel that has stopped tells its state itself.
            if let Availability::Ready(ready) = ctx.channels.availability(job.channel) {
                return finish(ctx, &ready, job, Sent { provider_id: None, result: None }, false).await;
            }
            Verdict::Done
        }
        Ok(false) => {
            match failed_attempt(&ctx.retry, failures, format!("channel {} is in no directory", job.channel)) {
                Verdict::Bury { error, .. } => Verdict::Bury { reason: "unknown_channel", error },
                later => later,
            }
        }
        Err(error) => failed_attempt(&ctx.retry, failures, error.to_string()),
    }
}

/// A send behind the guard (contract Q8).
async fn guarded(ctx: &Context, ready: &Ready, job: &Job, failures: u32) -> Verdict {
    let chosen = ready.platform.provider_id(job);
    let mut request = Reserve {
        job: job.id.clone(),
        fence: ready.fence,
        holder: ctx.holder.clone(),
        provider_id: chosen.clone(),
        resend: false,
    };
    let mut uncertain = false;
    let provider_id = loop {
        let reservation = match ctx.registry.reserve(request.clone()).await {
            Ok(reservation) => reservation,
            Err(error) => return not_stored(ctx, &error),
        };
        match reservation {
            Reservation::Fresh => break chosen,
            Reservation::Again { provider_id } => break Some(provider_id),
            Reservation::Sent(sent) => {
                debug!(job = %job.id, "answered from the send guard");
                return finish(ctx, ready, job, sent, false).await;
            }
            Reservation::Busy { by } => {
                debug!(job = %job.id, by = %by, "somebody else is sending this job");
                return Verdict::Postpone { after: BUSY_PAUSE, failure: None };
            }
            Reservation::Uncertain { by } => {
                ctx.metrics.uncertain.inc();
                if job.task.on_uncertain() == OnUncertain::DeadLetter {
                    let error = format!("{by} was sending it when it ended; the platform may have done it");
                    return bury(ctx, ready, job, failures, "uncertain", error).await;
                }
                info!(job = %job.id, by = %by, "sending again what may have been sent");
                uncertain = true;
                request.resend = true;
            }
        }
    };
    match at_work(ready, job, provider_id.as_deref()).await {
        Ok(done) => {
            let sent = Sent::from(done);
            let stored = until_stored(job, || ctx.registry.mark_sent(&ready.fence, &job.id, sent.clone())).await;
            if let Err(error) = stored {
                return not_stored(ctx, &error);
            }
            finish(ctx, ready, job, sent, uncertain).await
        }
        Err(Failed::Ambiguous { error }) => ambiguous(ctx, ready, job, failures, &provider_id, error).await,
        Err(failed) => {
            if let Err(error) = until_stored(job, || ctx.registry.cancel(&ready.fence, &job.id)).await {
                return not_stored(ctx, &error);
            }
            refused(ctx, ready, job, failures, failed).await
        }
    }
}

async fn ambiguous(
    ctx: &Context,
    ready: &Ready,
    job: &Job,
    failures: u32,
    provider_id: &Option<String>,
    error: String,
) -> Verdict {
    if provider_id.is_some() {
        // The next attempt carries the same id and can't be shown twice.
        return failed_attempt(&ctx.retry, failures, error);
    }
    let stored = until_stored(job, || ctx.registry.mark_uncertain(&ready.fence, &job.id, &error)).await;
    if let Err(error) = stored {
        return not_stored(ctx, &error);
    }
    match job.task.on_uncertain() {
        OnUncertain::Resend => failed_attempt(&ctx.retry, failures, error),
        OnUncertain::DeadLetter => {
            ctx.metrics.uncertain.inc();
            bury(ctx, ready, job, failures, "uncertain", error).await
        }
    }
}

async fn refused(ctx: &Context, ready: &Ready, job: &Job, failures: u32, failed: Failed) -> Verdict {
    let verdict = match failed {
        Failed::Retry { after: Some(after), .. } => Verdict::Postpone { after, failure: None },
        Failed::Retry { error, after: None } | Failed::Ambiguous { error } => {
            failed_attempt(&ctx.retry, failures, error)
        }
        Failed::NotConnected => failed_attempt(&ctx.retry, failures, Failed::NotConnected.to_string()),
        Failed::Permanent { reason, error } => Verdict::Bury { reason, error },
    };
    match verdict {
        Verdict::Bury { reason, error } => bury(ctx, ready, job, failures, reason, error).await,
        other => other,
    }
}

fn not_stored(ctx: &Context, error: &RegistryError) -> Verdict {
    match error {
        RegistryError::Fenced { .. } => ctx.metrics.fenced.inc(),
        RegistryError::Unavailable(_) | RegistryError::Refused(_) => warn!(%error, "the registry did not take a write"),
    }
    Verdict::Postpone { after: STORE_PAUSE, failure: None }
}

/// The work itself. A panic in it is caught here, since what it did before is as unknown as after a lost connection.
async fn at_work(ready: &Ready, job: &Job, provider_id: Option<&str>) -> Result<Done, Failed> {
    let work = AssertUnwindSafe(ready.sender.perform(job, provider_id));
    work.catch_unwind().await.unwrap_or_else(|_| Err(Failed::Ambiguous { error: "the work panicked".to_owned() }))
}

/// What came of a send must be stored, whatever it takes, unless a newer owner exists.
async fn until_stored<F>(job: &Job, mut write: impl FnMut() -> F) -> Result<(), RegistryError>
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

async fn finish(ctx: &Context, ready: &Ready, job: &Job, sent: Sent, uncertain: bool) -> Verdict {
    let kind = EventKind::JobDone(JobDone {
        job_id: job.id.to_string(),
        name: job.task.name().to_owned(),
        message_id: sent.provider_id,
        result: sent.result,
        uncertain,
    });
    match tell(ctx, ready, job, &format!("job/{}", job.id), kind).await {
        Ok(()) => Verdict::Done,
        Err(()) => Verdict::Postpone { after: STORE_PAUSE, failure: None },
    }
}

async fn bury(ctx: &Context, ready: &Ready, job: &Job, failures: u32, reason: &'static str, error: String) -> Verdict {
    let kind = EventKind::JobFailed(JobFailed {
        job_id: job.id.to_string(),
        name: job.task.name().to_owned(),
        reason: reason.to_owned(),
        attempts: failures + 1,
        error: error.clone(),
    });
    match tell(ctx, ready, job, &format!("job/{}", job.id), kind).await {
        Ok(()) => Verdict::Bury { reason, error },
        Err(()) => Verdict::Postpone { after: STORE_PAUSE, failure: None },
    }
}

/// Stores a job's event; `Err` when a newer owner exists.
async fn tell(ctx: &Context, ready: &Ready, job: &Job, key: &str, kind: EventKind) -> Result<(), ()> {
    let at = Timestamp::from_millisecond(ctx.clock.wall_ms()).unwrap_or(Timestamp::UNIX_EPOCH);
    let conversation = job.task.chat().map(str::to_owned);
    let event = Event::new(job.channel, ready.spec.platform, conversation, at, key, kind);
    let batch = Batch { fence: ready.fence, events: vec![event], offset: None };
    loop {
        match ctx.outbox.append(batch.clone(), &ctx.job_events_to).await {
            Ok(stored) => {
                (ctx.on_stored)(stored);
                return Ok(());
            }
            Err(OutboxError::Fenced(_)) => {
                ctx.metrics.fenced.inc();
                return Err(());
            }
            Err(error) => {
                warn!(job = %job.id, %error, "could not store what came of a job; trying until it is");
                tokio::time::sleep(STORE_PAUSE).await;
            }
        }
    }
}

impl From<Done> for Sent {
    fn from(done: Done) -> Self {
        Self { provider_id: done.provider_id, result: done.result }
    }
}
