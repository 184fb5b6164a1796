//! What the health port shows, and where it comes from.
//!
//! One place composes it for the whole box (the primary; or the process itself where there is none), so that it is the
//! same whichever shard's socket the kernel picked.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Which part is wanted: probes are many and need little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// For `/readyz`.
    Ready,
    /// For `/metrics`.
    Metrics,
    /// For `/status`.
    Status,
}

/// The box, at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct View {
    /// Whether everything that should work does.
    pub ready: bool,
    /// Why not: each names the shard.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// Prometheus' text format.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metrics: String,
    /// For people and scripts.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub status: Value,
}

impl View {
    /// A copy that holds no more than a part needs, to be sent over the link.
    pub fn only(&self, part: Part) -> Self {
        Self {
            ready: self.ready,
            reasons: self.reasons.clone(),
            metrics: if part == Part::Metrics { self.metrics.clone() } else { String::new() },
            status: if part == Part::Status { self.status.clone() } else { Value::Null },
        }
    }
}

/// Who composes the view.
#[async_trait]
pub trait ViewSource: Send + Sync + 'static {
    /// The view as it is when this is called, or later. `None` when nobody can tell.
    async fn view(&self, part: Part) -> Option<View>;
}
