//! What a shard knows of itself at a moment. It is taken on the health thread, so that it is truthful also while the
//! work is stuck.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use serde_json::{Value, json};
use shard::{
    channel::State,
    http::{Report, ReportFacts, UsageSampler},
    metrics::Metrics,
    progress::Progress,
    standing::Standing,
};

use crate::config::Config;

/// How many channels that are not connected are listed by id.
const LISTED: usize = 50;

/// Everything that a report is made of.
#[derive(Clone)]
pub(super) struct Stock {
    pub(super) metrics: Arc<Metrics>,
    pub(super) progress: Progress,
    pub(super) standing: Standing,
    worker_id: String,
    capacity: u32,
    started: Instant,
    usage: Arc<Mutex<UsageSampler>>,
}

impl Stock {
    pub(super) fn new(config: &Config, index: u32) -> Self {
        Self {
            metrics: Arc::default(),
            progress: Progress::default(),
            standing: Standing::default(),
            worker_id: config.worker_id_of(index),
            capacity: config.bot_worker.worker_capacity,
            started: Instant::now(),
            usage: Arc::default(),
        }
    }

    /// The loops that do not get on.
    pub(super) fn stalled(&self) -> Vec<String> {
        self.progress.stalled().into_iter().map(|stalled| stalled.name.to_owned()).collect()
    }

    /// The epoch of the layout; 0 until it is published.
    pub(super) fn epoch(&self) -> u64 {
        self.standing.layout().map_or(0, |layout| layout.epoch)
    }

    pub(super) fn report(&self) -> Report {
        let usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner).sample();
        let facts = ReportFacts {
            not_ready: self.standing.not_ready(),
            worker_id: &self.worker_id,
            capacity: self.capacity,
            uptime: self.started.elapsed(),
            usage,
            status: self.status(),
        };
        Report::collect(&self.metrics, facts)
    }

    fn status(&self) -> Value {
        let states = self.standing.roster().map(|roster| roster.states()).unwrap_or_default();
        let apart: Vec<Value> = states
            .iter()
            .filter(|status| status.state != State::Connected)
            .take(LISTED)
            .map(|status| {
                json!({
                    "id": status.channel.to_string(), "platform": status.platform.as_str(),
                    "state": status.state.as_str(), "reason": status.reason, "since_ms": status.since_ms,
                })
            })
            .collect();
        json!({"epoch": self.epoch(), "not_connected": apart})
    }
}
