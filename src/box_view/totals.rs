//! Counters and histograms over all lives of a slot.
//!
//! A life's counters start at zero. What the earlier lives came to is the base on which they stand, so that the sum
//! never goes back. What a life counted after its last report is lost with it.

use std::collections::BTreeMap;

use shard::http::{Family, Histogram, Kind, SampleValue};

/// Label names and values, in the order of the report.
pub(super) type Labels = Vec<(String, String)>;

/// One name's series.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Total {
    pub(super) help: String,
    pub(super) kind: Kind,
    pub(super) series: BTreeMap<Labels, SampleValue>,
}

/// Series that only grow, by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals(BTreeMap<String, Total>);

impl Totals {
    /// A later state of the same life. A series that is behind what was seen, or left out, stays where it was.
    pub(super) fn advance(&mut self, families: Vec<Family>) {
        self.combine(families.into_iter().map(from_family), grown);
    }

    /// Another life's end state, on top.
    pub(super) fn add(&mut self, other: Self) {
        self.combine(other.0, sum);
    }

    /// This and another, on top of each other.
    pub(super) fn plus(&self, other: &Self) -> BTreeMap<String, Total> {
        let mut both = self.clone();
        both.add(other.clone());
        both.0
    }

    fn combine(
        &mut self,
        families: impl IntoIterator<Item = (String, Total)>,
        join: fn(&SampleValue, SampleValue) -> SampleValue,
    ) {
        for (name, newer) in families {
            match self.0.get_mut(&name) {
                Some(known) if known.kind == newer.kind => {
                    known.help = newer.help;
                    for (labels, value) in newer.series {
                        let joined = match known.series.get(&labels) {
                            Some(old) => join(old, value),
                            None => value,
                        };
                        known.series.insert(labels, joined);
                    }
                }
                // New, or a newer version means something else by the name: the two can't be added.
                _ => drop(self.0.insert(name, newer)),
            }
        }
    }
}

fn from_family(family: Family) -> (String, Total) {
    let series = family.samples.into_iter().map(|sample| (sample.labels, sample.value)).collect();
    (family.name, Total { help: family.help, kind: family.kind, series })
}

fn grown(old: &SampleValue, new: SampleValue) -> SampleValue {
    let behind = match (old, &new) {
        (SampleValue::Number(old), SampleValue::Number(new)) => new < old,
        (SampleValue::Histogram(old), SampleValue::Histogram(new)) => new.count < old.count,
        _ => true,
    };
    if behind { old.clone() } else { new }
}

fn sum(base: &SampleValue, life: SampleValue) -> SampleValue {
    match (base, life) {
        (SampleValue::Number(base), SampleValue::Number(life)) => SampleValue::Number(base + life),
        (SampleValue::Histogram(base), SampleValue::Histogram(life)) => SampleValue::Histogram(both(base, &life)),
        (base, _) => base.clone(),
    }
}

/// Two histograms together. Lives of different versions may have different bounds: all are kept, so that no bucket
/// vanishes or shrinks.
fn both(base: &Histogram, life: &Histogram) -> Histogram {
    let mut bounds: Vec<f64> = base.bounds.iter().chain(&life.bounds).copied().collect();
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    let counts = bounds.iter().map(|bound| at_or_below(base, *bound) + at_or_below(life, *bound)).collect();
    Histogram { bounds, counts, count: base.count + life.count, sum: base.sum + life.sum }
}

/// How many of a histogram's observations were certainly at or below a bound, be it one of its own or not.
fn at_or_below(histogram: &Histogram, bound: f64) -> u64 {
    let known = histogram.bounds.iter().zip(&histogram.counts).take_while(|(known, _)| **known <= bound);
    known.last().map_or(0, |(_, count)| *count)
}
