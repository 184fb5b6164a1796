//! A channel's face inside the shard: its settings as they are now, where it stands, when it was last heard.
//! Written by its actor and the roster, read by everybody who asks.

use std::sync::{
    Arc, Mutex, RwLock,
    atomic::{AtomicI64, Ordering},
};

use super::State;
use crate::{directory::ChannelSpec, metrics::Metrics, platform::PlatformKind};

/// Where a channel stands, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) state: State,
    pub(super) reason: Option<String>,
    pub(super) since_ms: i64,
}

pub(super) struct Post {
    platform: PlatformKind,
    spec: RwLock<Arc<ChannelSpec>>,
    standing: Mutex<Standing>,
    heard_ms: AtomicI64,
    metrics: Arc<Metrics>,
}

impl Post {
    /// A channel that waits for its lease.
    pub(super) fn new(spec: Arc<ChannelSpec>, metrics: Arc<Metrics>, now_ms: i64) -> Self {
        let standing =
            Standing { state: State::Connecting, reason: Some("waiting for its lease".into()), since_ms: now_ms };
        let post = Self {
            platform: spec.platform,
            spec: RwLock::new(spec),
            standing: Mutex::new(standing),
            heard_ms: AtomicI64::new(0),
            metrics,
        };
        post.count(State::Connecting, 1);
        post
    }

    pub(super) fn platform(&self) -> PlatformKind {
        self.platform
    }

    pub(super) fn spec(&self) -> Arc<ChannelSpec> {
        self.spec.read().expect("spec").clone()
    }

    pub(super) fn set_spec(&self, spec: Arc<ChannelSpec>) {
        *self.spec.write().expect("spec") = spec;
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing.lock().expect("standing").clone()
    }

    pub(super) fn stand(&self, state: State, reason: Option<String>, now_ms: i64) {
        let mut standing = self.standing.lock().expect("standing");
        standing.reason = reason;
        if standing.state != state {
            self.count(standing.state, -1);
            self.count(state, 1);
            standing.state = state;
            standing.since_ms = now_ms;
        }
    }

    pub(super) fn hear(&self, now_ms: i64) {
        self.heard_ms.store(now_ms, Ordering::Relaxed);
    }

    /// When the platform was last heard, if ever.
    pub(super) fn heard_ms(&self) -> Option<i64> {
        Some(self.heard_ms.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }

    fn count(&self, state: State, by: i64) {
        self.metrics.channels.with_label_values(&[self.platform.as_str(), state.as_str()]).add(by);
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        let state = self.standing.get_mut().expect("standing").state;
        self.count(state, -1);
    }
}
