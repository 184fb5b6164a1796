//! What people saw, judged: each job once, those of one chat in the order in which they were published.

use std::collections::HashSet;

use shard::{
    identity::{QueueBase, ShardId},
    job::Job,
    queue::Queue,
};

use crate::stand::{Failure, jobs::Spread};

/// The text of a job, by which it is recognized wherever it is shown.
pub(super) fn text(number: u32) -> String {
    format!("job {number}")
}

/// Which job a text is of.
pub(super) fn number(text: &str) -> Option<u32> {
    text.strip_prefix("job ")?.parse().ok()
}

/// What was shown so far.
pub(super) struct Judge {
    spread: Spread,
    /// For each job, how often it was shown: each time under another id.
    times: Vec<u8>,
    /// For each lane, the last of its jobs that was shown for the first time.
    last: Vec<Option<u32>>,
    shown: u64,
    twice: u64,
    out_of_order: u64,
}

/// A dead letter.
pub(super) struct Dead {
    job: u32,
    reason: String,
}

/// What it all comes to.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    pub(super) shown: u64,
    pub(super) twice: u64,
    pub(super) out_of_order: u64,
    pub(super) lost: Vec<u32>,
    pub(super) uncertain: u64,
    pub(super) dead: Vec<String>,
}

impl Judge {
    pub(super) fn new(spread: Spread, jobs: u32) -> Self {
        let lanes = spread.channels * spread.chats;
        let (times, last) = (vec![0; jobs as usize], vec![None; lanes as usize]);
        Self { spread, times, last, shown: 0, twice: 0, out_of_order: 0 }
    }

    /// How many jobs were shown.
    pub(super) fn shown(&self) -> u64 {
        self.shown
    }

    /// A message appeared under an id that its chat had not seen.
    pub(super) fn see(&mut self, job: u32) {
        let Some(times) = self.times.get_mut(job as usize) else { return };
        *times = times.saturating_add(1);
        if *times > 1 {
            self.twice += 1;
            return;
        }
        self.shown += 1;
        let last = &mut self.last[(job % (self.spread.channels * self.spread.chats)) as usize];
        if last.is_some_and(|last| last > job) {
            self.out_of_order += 1;
        } else {
            *last = Some(job);
        }
    }

    /// A job is lost that was neither shown nor is a dead letter.
    pub(super) fn verdicts(&self, dead: &[Dead]) -> Verdicts {
        let mut verdicts =
            Verdicts { shown: self.shown, twice: self.twice, out_of_order: self.out_of_order, ..Verdicts::default() };
        let uncertain: HashSet<u32> = dead.iter().filter(|dead| dead.is_uncertain()).map(|dead| dead.job).collect();
        let others = dead.iter().filter(|dead| !dead.is_uncertain());
        verdicts.dead = others.map(|dead| format!("job {}: {}", dead.job, dead.reason)).collect();
        let known: HashSet<u32> = dead.iter().map(|dead| dead.job).collect();
        let jobs = self.times.iter().zip(0..);
        let lost = jobs.filter(|(times, job)| **times == 0 && !known.contains(job));
        verdicts.lost = lost.map(|(_, job)| job).collect();
        verdicts.uncertain = uncertain.len() as u64;
        verdicts
    }
}

impl Dead {
    fn is_uncertain(&self) -> bool {
        self.reason.starts_with("uncertain")
    }
}

/// All that lies in the dead-letter queues.
pub(super) async fn dead_letters(queue: &dyn Queue, shards: u32) -> Result<Vec<Dead>, Failure> {
    let mut all = Vec::new();
    for index in 0..shards {
        let name = ShardId::new(index, shards).queue(QueueBase::Main);
        let (mut after, page) = (0, 1000);
        loop {
            let found = queue.dead(name, after, page).await?;
            let last = found.len() < page;
            for letter in found {
                after = letter.number;
                let job = Job::parse(&letter.message.body)?;
                let job = job.id.as_str().strip_prefix("job-").and_then(|number| number.parse().ok());
                let reason = letter.message.headers.reason.unwrap_or_default();
                all.push(Dead { job: job.ok_or("a dead letter that is no job of this run")?, reason });
            }
            if last {
                break;
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge() -> Judge {
        Judge::new(Spread { channels: 2, chats: 2, shards: 2 }, 8)
    }

    #[test]
    fn each_job_once_and_in_order_is_what_is_wanted() {
        let mut judge = judge();
        [1, 0, 2, 5, 3, 4, 7, 6].into_iter().for_each(|job| judge.see(job));
        let verdicts = judge.verdicts(&[]);
        assert_eq!((verdicts.shown, verdicts.twice, verdicts.out_of_order, verdicts.lost.len()), (8, 0, 0, 0));
    }

    #[test]
    fn what_went_wrong_is_told_apart() {
        let mut judge = judge();
        [4, 0, 1, 1, 2].into_iter().for_each(|job| judge.see(job));
        let dead = |job, reason: &str| Dead { job, reason: reason.to_owned() };
        let verdicts = judge.verdicts(&[dead(3, "uncertain: w"), dead(5, "exhausted: x"), dead(5, "exhausted: x")]);
        assert_eq!((verdicts.shown, verdicts.twice, verdicts.out_of_order), (4, 1, 1));
        assert_eq!((verdicts.lost, verdicts.uncertain), (vec![6, 7], 1));
        assert_eq!(verdicts.dead.len(), 2);
    }
}
