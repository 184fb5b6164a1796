//! Prometheus' text format, version 0.0.4.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Write,
};

use shard::http::{Family, Histogram, Kind, SampleValue};

use super::totals::Labels;

/// Families by name, each with the series of all shards.
#[derive(Debug, Default)]
pub(super) struct Page(BTreeMap<String, Block>);

#[derive(Debug)]
struct Block {
    help: String,
    kind: Kind,
    series: BTreeMap<Labels, SampleValue>,
}

impl Page {
    /// A family of the box as a whole.
    pub(super) fn put(&mut self, family: Family) {
        for sample in family.samples {
            self.series(&family.name, &family.help, family.kind, sample.labels, sample.value);
        }
    }

    /// One series of a shard.
    pub(super) fn put_of_shard(
        &mut self,
        shard: u32,
        name: &str,
        help: &str,
        kind: Kind,
        mut labels: Labels,
        value: SampleValue,
    ) {
        labels.retain(|(name, _)| name != "shard");
        labels.push(("shard".to_owned(), shard.to_string()));
        self.series(name, help, kind, labels, value);
    }

    fn series(&mut self, name: &str, help: &str, kind: Kind, labels: Labels, value: SampleValue) {
        let block = match self.0.entry(name.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Block { help: help.to_owned(), kind, series: BTreeMap::new() }),
        };
        // Shards of two versions may disagree on what a name means; one page can't hold both.
        if block.kind == kind {
            block.series.insert(labels, value);
        }
    }

    /// The page.
    pub(super) fn render(&self) -> String {
        let mut page = String::new();
        for (name, block) in &self.0 {
            // Writing to a String can't fail.
            let _ = writeln!(page, "# HELP {name} {}", block.help.replace('\\', "\\\\").replace('\n', "\\n"));
            let _ = writeln!(page, "# TYPE {name} {}", block.kind.as_str());
            for (labels, value) in &block.series {
                match value {
                    SampleValue::Number(value) => line(&mut page, name, "", labels, None, *value),
                    SampleValue::Histogram(value) => histogram(&mut page, name, labels, value),
                }
            }
        }
        page
    }
}

fn histogram(page: &mut String, name: &str, labels: &Labels, value: &Histogram) {
    for (bound, count) in value.bounds.iter().zip(&value.counts) {
        line(page, name, "_bucket", labels, Some(&bound.to_string()), *count as f64);
    }
    line(page, name, "_bucket", labels, Some("+Inf"), value.count as f64);
    line(page, name, "_sum", labels, None, value.sum);
    line(page, name, "_count", labels, None, value.count as f64);
}

fn line(page: &mut String, name: &str, suffix: &str, labels: &Labels, bound: Option<&str>, value: f64) {
    page.push_str(name);
    page.push_str(suffix);
    let labels = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut before = '{';
    for (name, value) in labels.chain(bound.map(|bound| ("le", bound))) {
        page.push(before);
        before = ',';
        page.push_str(name);
        page.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => page.push_str("\\\\"),
                '"' => page.push_str("\\\""),
                '\n' => page.push_str("\\n"),
                c => page.push(c),
            }
        }
        page.push('"');
    }
    if before == ',' {
        page.push('}');
    }
    let _ = writeln!(page, " {value}");
}
