//! The view of the box: every shard's last report and what is known of its process, put together.
//!
//! Pure. The primary keeps one; so does a process that is its own only shard. A dead or hung shard is shown as such:
//! its gauges vanish, since they would tell what no longer is; its counters stay, since they tell what has been.

mod facts;
mod one_slot;
mod readiness;
mod status;
#[cfg(test)]
mod tests;
mod text;
mod totals;

use std::{collections::BTreeMap, mem};

use shard::{
    http::{Family, Kind, Report, View},
    metrics::{self, Told},
};

pub(crate) use facts::{PrimaryFacts, PrimaryProcess, SlotFacts};
pub(crate) use one_slot::{OneSlot, OwnFacts};

use text::Page;
use totals::Totals;

/// What has been heard of every slot.
#[derive(Debug, Default)]
pub(crate) struct BoxView {
    slots: BTreeMap<u32, Heard>,
}

/// What has been heard of one slot.
#[derive(Debug, Default)]
struct Heard {
    incarnation: u64,
    ended: bool,
    base: Totals,
    life: Totals,
    /// The last report, its counters taken out.
    last: Option<Report>,
}

impl BoxView {
    /// A shard reports. What comes late from a life that has ended is left out.
    pub(crate) fn report(&mut self, slot: u32, incarnation: u64, mut report: Report) {
        let heard = self.slots.entry(slot).or_default();
        if incarnation < heard.incarnation || (incarnation == heard.incarnation && heard.ended) {
            return;
        }
        heard.enter(incarnation);
        let (gauges, growing) = mem::take(&mut report.families).into_iter().partition(|f| f.kind == Kind::Gauge);
        heard.life.advance(growing);
        report.families = gauges;
        heard.last = Some(report);
    }

    /// A life has ended.
    pub(crate) fn lost(&mut self, slot: u32, incarnation: u64) {
        let heard = self.slots.entry(slot).or_default();
        if incarnation >= heard.incarnation {
            heard.enter(incarnation);
            heard.base.add(mem::take(&mut heard.life));
            heard.last = None;
            heard.ended = true;
        }
    }

    /// The view now.
    pub(crate) fn render(&self, slots: &[SlotFacts], primary: &PrimaryFacts) -> View {
        let reasons = readiness::reasons(self, slots, primary);
        let ready = reasons.is_empty();
        let metrics = self.page(slots, primary, ready).render();
        let status = status::status(self, slots, primary, &reasons);
        View { ready, reasons, metrics, status }
    }

    /// The report of the life that a slot is in, if it is up and has reported.
    fn current(&self, slot: &SlotFacts) -> Option<&Report> {
        let heard = self.slots.get(&slot.index)?;
        if slot.up && heard.incarnation == slot.incarnation { heard.last.as_ref() } else { None }
    }

    fn page(&self, slots: &[SlotFacts], primary: &PrimaryFacts, ready: bool) -> Page {
        let mut page = Page::default();
        page.put(gauge(metrics::SHARDS, slots.len() as f64));
        page.put(gauge(metrics::READY, f64::from(u8::from(ready))));
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        page.put(Family::told(metrics::BUILD_INFO, Kind::Gauge, [(version, 1.0)]));
        if let Some(process) = &primary.process {
            page.put(gauge(metrics::PRIMARY_UPTIME, process.uptime.as_secs_f64()));
            if let Some(usage) = process.usage {
                page.put(gauge(metrics::PRIMARY_MEMORY, usage.rss_bytes as f64));
                page.put(Family::told(metrics::PRIMARY_CPU, Kind::Counter, [(vec![], usage.cpu_seconds)]));
            }
        }
        for slot in slots {
            let shard = || ("shard", slot.index.to_string());
            let up = f64::from(u8::from(slot.up));
            page.put(Family::told(metrics::SHARD_UP, Kind::Gauge, [(vec![shard()], up)]));
            let restarts =
                slot.restarts.iter().map(|(reason, n)| (vec![("reason", reason.clone()), shard()], *n as f64));
            page.put(Family::told(metrics::SHARD_RESTARTS, Kind::Counter, restarts));
            let Some(heard) = self.slots.get(&slot.index) else { continue };
            for (name, total) in heard.base.plus(&heard.life) {
                for (labels, value) in total.series {
                    page.put_of_shard(slot.index, &name, &total.help, total.kind, labels, value);
                }
            }
            for family in self.current(slot).into_iter().flat_map(|report| &report.families) {
                for sample in family.samples.clone() {
                    let (name, help) = (&family.name, &family.help);
                    page.put_of_shard(slot.index, name, help, family.kind, sample.labels, sample.value);
                }
            }
        }
        page
    }
}

impl Heard {
    /// What follows is of this life.
    fn enter(&mut self, incarnation: u64) {
        if incarnation > self.incarnation {
            self.base.add(mem::take(&mut self.life));
            self.last = None;
            self.ended = false;
            self.incarnation = incarnation;
        }
    }
}

fn gauge(told: Told, value: f64) -> Family {
    Family::told(told, Kind::Gauge, [(vec![], value)])
}
