//! What a shard tells the primary about itself with a check-in: its metrics, whether it is ready, what it uses.
//!
//! Small and plain, since it goes over the link once a second. The `shard` label is not in it: whoever puts a box's
//! shards together adds it.

use std::{collections::BTreeMap, time::Duration};

use prometheus::proto::{Metric, MetricFamily, MetricType};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::usage::Usage;
use crate::metrics::{self, ACTIVE_STATES, Metrics, Told};

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts in buckets; only grows.
    Histogram,
}

impl Kind {
    /// As the text format has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// All series of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Family {
    /// The metric's name.
    pub name: String,
    /// What it means.
    pub help: String,
    /// How it behaves.
    pub kind: Kind,
    /// Its series.
    pub samples: Vec<Sample>,
}

/// One series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// Where it stands.
    pub value: SampleValue,
}

/// Where a series stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SampleValue {
    /// A counter or gauge.
    Number(f64),
    /// A histogram.
    Histogram(Histogram),
}

/// Observations in buckets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper bounds, ascending, without the infinite one.
    pub bounds: Vec<f64>,
    /// How many were at or below each bound.
    pub counts: Vec<u64>,
    /// How many there were.
    pub count: u64,
    /// What they add up to.
    pub sum: f64,
}

/// A shard, as it saw itself when it wrote this.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Why it is not ready; `None` when it is.
    pub not_ready: Option<String>,
    /// Its worker id.
    pub worker_id: String,
    /// Its version.
    pub version: String,
    /// Seconds since it started.
    pub uptime_seconds: f64,
    /// Memory and CPU.
    pub usage: Option<Usage>,
    /// How many channels, by platform and state.
    pub channels: BTreeMap<String, BTreeMap<String, u64>>,
    /// How many messages, by queue base and state.
    pub queues: BTreeMap<String, BTreeMap<String, u64>>,
    /// Whatever else `/status` shows of it: an object.
    pub status: Value,
    /// Its metrics.
    pub families: Vec<Family>,
}

/// What a report says beside the metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportFacts<'a> {
    /// Why the shard is not ready; `None` when it is.
    pub not_ready: Option<String>,
    /// Its worker id.
    pub worker_id: &'a str,
    /// How many channels it takes.
    pub capacity: u32,
    /// Time since it started.
    pub uptime: Duration,
    /// From its [`super::UsageSampler`].
    pub usage: Option<Usage>,
    /// Whatever else `/status` shows of it: an object, or null.
    pub status: Value,
}

impl Report {
    /// Takes stock.
    pub fn collect(metrics: &Metrics, facts: ReportFacts<'_>) -> Self {
        let mut families: Vec<Family> = metrics.gather().iter().filter_map(family).collect();
        let channels = by_two_labels(&families, "shardvisor_channels", "platform", "state");
        let queues = by_two_labels(&families, "shardvisor_queue_messages", "queue", "state");
        let uptime_seconds = facts.uptime.as_secs_f64();
        families.push(Family::told(metrics::SHARD_UPTIME, Kind::Gauge, [(vec![], uptime_seconds)]));
        if let Some(usage) = facts.usage {
            families.push(Family::told(metrics::SHARD_MEMORY, Kind::Gauge, [(vec![], usage.rss_bytes as f64)]));
            families.push(Family::told(metrics::SHARD_CPU, Kind::Counter, [(vec![], usage.cpu_seconds)]));
        }
        families.extend(worker_families(&facts, &channels));
        Self {
            not_ready: facts.not_ready,
            worker_id: facts.worker_id.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds,
            usage: facts.usage,
            channels,
            queues,
            status: facts.status,
            families,
        }
    }
}

impl Family {
    /// A family of plain numbers.
    pub fn told(told: Told, kind: Kind, samples: impl IntoIterator<Item = (Vec<(&'static str, String)>, f64)>) -> Self {
        let sample = |(labels, value): (Vec<(&str, String)>, f64)| Sample {
            labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            value: SampleValue::Number(value),
        };
        Self {
            name: told.0.to_owned(),
            help: told.1.to_owned(),
            kind,
            samples: samples.into_iter().map(sample).collect(),
        }
    }
}

fn worker_families(facts: &ReportFacts<'_>, channels: &BTreeMap<String, BTreeMap<String, u64>>) -> [Family; 4] {
    let worker = || vec![("worker_id", facts.worker_id.to_owned())];
    let active = |states: &BTreeMap<String, u64>| -> f64 {
        ACTIVE_STATES.iter().filter_map(|state| states.get(*state)).sum::<u64>() as f64
    };
    let by_type = channels.iter().map(|(platform, states)| {
        let mut labels = worker();
        labels.push(("type", platform.clone()));
        (labels, active(states))
    });
    [
        Family::told(metrics::WORKER_ACTIVE, Kind::Gauge, [(worker(), channels.values().map(active).sum())]),
        Family::told(metrics::WORKER_CAPACITY, Kind::Gauge, [(worker(), f64::from(facts.capacity))]),
        Family::told(metrics::WORKER_UPTIME, Kind::Gauge, [(worker(), facts.uptime.as_secs_f64())]),
        Family::told(metrics::WORKER_BY_TYPE, Kind::Gauge, by_type),
    ]
}

fn by_two_labels(
    families: &[Family],
    name: &str,
    first: &str,
    second: &str,
) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut found = BTreeMap::<String, BTreeMap<String, u64>>::new();
    for sample in families.iter().filter(|family| family.name == name).flat_map(|family| &family.samples) {
        let label =
            |wanted: &str| sample.labels.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
        if let (Some(a), Some(b), SampleValue::Number(value)) = (label(first), label(second), &sample.value) {
            found.entry(a).or_default().insert(b, *value as u64);
        }
    }
    found
}

fn family(family: &MetricFamily) -> Option<Family> {
    let kind = match family.get_field_type() {
        MetricType::COUNTER => Kind::Counter,
        MetricType::GAUGE => Kind::Gauge,
        MetricType::HISTOGRAM => Kind::Histogram,
        _ => return None,
    };
    let samples: Vec<Sample> = family.get_metric().iter().filter_map(|metric| sample(kind, metric)).collect();
    (!samples.is_empty()).then(|| Family {
        name: family.name().to_owned(),
        help: family.help().to_owned(),
        kind,
        samples,
    })
}

/// JSON has no word for what is not finite, and one bad number must not cost the whole report.
fn sample(kind: Kind, metric: &Metric) -> Option<Sample> {
    let value = match kind {
        Kind::Counter => SampleValue::Number(finite(metric.get_counter().get_value())?),
        Kind::Gauge => SampleValue::Number(finite(metric.get_gauge().get_value())?),
        Kind::Histogram => {
            let histogram = metric.get_histogram();
            let buckets = histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite());
            let (bounds, counts) = buckets.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count())).unzip();
            let sum = finite(histogram.get_sample_sum())?;
            SampleValue::Histogram(Histogram { bounds, counts, count: histogram.get_sample_count(), sum })
        }
    };
    let labels = metric.get_label().iter().map(|pair| (pair.name().to_owned(), pair.value().to_owned())).collect();
    Some(Sample { labels, value })
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ReportFacts<'static> {
        ReportFacts {
            not_ready: None,
            worker_id: "box-1",
            capacity: 1000,
            uptime: Duration::from_millis(61_500),
            usage: Some(Usage { rss_bytes: 14 << 20, cpu_seconds: 1.25 }),
            status: serde_json::json!({"claim": "done"}),
        }
    }

    fn value<'a>(report: &'a Report, name: &str, label: &str) -> &'a SampleValue {
        let family = report.families.iter().find(|family| family.name == name).unwrap_or_else(|| panic!("no {name}"));
        let has = |sample: &&Sample| label.is_empty() || sample.labels.iter().any(|(_, value)| value == label);
        &family.samples.iter().find(has).unwrap_or_else(|| panic!("no {label}")).value
    }

    /// Contract: H2.
    #[test]
    fn a_report_has_the_worker_metrics_and_survives_the_link() {
        let metrics = Metrics::default();
        metrics.channels.with_label_values(&["telegram", "connected"]).set(40);
        metrics.channels.with_label_values(&["telegram", "reconnecting"]).set(2);
        metrics.channels.with_label_values(&["telegram", "logged_out"]).set(5);
        metrics.channels.with_label_values(&["slack", "connected"]).set(3);
        metrics.queue_depth(crate::identity::QueueBase::Main, crate::queue::Depth { ready: 7, parked: 1, dead: 0 });
        metrics.job_wait.observe(0.3);
        let report = Report::collect(&metrics, facts());
        let text = serde_json::to_string(&report).expect("json");
        let report: Report = serde_json::from_str(&text).expect("what was written");
        assert_eq!(report, Report::collect(&metrics, facts()));
        assert_eq!(value(&report, "bot_worker_active_bots", "box-1"), &SampleValue::Number(45.0));
        assert_eq!(value(&report, "bot_worker_capacity", "box-1"), &SampleValue::Number(1000.0));
        assert_eq!(value(&report, "bot_worker_uptime_seconds", "box-1"), &SampleValue::Number(61.5));
        assert_eq!(value(&report, "bot_worker_bots_by_type", "telegram"), &SampleValue::Number(42.0));
        assert_eq!(value(&report, "shardvisor_shard_cpu_seconds_total", ""), &SampleValue::Number(1.25));
        let SampleValue::Histogram(wait) = value(&report, "shardvisor_job_wait_seconds", "") else { panic!("kind") };
        assert_eq!((wait.count, wait.counts.last()), (1, Some(&1)));
        assert_eq!(wait.bounds.len(), wait.counts.len());
        assert_eq!(report.channels["telegram"]["logged_out"], 5);
        assert_eq!(report.queues["whatsapp"]["ready"], 7);
        assert!(text.len() < 8 * 1024, "{} bytes go over the link each second", text.len());
    }

    #[test]
    fn a_number_that_json_does_not_know_costs_its_series_only() {
        let metrics = Metrics::default();
        metrics.job_wait.observe(f64::NAN);
        metrics.job_duration.observe(1.0);
        let report = Report::collect(&metrics, facts());
        let back: Report = serde_json::from_str(&serde_json::to_string(&report).expect("json")).expect("parses");
        assert!(back.families.iter().all(|family| family.name != "shardvisor_job_wait_seconds"));
        assert!(back.families.iter().any(|family| family.name == "shardvisor_job_duration_seconds"));
    }
}
