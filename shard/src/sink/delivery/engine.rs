//! The loop that performs what the plan decides, and tells it what came of it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::{Id, JoinError, JoinSet},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    courier::{Courier, Errand},
    now,
    plan::{Action, Attempt, GroupKey, LaneKey, Outcome, Write},
};
use crate::{
    clock::Clock,
    metrics::Metrics,
    progress::Stamp,
    sink::{Destination, Outbox, OutboxError, Scope, Stored},
};

/// The longest sleep: it shows progress at least so often.
const TICK: Duration = Duration::from_secs(1);
/// How often the outbox is looked through for what nobody told of: it lies there until then, and no longer.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between tries to store an outcome.
const WRITE_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long outcomes may take to be stored at the end.
const WRITE_GRACE: Duration = Duration::from_secs(2);

/// Everything the loop needs.
pub(super) struct Engine {
    pub(super) shared: Arc<Shared>,
    pub(super) courier: Arc<Courier>,
    pub(super) outbox: Arc<dyn Outbox>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stamp: Stamp,
    pub(super) stop: CancellationToken,
    pub(super) stop_grace: Duration,
}

/// What a task came to.
enum Report {
    Delivered(super::courier::Result),
    Page(Result<Vec<Stored>, OutboxError>),
}

/// What a task was for: asked when it panicked.
enum Task {
    Attempt { lane: LaneKey, position: u64 },
    Load,
}

/// What is under way.
#[derive(Default)]
struct Work {
    tasks: JoinSet<Report>,
    about: HashMap<Id, Task>,
    writes: JoinSet<()>,
    marks: HashMap<Id, (Destination, u64)>,
    /// Groups whose events are being given up: said once, until one is delivered again.
    burying: HashSet<GroupKey>,
}

impl Engine {
    pub(super) async fn run(self) {
        let mut work = Work::default();
        let mut look_at = self.clock.boottime() + LOOK_EVERY;
        while !self.stop.is_cancelled() {
            self.stamp.tick();
            let now = self.clock.boottime();
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                self.shared.plan.lock().expect("delivery plan").rescan();
            }
            let due = self.act(&mut work);
            let sleep = due.map_or(TICK, |due| due.saturating_sub(now).min(TICK));
            tokio::select! {
                () = self.shared.wake.notified() => {}
                Some(ended) = work.tasks.join_next_with_id() => self.ended(&mut work, ended),
                Some(ended) = work.writes.join_next_with_id() => self.wrote(&mut work, ended),
                () = tokio::time::sleep(sleep) => {}
                () = self.outbox.news() => self.shared.plan.lock().expect("delivery plan").rescan(),
                () = self.stop.cancelled() => {}
            }
            self.catch_up(&mut work);
        }
        self.wind_up(work).await;
    }

    /// Takes in everything else that has ended, so that one pass of the plan serves them all.
    fn catch_up(&self, work: &mut Work) {
        while let Some(ended) = work.tasks.try_join_next_with_id() {
            self.ended(work, ended);
        }
        while let Some(ended) = work.writes.try_join_next_with_id() {
            self.wrote(work, ended);
        }
    }

    /// Performs all that can be done now; says when to look again.
    fn act(&self, work: &mut Work) -> Option<Duration> {
        let mut actions = Vec::new();
        loop {
            let due = {
                let mut plan = self.shared.plan.lock().expect("delivery plan");
                plan.poll(now(&*self.clock), &mut |group| self.courier.route(group), &mut actions);
                plan.next_due()
            };
            let mut again = false;
            for action in actions.drain(..) {
                match action {
                    Action::Deliver(attempt) => again |= self.deliver(work, attempt),
                    Action::Load { scope, after, limit } => self.load(work, scope, after, limit),
                }
            }
            if !again {
                return due;
            }
        }
    }

    /// Whether it was over at once.
    fn deliver(&self, work: &mut Work, attempt: Attempt) -> bool {
        let Attempt { lane, position, event } = attempt;
        match self.courier.errand(lane.group.0, event) {
            Errand::Over(result) => {
                self.finish(work, &lane, position, result);
                true
            }
            Errand::Under(future) => {
                let id = work.tasks.spawn(async move { Report::Delivered(future.await) }).id();
                work.about.insert(id, Task::Attempt { lane, position });
                false
            }
        }
    }

    fn load(&self, work: &mut Work, scope: Scope, after: u64, limit: usize) {
        let outbox = self.outbox.clone();
        let id = work.tasks.spawn(async move { Report::Page(outbox.open_in(&scope, after, limit).await) }).id();
        work.about.insert(id, Task::Load);
    }

    fn ended(&self, work: &mut Work, ended: Result<(Id, Report), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        match (work.about.remove(&id), ended) {
            (Some(Task::Attempt { lane, position }), Ok((_, Report::Delivered(result)))) => {
                self.finish(work, &lane, position, result);
            }
            (Some(Task::Attempt { lane, position }), _) => {
                let error = "the delivery panicked".to_owned();
                let outcome = Outcome::Failed { error, retry_after: None, malformed: false };
                self.finish(work, &lane, position, (outcome, "failed"));
            }
            (Some(Task::Load), Ok((_, Report::Page(Ok(page))))) => {
                self.shared.plan.lock().expect("delivery plan").loaded(page);
            }
            (Some(Task::Load), ended) => {
                let error = match ended {
                    Ok((_, Report::Page(Err(error)))) => error.to_string(),
                    _ => "the read panicked".to_owned(),
                };
                tracing::warn!(error, "events can't be read from the outbox");
                self.shared.plan.lock().expect("delivery plan").load_failed(now(&*self.clock));
            }
            (None, _) => {}
        }
    }

    fn finish(&self, work: &mut Work, lane: &LaneKey, position: u64, result: super::courier::Result) {
        let (outcome, word) = result;
        let (destination, channel) = lane.group;
        self.metrics.deliveries.with_label_values(&[destination.as_str(), word]).inc();
        let error = match &outcome {
            Outcome::Failed { error, .. } | Outcome::Refused { error } => Some(error.clone()),
            Outcome::Done | Outcome::Unknown => None,
        };
        let done = outcome == Outcome::Done;
        let settled = {
            let mut plan = self.shared.plan.lock().expect("delivery plan");
            plan.finish(lane, outcome, now(&*self.clock), rand::random())
        };
        let destination_name = destination.as_str();
        match settled.down {
            Some(true) => tracing::warn!(destination = destination_name, %channel, error, "deliveries fail"),
            Some(false) => tracing::info!(destination = destination_name, %channel, "deliveries work again"),
            None => {}
        }
        if done {
            work.burying.remove(&lane.group);
        }
        let Some(write) = settled.write else { return };
        if let Write::Buried { reason, .. } = &write {
            self.metrics.deliveries.with_label_values(&[destination_name, "buried"]).inc();
            if work.burying.insert(lane.group) {
                tracing::error!(destination = destination_name, %channel, reason, "events become dead letters");
            }
        }
        let outbox = self.outbox.clone();
        let id = work.writes.spawn(store(outbox, position, destination, write)).id();
        work.marks.insert(id, (destination, position));
    }

    fn wrote(&self, work: &mut Work, ended: Result<(Id, ()), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        if let Some((destination, position)) = work.marks.remove(&id) {
            self.shared.plan.lock().expect("delivery plan").written(destination, position);
        }
    }

    /// What is under way gets its time to end; what is not over by then stays in the outbox.
    async fn wind_up(self, mut work: Work) {
        self.shared.plan.lock().expect("delivery plan").stop();
        let deadline = Instant::now() + self.stop_grace;
        while let Ok(Some(ended)) = timeout_at(deadline, work.tasks.join_next_with_id()).await {
            self.stamp.tick();
            self.ended(&mut work, ended);
        }
        work.tasks.abort_all();
        let deadline = Instant::now() + WRITE_GRACE;
        while let Ok(Some(ended)) = timeout_at(deadline, work.writes.join_next_with_id()).await {
            self.stamp.tick();
            self.wrote(&mut work, ended);
        }
    }
}

/// Stores an outcome, however long that takes: until then the event counts as open there, which is only told twice.
async fn store(outbox: Arc<dyn Outbox>, position: u64, destination: Destination, write: Write) {
    let mut told = false;
    loop {
        let result = match &write {
            Write::Delivered => outbox.delivered(position, destination).await,
            Write::Failed { error } => outbox.failed(position, destination, error).await,
            Write::Buried { error, reason } => bury(&*outbox, position, destination, error.as_deref(), reason).await,
        };
        match result {
            Ok(()) | Err(OutboxError::Fenced(_)) => return,
            Err(error) if !told => {
                told = true;
                tracing::warn!(destination = destination.as_str(), %error, "a delivery's outcome can't be stored yet");
            }
            Err(_) => {}
        }
        tokio::time::sleep(WRITE_AGAIN_AFTER).await;
    }
}

async fn bury(
    outbox: &dyn Outbox,
    position: u64,
    destination: Destination,
    error: Option<&str>,
    reason: &str,
) -> Result<(), OutboxError> {
    if let Some(error) = error {
        outbox.failed(position, destination, error).await?;
    }
    outbox.bury(position, destination, reason).await
}
