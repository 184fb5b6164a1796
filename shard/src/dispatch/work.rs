//! Jobs at work. They outlive the session that began them: when a subscription ends, what is on the wire is finished, and
//! the delivery that comes again for it takes the work over instead of doing it twice.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use prometheus::IntGauge;
use tokio::task::{Id, JoinSet};

use super::{outcome::Verdict, perform::Performer};
use crate::{identity::QueueBase, job::Job, job::JobId, queue::Key};

/// Work that has ended.
pub(super) struct Worked {
    /// The delivery it was for, if that is in memory.
    pub(super) key: Option<Key>,
    /// What it came to, or why it broke off.
    pub(super) verdict: Result<Verdict, &'static str>,
}

/// The work of one queue, over all its sessions.
pub(super) struct Work {
    base: QueueBase,
    /// Its own gauge, once it is needed.
    running: Option<IntGauge>,
    tasks: JoinSet<Verdict>,
    jobs: HashMap<Id, (Option<Key>, JobId)>,
    /// Begun for a delivery of a session that has ended.
    orphans: HashMap<JobId, Id>,
    /// Verdicts that are not settled yet.
    pub(super) unsettled: HashMap<JobId, Verdict>,
    /// Jobs that were out when a session of this process ended.
    out: HashSet<JobId>,
    /// Jobs that may be what kills this shard.
    pub(super) suspects: HashSet<JobId>,
}

/// Counts a job as running for as long as it does, however it ends.
struct Running(IntGauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Work {
    pub(super) fn new(base: QueueBase) -> Self {
        Self {
            base,
            running: None,
            tasks: JoinSet::new(),
            jobs: HashMap::new(),
            orphans: HashMap::new(),
            unsettled: HashMap::new(),
            out: HashSet::new(),
            suspects: HashSet::new(),
        }
    }

    /// Begins the work on a job, or takes over what an earlier session began.
    pub(super) fn start(&mut self, performer: &Arc<Performer>, key: Key, job: Arc<Job>, failures: u32, suspect: bool) {
        if !self.orphans.is_empty()
            && let Some(id) = self.orphans.remove(&job.id)
            && let Some((of, _)) = self.jobs.get_mut(&id)
        {
            *of = Some(key);
            return;
        }
        let id = job.id.clone();
        if let Some(verdict) = self.unsettled.get(&id).cloned() {
            let task = self.tasks.spawn(async move { verdict });
            self.jobs.insert(task.id(), (Some(key), id));
            return;
        }
        let gauge = || performer.ctx.metrics.jobs_running.with_label_values(&[self.base.as_str()]);
        let running = self.running.get_or_insert_with(gauge).clone();
        running.inc();
        let (performer, running) = (performer.clone(), Running(running));
        let task = self.tasks.spawn(async move {
            let _running = running;
            let began = Instant::now();
            let verdict = if suspect {
                Box::pin(performer.perform_alone(&job, failures)).await
            } else {
                performer.perform(&job, failures).await
            };
            performer.ctx.metrics.job_duration.observe(began.elapsed().as_secs_f64());
            verdict
        });
        self.jobs.insert(task.id(), (Some(key), id));
    }

    /// The next piece of work that ends; `None` when nothing is at work. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Worked> {
        let (id, verdict) = match self.tasks.join_next_with_id().await? {
            Ok((id, verdict)) => (id, Ok(verdict)),
            Err(failure) => (failure.id(), Err("the work panicked")),
        };
        let (key, job) = self.jobs.remove(&id)?;
        if key.is_none() {
            // Nobody has come for it yet: it is kept until somebody does.
            self.orphans.retain(|_, orphan| *orphan != id);
            if let Ok(verdict @ (Verdict::Done | Verdict::Bury { .. })) = &verdict {
                self.unsettled.insert(job, verdict.clone());
            }
        }
        Some(Worked { key, verdict })
    }

    /// A verdict is settled: whatever comes under this id again is another matter.
    pub(super) fn settled(&mut self, job: &JobId) {
        self.unsettled.remove(job);
        self.suspects.remove(job);
    }

    /// A session ends with these jobs out; another one may follow.
    pub(super) fn session_ended(&mut self, out: impl IntoIterator<Item = JobId>) {
        self.out.extend(out);
        self.out.extend(self.unsettled.keys().cloned());
        for (id, (key, job)) in &mut self.jobs {
            if key.take().is_some() {
                self.out.insert(job.clone());
                self.orphans.insert(job.clone(), *id);
            }
        }
    }

    /// Whether a job was out when an earlier session of this process ended. Asked once for each.
    pub(super) fn was_out(&mut self, job: &JobId) -> bool {
        self.out.remove(job)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Breaks off whatever is at work.
    pub(super) async fn abort(&mut self) {
        self.tasks.shutdown().await;
        self.jobs.clear();
        self.orphans.clear();
    }
}
