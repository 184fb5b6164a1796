//! What the box shows as shards come, work, hang and die.

mod lives;
mod page;
mod validator;

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use shard::{
    http::{Part, Report, ReportFacts, Usage, ViewSource},
    metrics::Metrics,
};

use super::*;

fn slot(index: u32, incarnation: u64) -> SlotFacts {
    SlotFacts {
        index,
        pid: Some(4000 + index as i32),
        incarnation,
        up: true,
        phase: "ready".to_owned(),
        reason: None,
        restarts: BTreeMap::from([("crash".to_owned(), incarnation - 1), ("oom".to_owned(), 0)]),
    }
}

fn primary() -> PrimaryFacts {
    let usage = Some(Usage { rss_bytes: 5 << 20, cpu_seconds: 0.5 });
    PrimaryFacts {
        shard_count: 2,
        epoch: 3,
        layout: json!({"placement": "slot"}),
        closing: false,
        process: Some(PrimaryProcess { pid: 4711, uptime: Duration::from_secs(9), usage }),
    }
}

/// A shard's metrics after some work.
fn worked(jobs: u64) -> Metrics {
    let metrics = Metrics::default();
    metrics.channels.with_label_values(&["telegram", "connected"]).set(20);
    metrics.silence.with_label_values(&["telegram"]).set(4);
    metrics.jobs.with_label_values(&["whatsapp", "done"]).inc_by(jobs);
    for _ in 0..jobs {
        metrics.job_duration.observe(0.02);
    }
    metrics
}

fn reported(metrics: &Metrics, not_ready: Option<&str>) -> Report {
    let facts = ReportFacts {
        not_ready: not_ready.map(str::to_owned),
        worker_id: "box-0",
        capacity: 1000,
        uptime: Duration::from_secs(5),
        usage: Some(Usage { rss_bytes: 20 << 20, cpu_seconds: 2.0 }),
        status: json!({"lanes": 7}),
    };
    Report::collect(metrics, facts)
}

fn two_ready() -> (BoxView, Vec<SlotFacts>) {
    let mut view = BoxView::default();
    view.report(0, 1, reported(&worked(10), None));
    view.report(1, 1, reported(&worked(5), None));
    (view, vec![slot(0, 1), slot(1, 1)])
}

fn number(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Contract: H1.
#[test]
fn the_box_is_ready_when_every_shard_is() {
    let (view, slots) = two_ready();
    let view = view.render(&slots, &primary());
    assert_eq!((view.ready, view.reasons.len()), (true, 0));
    assert_eq!(number(&view.metrics, "shardvisor_ready"), Some(1.0));
}

/// Contract: H1.
#[test]
fn what_is_in_the_way_is_named_with_its_shard() {
    let mut view = BoxView::default();
    let reasons = |view: &BoxView, slots: &[SlotFacts], primary: &PrimaryFacts| view.render(slots, primary).reasons;
    assert_eq!(reasons(&view, &[], &primary()), ["no shard has been started"]);
    let mut slots = [slot(0, 1), slot(1, 2)];
    view.report(1, 1, reported(&worked(1), None));
    assert_eq!(reasons(&view, &slots, &primary()), ["shard 0: not heard from yet", "shard 1: not heard from yet"]);
    view.report(0, 1, reported(&worked(1), Some("first claim under way")));
    view.report(1, 2, reported(&worked(1), None));
    assert_eq!(reasons(&view, &slots, &primary()), ["shard 0: not ready: first claim under way"]);
    view.report(0, 1, reported(&worked(1), None));
    slots[1].up = false;
    slots[1].phase = "backoff".to_owned();
    slots[1].reason = Some("killed by signal 9".to_owned());
    assert_eq!(reasons(&view, &slots, &primary()), ["shard 1: down: backoff: killed by signal 9"]);
    slots[1] = slot(1, 2);
    assert_eq!(reasons(&view, &slots, &PrimaryFacts { closing: true, ..primary() }), ["shutting down"]);
}

/// Contract: H2. Field report R52.
#[test]
fn a_dead_shard_keeps_its_counters_and_loses_its_gauges() {
    let (mut view, mut slots) = two_ready();
    let jobs = "shardvisor_jobs_total{outcome=\"done\",queue=\"whatsapp\",shard=\"1\"}";
    let channels = "shardvisor_channels{platform=\"telegram\",state=\"connected\",shard=\"1\"}";
    let up = "shardvisor_shard_up{shard=\"1\"}";
    let before = view.render(&slots, &primary()).metrics;
    assert_eq!(
        [up, jobs, channels].map(|series| number(&before, series)),
        [Some(1.0), Some(5.0), Some(20.0)],
        "{before}"
    );
    // Silent: shown so before anybody knows that it is dead.
    slots[1].up = false;
    let silent = view.render(&slots, &primary()).metrics;
    assert_eq!([up, jobs, channels].map(|series| number(&silent, series)), [Some(0.0), Some(5.0), None]);
    view.lost(1, 1);
    let dead = view.render(&slots, &primary()).metrics;
    assert_eq!([up, jobs, channels].map(|series| number(&dead, series)), [Some(0.0), Some(5.0), None]);
    // The next life counts from zero; the box goes on.
    slots[1] = slot(1, 2);
    view.report(1, 2, reported(&worked(2), None));
    let again = view.render(&slots, &primary()).metrics;
    assert_eq!([up, jobs, channels].map(|series| number(&again, series)), [Some(1.0), Some(7.0), Some(20.0)]);
    let count = number(&again, "shardvisor_job_duration_seconds_count{shard=\"1\"}");
    let bucket = number(&again, "shardvisor_job_duration_seconds_bucket{shard=\"1\",le=\"0.025\"}");
    assert_eq!((count, bucket), (Some(7.0), Some(7.0)));
    assert_eq!(number(&again, "shardvisor_shard_cpu_seconds_total{shard=\"1\"}"), Some(4.0));
}

/// Contract: H2.
#[test]
fn a_report_from_a_life_that_has_ended_changes_nothing() {
    let (mut view, mut slots) = two_ready();
    view.lost(1, 1);
    view.report(1, 1, reported(&worked(500), None));
    slots[1].incarnation = 2;
    view.report(1, 2, reported(&worked(1), None));
    view.report(1, 1, reported(&worked(500), None));
    view.lost(1, 1);
    let page = view.render(&slots, &primary()).metrics;
    let jobs = "shardvisor_jobs_total{outcome=\"done\",queue=\"whatsapp\",shard=\"1\"}";
    assert_eq!(number(&page, jobs), Some(6.0));
    assert_eq!(number(&page, "shardvisor_shard_uptime_seconds{shard=\"1\"}"), Some(5.0));
}

/// Contract: H2, I4.
#[test]
fn status_tells_the_layout_and_each_shard() {
    let (view, mut slots) = two_ready();
    let status = view.render(&slots, &primary()).status;
    assert_eq!(status["shard_count"], 2);
    assert_eq!(status["epoch"], 3);
    assert_eq!(status["layout"]["placement"], "slot");
    assert_eq!(status["channels"]["telegram"]["connected"], 40);
    let shard = &status["shards"][1];
    assert_eq!((&shard["index"], &shard["pid"], &shard["up"]), (&json!(1), &json!(4001), &json!(true)));
    assert_eq!((&shard["rss_bytes"], &shard["cpu_seconds"]), (&json!(20 << 20), &json!(2.0)));
    assert_eq!((&shard["work"]["lanes"], &shard["channels"]["telegram"]["connected"]), (&json!(7), &json!(20)));
    slots[1].up = false;
    let status = view.render(&slots, &primary()).status;
    assert_eq!(status["channels"]["telegram"]["connected"], 20);
    assert_eq!((&status["shards"][1]["ready"], status["shards"][1].get("rss_bytes")), (&json!(false), None));
}

/// Contract: P2, P3.
#[tokio::test]
async fn a_process_that_is_its_own_only_shard_answers_for_itself() {
    let one = OneSlot::new(|| OwnFacts {
        slot: slot(1, 7),
        primary: PrimaryFacts { process: None, ..primary() },
        report: reported(&worked(3), None),
    });
    let ready = one.view(Part::Ready).await.expect("view");
    assert_eq!((ready.ready, ready.metrics.as_str()), (true, ""));
    let page = one.view(Part::Metrics).await.expect("view").metrics;
    assert_eq!(number(&page, "shardvisor_shard_up{shard=\"1\"}"), Some(1.0));
    assert_eq!(number(&page, "bot_worker_active_bots{worker_id=\"box-0\",shard=\"1\"}"), Some(20.0));
    assert!(!page.contains("shardvisor_primary"), "there is none");
    assert_eq!(one.view(Part::Status).await.expect("view").status["shards"][0]["incarnation"], 7);
}
