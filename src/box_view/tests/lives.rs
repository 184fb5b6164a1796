//! Random lives: whatever happens to shards and reports, what was counted stays counted.

use std::collections::BTreeMap;

use proptest::prelude::*;
use shard::http::{Family, Histogram, Kind, Sample, SampleValue};

use super::{validator::validate, *};

#[derive(Debug, Clone)]
enum Step {
    /// Works and observes.
    Work { slot: u32, jobs: u64, took: f64 },
    /// Its check-in arrives.
    Report(u32),
    /// It is silent; what it reports gets lost.
    Silent(u32),
    /// It dies; perhaps nobody says so before the next life reports.
    Die { slot: u32, told: bool },
    /// What it reported first arrives once more, and so does a report of the life before.
    Late(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0_u32..3;
    prop_oneof![
        4 => (slot.clone(), 0_u64..5, 0.0..3.0).prop_map(|(slot, jobs, took)| Step::Work { slot, jobs, took }),
        4 => slot.clone().prop_map(Step::Report),
        1 => slot.clone().prop_map(Step::Silent),
        2 => (slot.clone(), any::<bool>()).prop_map(|(slot, told)| Step::Die { slot, told }),
        1 => slot.prop_map(Step::Late),
    ]
}

/// A shard in one of its lives. Every other life is of a version that has other buckets.
#[derive(Debug, Clone, Default)]
struct Life {
    number: u64,
    jobs: u64,
    took: Vec<f64>,
    up: bool,
}

impl Life {
    fn report(&self) -> Report {
        let bounds = if self.number.is_multiple_of(2) { vec![0.5, 1.0, 2.0] } else { vec![0.25, 1.0] };
        let counts = bounds.iter().map(|b| self.took.iter().filter(|t| *t <= b).count() as u64).collect();
        let histogram = Histogram { bounds, counts, count: self.took.len() as u64, sum: self.took.iter().sum::<f64>() };
        let timed = Family {
            name: "took_seconds".to_owned(),
            help: "How long".to_owned(),
            kind: Kind::Histogram,
            samples: vec![Sample { labels: vec![], value: SampleValue::Histogram(histogram) }],
        };
        let jobs = Family::told(("jobs_total", "Jobs"), Kind::Counter, [(vec![], self.jobs as f64)]);
        let now = Family::told(("now", "Now"), Kind::Gauge, [(vec![], 1.0)]);
        // A counter without a value yet is not told at all.
        let families = if self.jobs == 0 { vec![timed, now] } else { vec![timed, jobs, now] };
        Report { families, ..Report::default() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Contract: H2. Field report R52.
    #[test]
    fn counters_and_histograms_never_go_back(steps in proptest::collection::vec(step(), 1..120)) {
        let mut view = BoxView::default();
        let mut lives: Vec<Life> = vec![Life { number: 1, up: true, ..Life::default() }; 3];
        let mut ended: Vec<Option<Life>> = vec![None; 3];
        let mut stale: Vec<Option<Life>> = vec![None; 3];
        let mut before = BTreeMap::<String, f64>::new();
        // What must be on the page: all that was ever reported in time.
        let mut reported = [(0_u64, 0_u64); 3];
        for step in steps {
            match step {
                Step::Work { slot, jobs, took } => {
                    lives[slot as usize].jobs += jobs;
                    lives[slot as usize].took.push(took);
                }
                Step::Report(slot) => {
                    let life = &mut lives[slot as usize];
                    life.up = true;
                    stale[slot as usize].get_or_insert_with(|| life.clone());
                    view.report(slot, life.number, life.report());
                    reported[slot as usize].1 = life.jobs;
                }
                Step::Silent(slot) => lives[slot as usize].up = false,
                Step::Die { slot, told } => {
                    let at = slot as usize;
                    if told {
                        view.lost(slot, lives[at].number);
                    }
                    let next = Life { number: lives[at].number + 1, up: false, ..Life::default() };
                    stale[at] = None;
                    ended[at] = Some(std::mem::replace(&mut lives[at], next));
                    // A death that nobody told of ends with the next life's first report; until then a late report
                    // still counts, so the next life reports at once.
                    if !told {
                        view.report(slot, lives[at].number, lives[at].report());
                    }
                    reported[at] = (reported[at].0 + reported[at].1, 0);
                }
                Step::Late(slot) => {
                    if let Some(life) = &stale[slot as usize] {
                        view.report(slot, life.number, life.report());
                    }
                    if let Some(life) = &ended[slot as usize] {
                        view.report(slot, life.number, Life { jobs: life.jobs + 100, ..life.clone() }.report());
                    }
                }
            }
            let slots: Vec<SlotFacts> = (0..3)
                .map(|i| SlotFacts { up: lives[i as usize].up, ..super::slot(i, lives[i as usize].number) })
                .collect();
            let page = view.render(&slots, &primary()).metrics;
            let now = validate(&page).map_err(|why| TestCaseError::fail(format!("{why}\n{page}")))?;
            for (series, value) in &before {
                let growing = ["jobs_total", "took_seconds_sum", "took_seconds_count", "took_seconds_bucket"];
                if growing.iter().any(|name| series.starts_with(name)) {
                    let later = now.get(series).copied().unwrap_or_default();
                    prop_assert!(later + 1e-9 >= *value, "{} went from {} to {}", series, value, later);
                }
            }
            for (slot, (base, life)) in reported.iter().enumerate() {
                let shown = number(&page, &format!("jobs_total{{shard=\"{slot}\"}}")).unwrap_or_default();
                prop_assert_eq!(shown, (base + life) as f64, "shard {}", slot);
            }
            for slot in slots.iter().filter(|slot| !slot.up) {
                let gone = format!("now{{shard=\"{}\"}}", slot.index);
                prop_assert!(!page.contains(&gone));
            }
            before = now;
        }
    }
}
