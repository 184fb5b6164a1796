//! What is counted for an app.

use std::{collections::BTreeMap, time::Instant};

/// Counts of one app.
#[derive(Debug, Clone, Default)]
pub struct AppStats {
    /// Requests by method.
    pub requests: BTreeMap<String, u64>,
    /// When each `apps.connections.open` came that was not refused by a fault.
    pub opens: Vec<Instant>,
    /// Sockets that were greeted.
    pub hellos: u64,
    /// Sockets that are greeted and open at this moment.
    pub live: usize,
    /// The most of them that were open at once.
    pub most_live: usize,
    /// How often the last of them closed.
    pub gaps: u64,
    /// Envelopes sent, each time counted.
    pub delivered: u64,
    /// Of these, retries.
    pub retried: u64,
    /// Acknowledgements of envelopes that were open.
    pub acked: u64,
    /// Acknowledgements that came too late, or of envelopes that nobody knows.
    pub strays: u64,
    /// What nobody has acknowledged.
    pub pending: usize,
    /// What will not be tried again before an app connects anew.
    pub given_up: usize,
    /// Pings of the client.
    pub pings: u64,
    /// Close frames of the client.
    pub closes: u64,
    /// Messages of people.
    pub messages_in: u64,
    /// Messages of the bot.
    pub messages_out: u64,
}

impl AppStats {
    /// Requests of one method.
    pub fn requests_of(&self, method: &str) -> u64 {
        self.requests.get(method).copied().unwrap_or(0)
    }

    pub(super) fn opened(&mut self) {
        self.hellos += 1;
        self.live += 1;
        self.most_live = self.most_live.max(self.live);
    }

    pub(super) fn closed(&mut self) {
        self.live -= 1;
        self.gaps += u64::from(self.live == 0);
    }
}
