//! `/status`: the box in JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{BoxView, PrimaryFacts, SlotFacts};

type Counts = BTreeMap<String, BTreeMap<String, u64>>;

pub(super) fn status(view: &BoxView, slots: &[SlotFacts], primary: &PrimaryFacts, reasons: &[String]) -> Value {
    let (mut channels, mut queues) = (Counts::new(), Counts::new());
    for report in slots.iter().filter_map(|slot| view.current(slot)) {
        add(&mut channels, &report.channels);
        add(&mut queues, &report.queues);
    }
    let primary_process = primary.process.map(|process| {
        json!({
            "pid": process.pid,
            "uptime_seconds": process.uptime.as_secs_f64(),
            "rss_bytes": process.usage.map(|usage| usage.rss_bytes),
            "cpu_seconds": process.usage.map(|usage| usage.cpu_seconds),
        })
    });
    json!({
        "shard_count": primary.shard_count,
        "epoch": primary.epoch,
        "version": env!("CARGO_PKG_VERSION"),
        "ready": reasons.is_empty(),
        "reasons": reasons,
        "layout": primary.layout,
        "primary": primary_process,
        "channels": channels,
        "queues": queues,
        "shards": slots.iter().map(|slot| shard(view, slot)).collect::<Vec<_>>(),
    })
}

fn add(sum: &mut Counts, counts: &Counts) {
    for (name, states) in counts {
        let sum = sum.entry(name.clone()).or_default();
        for (state, count) in states {
            *sum.entry(state.clone()).or_default() += count;
        }
    }
}

fn shard(view: &BoxView, slot: &SlotFacts) -> Value {
    let mut shard = json!({
        "index": slot.index,
        "pid": slot.pid,
        "incarnation": slot.incarnation,
        "up": slot.up,
        "ready": false,
        "phase": slot.phase,
        "reason": slot.reason,
        "restarts": slot.restarts,
    });
    if let (Some(report), Some(shard)) = (view.current(slot), shard.as_object_mut()) {
        let told = json!({
            "ready": report.not_ready.is_none(),
            "not_ready": report.not_ready,
            "worker_id": report.worker_id,
            "version": report.version,
            "uptime_seconds": report.uptime_seconds,
            "rss_bytes": report.usage.map(|usage| usage.rss_bytes),
            "cpu_seconds": report.usage.map(|usage| usage.cpu_seconds),
            "channels": report.channels,
            "queues": report.queues,
            "work": report.status,
        });
        if let Value::Object(told) = told {
            shard.extend(told);
        }
    }
    shard
}
