//! Every metric of a shard, in one file. Labels are few and closed; never a channel, a chat or an error text.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry, core::Collector};

/// The metrics of one shard. The `shard` label is added where a box's shards are put together.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    /// Channels by platform and state.
    pub channels: IntGaugeVec,
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
            registry: r,
        }
    }
}

impl Metrics {
    /// All families, as they stand.
    pub fn gather(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.registry.gather()
    }
}
