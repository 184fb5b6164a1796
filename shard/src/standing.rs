//! How a shard stands, for whoever reports it: ready, or what it lacks.
//!
//! A shard is ready when its first claim pass is over and it has what it needs outside of itself: a subscription to each of its
//! queues, a registry that answers. What it had and lost for a moment is had again before anybody need know; what stays away is told,
//! so that a connection that went quiet shows before users notice.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use crate::{channel::RosterHandle, registry::Layout};

/// What was lost may be away for so long before that is told.
const MOMENT: Duration = Duration::from_secs(3);

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct Standing(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    waits_for: Option<String>,
    ready: bool,
    stopping: bool,
    layout: Option<Layout>,
    roster: Option<RosterHandle>,
    lacks: BTreeMap<String, Lack>,
}

struct Lack {
    why: String,
    /// Since when; nothing, where it was never had.
    since: Option<Instant>,
}

impl Inner {
    /// What has been away for longer than a moment.
    fn lacking(&self) -> Option<String> {
        let told = |lack: &&Lack| lack.since.is_none_or(|since| since.elapsed() >= MOMENT);
        let (what, lack) = self.lacks.iter().find(|(_, lack)| told(lack))?;
        Some(format!("{what}: {}", lack.why))
    }
}

impl Standing {
    /// Why it is not ready; `None` when it is.
    pub fn not_ready(&self) -> Option<String> {
        let inner = self.0.lock().expect("standing");
        match (&inner.waits_for, inner.ready, inner.stopping) {
            (_, _, true) => Some("stopping".to_owned()),
            (Some(why), _, _) => Some(why.clone()),
            (None, ready, _) => inner.lacking().or_else(|| (!ready).then(|| "starting".to_owned())),
        }
    }

    /// Whether what it lacks lies outside of this process.
    pub fn waits(&self) -> bool {
        let inner = self.0.lock().expect("standing");
        (inner.waits_for.is_some() || inner.lacking().is_some()) && !inner.stopping
    }

    /// Notes what it waits for, or that it waits for nothing more.
    pub fn waits_for(&self, what: Option<String>) {
        self.set(|inner| inner.waits_for = what);
    }

    /// Notes that something it needs isn't there, and why.
    pub fn lacks(&self, what: &str, why: impl Into<String>) {
        let why = why.into();
        self.set(|inner| match inner.lacks.get_mut(what) {
            Some(lack) => lack.why = why,
            None => {
                let since = inner.ready.then(Instant::now);
                inner.lacks.insert(what.to_owned(), Lack { why, since });
            }
        });
    }

    /// Notes that it has something it needs.
    pub fn has(&self, what: &str) {
        self.set(|inner| drop(inner.lacks.remove(what)));
    }

    /// The layout in force, once it is published.
    pub fn layout(&self) -> Option<Layout> {
        self.0.lock().expect("standing").layout
    }

    /// The channels, once they are claimed.
    pub fn roster(&self) -> Option<RosterHandle> {
        self.0.lock().expect("standing").roster.clone()
    }

    pub(crate) fn published(&self, layout: Layout) {
        self.set(|inner| (inner.layout, inner.waits_for) = (Some(layout), None));
    }

    pub(crate) fn holds(&self, roster: RosterHandle) {
        self.set(|inner| inner.roster = Some(roster));
    }

    /// The first claim pass is over.
    pub(crate) fn claimed(&self) {
        self.set(|inner| inner.ready = true);
    }

    pub(crate) fn stops(&self) {
        self.set(|inner| inner.stopping = true);
    }

    fn set(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.0.lock().expect("standing"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALMOST: Duration = Duration::from_millis(2_900);
    const REST: Duration = Duration::from_millis(200);

    /// Field report R25. Contract: H1.
    #[tokio::test(start_paused = true)]
    async fn what_is_lost_for_more_than_a_moment_is_told_until_it_is_back() {
        let standing = Standing::default();
        standing.claimed();
        assert_eq!(standing.not_ready(), None);
        standing.lacks("queue whatsapp-0", "connection refused");
        tokio::time::advance(ALMOST).await;
        standing.lacks("queue whatsapp-0", "host unreachable");
        assert_eq!(standing.not_ready(), None);
        tokio::time::advance(REST).await;
        assert_eq!(standing.not_ready().as_deref(), Some("queue whatsapp-0: host unreachable"));
        assert!(standing.waits());
        standing.has("queue whatsapp-0");
        assert_eq!((standing.not_ready(), standing.waits()), (None, false));
    }

    /// Contract: H1.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_ready_before_it_has_all_it_needs() {
        let standing = Standing::default();
        standing.lacks("queue whatsapp-0", "not subscribed yet");
        assert_eq!(standing.not_ready().as_deref(), Some("queue whatsapp-0: not subscribed yet"));
        standing.has("queue whatsapp-0");
        assert_eq!(standing.not_ready().as_deref(), Some("starting"));
        standing.claimed();
        assert_eq!(standing.not_ready(), None);
        standing.stops();
        assert_eq!(standing.not_ready().as_deref(), Some("stopping"));
    }
}
