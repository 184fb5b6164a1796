//! The page is valid, whatever is on it.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use shard::http::{Family, Kind};

use super::{validator::validate, *};

fn full_page() -> String {
    let mut view = BoxView::default();
    for index in 0..2 {
        let metrics = worked(10);
        metrics.closed.with_label_values(&["telegram", "transient"]).inc();
        metrics.events_stored.with_label_values(&["telegram"]).inc();
        metrics.deliveries.with_label_values(&["handler", "ok"]).inc();
        metrics.jobs_running.with_label_values(&["whatsapp"]).set(1);
        metrics.forwarded.with_label_values(&["other_shard"]).inc();
        metrics.queue_depth(shard::identity::QueueBase::Main, shard::queue::Depth { ready: 1, parked: 2, dead: 3 });
        metrics.job_wait.observe(2.0);
        view.report(index, 1, reported(&metrics, None));
    }
    view.render(&[slot(0, 1), slot(1, 1)], &primary()).metrics
}

/// Contract: H2.
#[test]
fn the_page_is_valid_and_every_sample_of_a_shard_is_labelled() {
    let page = full_page();
    let series = validate(&page).unwrap_or_else(|why| panic!("{why}\n{page}"));
    assert!(series.len() > 80, "{}", series.len());
    let of_the_box = ["shardvisor_shards{", "shardvisor_ready{", "shardvisor_build_info{", "shardvisor_primary_"];
    for name in series.keys() {
        let labelled = name.contains("\"shard\": ");
        assert!(labelled != of_the_box.iter().any(|start| name.starts_with(start)), "{name}");
    }
}

/// Contract: H2.
#[test]
fn promtool_finds_no_fault_with_the_page() {
    let tool = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut tool) = tool else {
        assert!(std::env::var_os("SERVERS").is_none(), "promtool is not in PATH");
        println!("SKIPPED: promtool is not in PATH; the strict validator beside this test has read the same page");
        return;
    };
    let mut input = tool.stdin.take().expect("stdin");
    input.write_all(full_page().as_bytes()).expect("written");
    drop(input);
    let output = tool.wait_with_output().expect("ended");
    let faults = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && faults.is_empty(), "{faults}");
}

#[test]
fn what_a_label_or_help_may_hold_does_not_break_the_page() {
    let mut view = BoxView::default();
    let labels = vec![("reason", "a \"quoted\\\n line, {x=1} ü".to_owned())];
    let family = Family::told(("x_total", "two\nlines \\ one"), Kind::Counter, [(labels, 1.0)]);
    view.report(0, 1, Report { families: vec![family], ..Report::default() });
    let page = view.render(&[slot(0, 1)], &primary()).metrics;
    validate(&page).unwrap_or_else(|why| panic!("{why}\n{page}"));
}

#[test]
fn two_versions_that_mean_different_things_by_a_name_share_a_valid_page() {
    let mut view = BoxView::default();
    let family = |kind| vec![Family::told(("x_total", "x"), kind, [(vec![], 1.0)])];
    view.report(0, 1, Report { families: family(Kind::Counter), ..Report::default() });
    view.report(1, 1, Report { families: family(Kind::Gauge), ..Report::default() });
    let page = view.render(&[slot(0, 1), slot(1, 1)], &primary()).metrics;
    validate(&page).unwrap_or_else(|why| panic!("{why}\n{page}"));
    assert!(page.contains("x_total{shard=\"0\"} 1") && !page.contains("x_total{shard=\"1\"}"));
}
