//! What the traffic came to.

use serde::Serialize;

/// Counts and latencies, as people saw them. `received` = `answered` + `lost` + `duplicated`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Messages that people sent.
    pub received: u64,
    /// Messages with exactly one answer.
    pub answered: u64,
    /// Messages without an answer.
    pub lost: u64,
    /// Messages with more than one answer.
    pub duplicated: u64,
    /// Answers that came after the answer to a later message of the same person.
    pub out_of_order: u64,
    /// Messages of a bot that answer nothing that was said in this chat.
    pub unexpected: u64,
    /// Half of the answers came within this many milliseconds of their message.
    pub p50_ms: f64,
    /// 99 of 100 answers did.
    pub p99_ms: f64,
    /// All did.
    pub max_ms: f64,
}

impl Summary {
    /// Whether every message was answered once, in order, and nothing else was said.
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.duplicated == 0 && self.out_of_order == 0 && self.unexpected == 0
    }
}

/// The value that `part` of the sorted values don't exceed (nearest rank), in milliseconds.
pub(super) fn percentile(sorted_micros: &[u64], part: f64) -> f64 {
    let rank = (sorted_micros.len() as f64 * part).ceil() as usize;
    sorted_micros.get(rank.saturating_sub(1)).map_or(0.0, |micros| *micros as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let micros: Vec<u64> = (1..=200).map(|n| n * 1000).collect();
        assert_eq!(percentile(&micros, 0.5), 100.0);
        assert_eq!(percentile(&micros, 0.99), 198.0);
        assert_eq!(percentile(&micros, 1.0), 200.0);
        assert_eq!(percentile(&micros[..1], 0.5), 1.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
