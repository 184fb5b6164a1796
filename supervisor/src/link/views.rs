//! Who waits for a view of the box. However many ask at once, one request is under way, and nobody gets an answer that
//! may have been made before the question: whoever comes later is served by the next request.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use serde_json::value::RawValue;
use tokio::sync::oneshot;

/// A view that has not come after this long is asked for again.
const VIEW_PATIENCE: Duration = Duration::from_secs(1);

/// See the module's words.
#[derive(Debug, Default)]
pub(super) struct Views(Mutex<ViewState>);

type Answer = oneshot::Sender<Arc<RawValue>>;

#[derive(Debug, Default)]
struct ViewState {
    last: u64,
    under_way: Option<Instant>,
    /// Served by the request that is under way.
    waiting: Vec<Answer>,
    /// Came later: what is under way may be older than they are.
    next: Vec<Answer>,
    lost: bool,
}

impl Views {
    fn lock(&self) -> MutexGuard<'_, ViewState> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Notes who asks; with an id, a request has to go out.
    pub(super) fn ask(&self, answer: Answer) -> Option<u64> {
        let mut state = self.lock();
        if state.lost {
            return None;
        }
        state.next.push(answer);
        state.next.retain(|answer| !answer.is_closed());
        let patient = state.under_way.is_some_and(|since| since.elapsed() < VIEW_PATIENCE);
        (!patient).then(|| state.begin())
    }

    /// An answer has come; with an id, the next request has to go out.
    pub(super) fn answered(&self, id: u64, payload: Box<RawValue>) -> Option<u64> {
        let mut state = self.lock();
        if id != state.last {
            return None;
        }
        let view: Arc<RawValue> = payload.into();
        for answer in std::mem::take(&mut state.waiting) {
            // Who asked may have gone.
            let _ = answer.send(view.clone());
        }
        state.under_way = None;
        (!state.next.is_empty()).then(|| state.begin())
    }

    /// Nobody will answer any more.
    pub(super) fn lose(&self) {
        *self.lock() = ViewState { lost: true, ..ViewState::default() };
    }

    /// How many wait for a request that has not gone out.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.lock().next.len()
    }
}

impl ViewState {
    fn begin(&mut self) -> u64 {
        self.last += 1;
        self.under_way = Some(Instant::now());
        let next = std::mem::take(&mut self.next);
        self.waiting.extend(next);
        self.last
    }
}
