//! How a run ended.

use std::{fmt, time::Duration};

/// What was done to the shards and to what is around them.
#[derive(Debug, Clone, Default)]
pub struct Suffered {
    /// Shards that were killed.
    pub kills: u32,
    /// Shards that ended by themselves, since they could not prove that they were still wanted.
    pub ends: u32,
    /// Restarts of the broker.
    pub broker_restarts: u32,
    /// Restarts of Redis.
    pub redis_restarts: u32,
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// What replays it.
    pub seed: u64,
    /// How many jobs there were.
    pub jobs: u32,
    /// Publishes that were repeated, since their confirm did not come: such a job may be in its queue twice.
    pub repeated: u64,
    /// Jobs that were shown.
    pub shown: u64,
    /// Jobs shown under a second id.
    pub twice: u64,
    /// Jobs shown after one of their lane that came later.
    pub out_of_order: u64,
    /// Jobs that were not shown and are no dead letters.
    pub lost: Vec<u32>,
    /// Jobs that are dead letters since it is not known whether they were shown.
    pub uncertain: u64,
    /// What else is a dead letter.
    pub dead: Vec<String>,
    /// Whether there may be no dead letter at all.
    pub must_show_all: bool,
    /// What was done to the shards.
    pub suffered: Suffered,
    /// How long it took until nothing waited any more.
    pub took: Duration,
}

impl Report {
    /// Whether all that was promised was kept.
    pub fn holds(&self) -> bool {
        let none = self.lost.is_empty() && self.twice == 0 && self.out_of_order == 0 && self.dead.is_empty();
        none && (!self.must_show_all || (self.uncertain == 0 && self.shown == u64::from(self.jobs)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, jobs, shown, lost, twice, out_of_order, uncertain, suffered, .. } = self;
        let Suffered { kills, ends, broker_restarts, redis_restarts } = suffered;
        writeln!(
            f,
            "seed {seed}: {jobs} jobs in {:.1} s; {kills} shards killed, {ends} ended by themselves, {broker_restarts} \
             restarts of the broker, {redis_restarts} of Redis; {} publishes repeated",
            self.took.as_secs_f64(),
            self.repeated,
        )?;
        let lost_jobs = lost.len();
        write!(
            f,
            "shown {shown}, lost {lost_jobs}, shown twice {twice}, out of order {out_of_order}, uncertain {uncertain}"
        )?;
        if let Some(first) = lost.first() {
            write!(f, "\nthe first lost: job {first}")?;
        }
        for dead in self.dead.iter().take(20) {
            write!(f, "\ndead letter: {dead}")?;
        }
        Ok(())
    }
}
