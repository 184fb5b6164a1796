//! A view is good for a moment: a thousand probes a second need not be a thousand renderings.
//!
//! It is kept where the view is composed and nowhere else, so that all shards show the same one and counters read
//! through them in turn don't go back. A change of what probes ask about is never held back.

use std::{sync::Arc, time::Duration};

use shard::http::View;

use super::{BoxView, PrimaryFacts, SlotFacts};

/// For how long a rendering is shown when nothing was heard meanwhile.
const FRESH: Duration = Duration::from_millis(100);

/// The last rendering and what it was made of.
#[derive(Debug, Default)]
pub(super) struct Cache(Option<Kept>);

#[derive(Debug)]
struct Kept {
    at: Duration,
    slots: Vec<SlotFacts>,
    closing: bool,
    view: Arc<View>,
}

impl Cache {
    /// What it holds is out of date.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

impl BoxView {
    /// The view at a time on a clock that does not jump; rendered anew when a report came, a slot or the phase of the
    /// box changed, or the last rendering is old.
    pub(crate) fn view(&mut self, now: Duration, slots: &[SlotFacts], primary: &PrimaryFacts) -> Arc<View> {
        if let Some(kept) = &self.cache.0
            && now.saturating_sub(kept.at) < FRESH
            && kept.slots == slots
            && kept.closing == primary.closing
        {
            return kept.view.clone();
        }
        let view = Arc::new(self.render(slots, primary));
        let kept = Kept { at: now, slots: slots.to_vec(), closing: primary.closing, view: view.clone() };
        self.cache.0 = Some(kept);
        view
    }
}
