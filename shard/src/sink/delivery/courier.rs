//! How one event is delivered: to the endpoint, to an agent whose answer becomes jobs, or to the built-in echo.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::plan::{GroupKey, Outcome, Site};
use crate::{
    clock::Clock,
    event::Event,
    job::Job,
    sink::{
        Destination, HandlerSettings, Handlers, Replies, agent, echo,
        settings::Target,
        webhook::{PostError, Webhook},
    },
};

/// How often replies are handed over before the whole delivery counts as failed: an agent that has answered is not
/// asked again for a queue that hiccups.
const REPLY_TRIES: u32 = 4;
const REPLY_WAIT: Duration = Duration::from_millis(100);

/// Knows everybody.
pub(super) struct Courier {
    pub(super) endpoint: Option<Target>,
    pub(super) endpoint_timeout: Duration,
    pub(super) agent_timeout: Duration,
    pub(super) handlers: Arc<dyn Handlers>,
    pub(super) replies: Arc<dyn Replies>,
    pub(super) webhook: Webhook,
    pub(super) clock: Arc<dyn Clock>,
}

/// An outcome, and the word by which it is counted.
pub(super) type Result = (Outcome, &'static str);

/// A delivery: over at once, or still to be done.
pub(super) enum Errand {
    Over(Result),
    Under(Pin<Box<dyn Future<Output = Result> + Send>>),
}

const DELIVERED: Result = (Outcome::Done, "delivered");
/// There is a handler, or none, that this event is not meant for.
const SKIPPED: Result = (Outcome::Done, "skipped");

impl Courier {
    /// Where a group's events go at this moment.
    pub(super) fn route(&self, (destination, channel): GroupKey) -> Site {
        let target = match destination {
            Destination::Endpoint => self.endpoint.clone(),
            Destination::Handler => match self.handlers.handler(channel) {
                Some(HandlerSettings::Agent(target)) => Some(target),
                _ => None,
            },
        };
        target.map_or(Site::Local, |target| Site::Remote(target.site()))
    }

    /// Delivers an event.
    pub(super) fn errand(self: &Arc<Self>, destination: Destination, event: Arc<Event>) -> Errand {
        match destination {
            Destination::Endpoint => match self.endpoint.clone() {
                Some(target) => self.under(|this| async move { this.tell(target, &event).await }),
                None => refused("no endpoint is configured".into()),
            },
            Destination::Handler => match self.handlers.handler(event.channel_id) {
                None => Errand::Over((Outcome::Unknown, "unknown")),
                Some(_) if !agent::handler_takes(&event.kind) => Errand::Over(SKIPPED),
                Some(HandlerSettings::None) => Errand::Over(SKIPPED),
                Some(HandlerSettings::Broken(error)) => Errand::Over(failed(error, None, false)),
                Some(HandlerSettings::Echo) => match echo::echo(&event, self.now()) {
                    Some(job) => self.under(|this| async move { this.hand_over(vec![job]).await }),
                    None => Errand::Over(SKIPPED),
                },
                Some(HandlerSettings::Agent(target)) => {
                    self.under(|this| async move { this.ask(target, &event).await })
                }
            },
        }
    }

    fn under<F>(self: &Arc<Self>, work: impl FnOnce(Arc<Self>) -> F) -> Errand
    where
        F: Future<Output = Result> + Send + 'static,
    {
        Errand::Under(Box::pin(work(self.clone())))
    }

    async fn tell(&self, target: Target, event: &Event) -> Result {
        match self.webhook.tell(&target, event, self.now(), self.endpoint_timeout).await {
            Ok(()) => DELIVERED,
            Err(error) => post_failed(error),
        }
    }

    async fn ask(&self, target: Target, event: &Event) -> Result {
        let answer = match self.webhook.ask(&target, event, self.now(), self.agent_timeout).await {
            Ok(answer) => answer,
            Err(error @ PostError::TooLarge) => return failed(error.to_string(), None, true),
            Err(error) => return post_failed(error),
        };
        match agent::replies(event, &answer, self.now()) {
            Ok(jobs) => self.hand_over(jobs).await,
            Err(error) => failed(error.to_string(), None, true),
        }
    }

    async fn hand_over(&self, jobs: Vec<Job>) -> Result {
        if jobs.is_empty() {
            return DELIVERED;
        }
        let mut wait = REPLY_WAIT;
        for _ in 1..REPLY_TRIES {
            if self.replies.reply(jobs.clone()).await.is_ok() {
                return DELIVERED;
            }
            tokio::time::sleep(wait).await;
            wait *= 4;
        }
        match self.replies.reply(jobs).await {
            Ok(()) => DELIVERED,
            Err(error) => failed(error.to_string(), None, false),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.clock.wall_ms()).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

fn failed(error: String, retry_after: Option<Duration>, malformed: bool) -> Result {
    (Outcome::Failed { error, retry_after, malformed }, if malformed { "malformed" } else { "failed" })
}

fn refused(error: String) -> Errand {
    Errand::Over((Outcome::Refused { error }, "refused"))
}

fn post_failed(error: PostError) -> Result {
    if error.permanent() {
        return (Outcome::Refused { error: error.to_string() }, "refused");
    }
    let retry_after = error.retry_after();
    failed(error.to_string(), retry_after, false)
}
