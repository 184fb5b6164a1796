//! The view of a process that is its own only shard. There is no primary to ask: the health thread takes stock itself,
//! so that it answers truthfully also while the rest of the process is stuck.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use shard::http::{Part, Report, View, ViewSource};

use super::{BoxView, PrimaryFacts, SlotFacts};

/// What the process knows of itself at a moment.
#[derive(Debug)]
pub(crate) struct OwnFacts {
    /// Its slot; not up when one of its loops is stuck.
    pub(crate) slot: SlotFacts,
    /// The layout.
    pub(crate) primary: PrimaryFacts,
    /// Its metrics.
    pub(crate) report: Report,
}

/// Takes stock when it is asked to.
pub(crate) struct OneSlot<F> {
    view: Mutex<BoxView>,
    take_stock: F,
}

impl<F: Fn() -> OwnFacts + Send + Sync + 'static> OneSlot<F> {
    /// `take_stock` is called on the health thread: it must not wait for the work.
    pub(crate) fn new(take_stock: F) -> Self {
        Self { view: Mutex::default(), take_stock }
    }
}

impl<F> fmt::Debug for OneSlot<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneSlot").finish_non_exhaustive()
    }
}

#[async_trait]
impl<F: Fn() -> OwnFacts + Send + Sync + 'static> ViewSource for OneSlot<F> {
    async fn view(&self, part: Part) -> Option<View> {
        let OwnFacts { slot, primary, report } = (self.take_stock)();
        let slots = [slot];
        // A panic while rendering leaves the last reports as they were.
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        view.report(slots[0].index, slots[0].incarnation, report);
        Some(view.render(&slots, &primary).only(part))
    }
}
