//! Every metric of a shard, in one file. Labels are few and closed; never a channel, a chat or an error text.

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, core::Collector,
};

use crate::{identity::QueueBase, queue::Depth};

/// The states in which a channel is being worked for, as the label `state` says them. The others wait for a person or
/// another owner.
pub const ACTIVE_STATES: [&str; 3] = ["connecting", "connected", "reconnecting"];

/// A metric that is not kept in a registry but told when it is asked for: name and help.
pub type Told = (&'static str, &'static str);

/// Per shard: whether it is alive and answers.
pub const SHARD_UP: Told = ("shardvisor_shard_up", "Whether the shard is alive and answers");
/// Per shard and reason: how often it was started again.
pub const SHARD_RESTARTS: Told = ("shardvisor_shard_restarts_total", "Restarts of the shard, by reason");
/// Per shard: since when this life goes on.
pub const SHARD_UPTIME: Told = ("shardvisor_shard_uptime_seconds", "Time since this life of the shard began");
/// Per shard: memory.
pub const SHARD_MEMORY: Told = ("shardvisor_shard_resident_memory_bytes", "Resident memory of the shard");
/// Per shard: CPU, over all its lives.
pub const SHARD_CPU: Told = ("shardvisor_shard_cpu_seconds_total", "CPU time of the shard, over all its lives");
/// The box: how many shards it should have.
pub const SHARDS: Told = ("shardvisor_shards", "Shards this box should run");
/// The box: what `/readyz` says.
pub const READY: Told = ("shardvisor_ready", "Whether every shard of the box is ready");
/// The box: which version.
pub const BUILD_INFO: Told = ("shardvisor_build_info", "Always 1; the version is in the label");
/// The primary: since when it runs.
pub const PRIMARY_UPTIME: Told = ("shardvisor_primary_uptime_seconds", "Time since the primary started");
/// The primary: memory.
pub const PRIMARY_MEMORY: Told = ("shardvisor_primary_resident_memory_bytes", "Resident memory of the primary");
/// The primary: CPU.
pub const PRIMARY_CPU: Told = ("shardvisor_primary_cpu_seconds_total", "CPU time of the primary");
/// The worker pool's names.
pub const WORKER_ACTIVE: Told = ("bot_worker_active_bots", "Bots the worker holds or is connecting");
/// How many it takes.
pub const WORKER_CAPACITY: Told = ("bot_worker_capacity", "Bots the worker takes at most");
/// Since when it runs.
pub const WORKER_UPTIME: Told = ("bot_worker_uptime_seconds", "Time since the worker started");
/// Of which platforms its bots are.
pub const WORKER_BY_TYPE: Told = ("bot_worker_bots_by_type", "Bots the worker holds or is connecting, by platform");

/// The metrics of one shard. The `shard` label is added where a box's shards are put together.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    /// Channels by platform and state.
    pub channels: IntGaugeVec,
    /// For how long the quietest connected channel of a platform has heard nothing from it.
    pub silence: IntGaugeVec,
    /// Connections that ended, by platform and reason.
    pub closed: IntCounterVec,
    /// Events stored, by platform.
    pub events_stored: IntCounterVec,
    /// Events that no destination was open for.
    pub events_undeliverable: IntCounter,
    /// Attempts to deliver an event, by destination and outcome.
    pub deliveries: IntCounterVec,
    /// Jobs settled, by queue base and outcome.
    pub jobs: IntCounterVec,
    /// Messages in this shard's queues, by queue base and state (`ready`, `parked`, `dead`).
    pub queue_messages: IntGaugeVec,
    /// Jobs that are being worked on, by queue base.
    pub jobs_running: IntGaugeVec,
    /// From the start of a job to its settlement.
    pub job_duration: Histogram,
    /// From a job's `enqueued_at` to the start of its work.
    pub job_wait: Histogram,
    /// Sends of which it is not known whether they reached the platform.
    pub uncertain: IntCounter,
    /// Jobs forwarded to another queue, by reason.
    pub forwarded: IntCounterVec,
    /// Writes refused since a newer owner exists.
    pub fenced: IntCounter,
    /// Whether a queue is read, by queue base.
    pub queue_subscribed: IntGaugeVec,
    /// Whether the registry answered when leases were renewed last.
    pub registry_reachable: IntGauge,
    /// Which directory is asked, by source (`store`, `api`, `postgres`): always 1.
    pub directory_source: IntGaugeVec,
    /// How old the directory's last good answer is.
    pub directory_age: IntGauge,
    /// Entries of its last answer that can't be used.
    pub directory_refused: IntGauge,
    /// Channels that it lists no longer and that go on until somebody confirms it.
    pub directory_held: IntGauge,
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    kept(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    kept(registry, IntGaugeVec::new(Opts::new(name, help), labels))
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    kept(registry, IntCounter::new(name, help))
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    kept(registry, IntGauge::new(name, help))
}

fn seconds(registry: &Registry, name: &str, help: &str) -> Histogram {
    let buckets = vec![0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
    kept(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)))
}

fn kept<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    // Names and labels are constants of this file: a bad or doubled one fails the first test that builds Metrics.
    let collector = made.expect("metric name and labels");
    registry.register(Box::new(collector.clone())).expect("metric registered once");
    collector
}

impl Default for Metrics {
    fn default() -> Self {
        let r = Registry::new();
        Self {
            channels: gauges(&r, "shardvisor_channels", "Channels by state", &["platform", "state"]),
            silence: gauges(
                &r,
                "shardvisor_channel_last_inbound_seconds",
                "Longest time since a connected channel last heard from its platform",
                &["platform"],
            ),
            closed: counters(
                &r,
                "shardvisor_channel_closed_total",
                "Connections that ended, by reason",
                &["platform", "reason"],
            ),
            events_stored: counters(&r, "shardvisor_events_stored_total", "Events stored", &["platform"]),
            events_undeliverable: counter(
                &r,
                "shardvisor_events_undeliverable_total",
                "Events stored that no destination was configured for",
            ),
            deliveries: counters(
                &r,
                "shardvisor_event_deliveries_total",
                "Attempts to deliver an event",
                &["destination", "outcome"],
            ),
            jobs: counters(&r, "shardvisor_jobs_total", "Jobs settled", &["queue", "outcome"]),
            queue_messages: gauges(
                &r,
                "shardvisor_queue_messages",
                "Messages in the work queue, waiting for a later time, and dead",
                &["queue", "state"],
            ),
            jobs_running: gauges(&r, "shardvisor_jobs_running", "Jobs being worked on", &["queue"]),
            job_duration: seconds(&r, "shardvisor_job_duration_seconds", "From start of work to settlement"),
            job_wait: seconds(&r, "shardvisor_job_wait_seconds", "From enqueued_at to start of work"),
            uncertain: counter(
                &r,
                "shardvisor_sends_uncertain_total",
                "Sends of which it is not known whether they reached the platform",
            ),
            forwarded: counters(&r, "shardvisor_jobs_forwarded_total", "Jobs moved to another queue", &["reason"]),
            fenced: counter(&r, "shardvisor_writes_fenced_total", "Writes refused since a newer owner exists"),
            queue_subscribed: gauges(
                &r,
                "shardvisor_queue_subscribed",
                "Whether the shard reads the queue",
                &["queue"],
            ),
            registry_reachable: gauge(
                &r,
                "shardvisor_registry_reachable",
                "Whether the registry answered when leases were renewed last",
            ),
            directory_source: gauges(
                &r,
                "shardvisor_directory_source",
                "Always 1; where wanted channels come from is in the label",
                &["source"],
            ),
            directory_age: gauge(
                &r,
                "shardvisor_directory_answer_age_seconds",
                "Time since the directory gave a good answer, or since the start when it gave none yet",
            ),
            directory_refused: gauge(
                &r,
                "shardvisor_directory_entries_refused",
                "Entries of the last answer that can't be used",
            ),
            directory_held: gauge(
                &r,
                "shardvisor_directory_removals_held",
                "Channels that the directory lists no longer and that go on until it is confirmed",
            ),
            registry: r,
        }
    }
}

impl Metrics {
    /// Notes how full a queue is.
    pub fn queue_depth(&self, base: QueueBase, depth: Depth) {
        for (state, messages) in [("ready", depth.ready), ("parked", depth.parked), ("dead", depth.dead)] {
            self.queue_messages.with_label_values(&[base.as_str(), state]).set(messages as i64);
        }
    }

    /// All families, as they stand.
    pub fn gather(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.registry.gather()
    }
}
