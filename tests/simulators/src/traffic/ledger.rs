//! Who said what and what came back: the counting, without clock or chat.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::summary::{Summary, percentile};

/// How one message of a bot is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The first answer to a message.
    Answered {
        /// Since the message.
        latency: Duration,
        /// Whether a later message of the same person had been answered before.
        out_of_order: bool,
    },
    /// The message had been answered before.
    Again,
    /// It answers nothing that was said in this chat.
    Unexpected,
}

#[derive(Debug)]
struct Said {
    user: usize,
    number: u64,
    at: Instant,
    answers: u32,
}

/// The books of all people.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    said: HashMap<String, Said>,
    latest_answered: HashMap<usize, u64>,
    latencies: Vec<u64>,
    out_of_order: u64,
    unexpected: u64,
    duplicated: u64,
}

impl Ledger {
    /// A person says something that nobody ever said.
    pub(super) fn say(&mut self, user: usize, number: u64, text: String, at: Instant) {
        self.said.insert(text, Said { user, number, at, answers: 0 });
    }

    /// A bot says something in this person's chat.
    pub(super) fn hear(&mut self, user: usize, text: &str, at: Instant) -> Outcome {
        let Some(said) = self.said.get_mut(text).filter(|said| said.user == user) else {
            self.unexpected += 1;
            return Outcome::Unexpected;
        };
        said.answers += 1;
        if said.answers > 1 {
            self.duplicated += u64::from(said.answers == 2);
            return Outcome::Again;
        }
        let latest = self.latest_answered.entry(user).or_default();
        let out_of_order = said.number < *latest;
        *latest = said.number.max(*latest);
        self.out_of_order += u64::from(out_of_order);
        let latency = at.saturating_duration_since(said.at);
        self.latencies.push(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        Outcome::Answered { latency, out_of_order }
    }

    /// How many messages wait for their answer.
    pub(super) fn open(&self) -> usize {
        self.said.len() - self.latencies.len()
    }

    pub(super) fn summary(&self) -> Summary {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Summary {
            received: count(self.said.len()),
            answered: count(self.latencies.len()) - self.duplicated,
            lost: count(self.open()),
            duplicated: self.duplicated,
            out_of_order: self.out_of_order,
            unexpected: self.unexpected,
            p50_ms: percentile(&sorted, 0.5),
            p99_ms: percentile(&sorted, 0.99),
            max_ms: percentile(&sorted, 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_answered_lost_or_duplicated_and_strays_are_told_apart() {
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        for (number, text) in ["a", "b", "c", "d"].into_iter().enumerate() {
            ledger.say(0, number as u64 + 1, text.into(), at(0));
        }
        let first = ledger.hear(0, "b", at(5));
        assert_eq!(first, Outcome::Answered { latency: Duration::from_millis(5), out_of_order: false });
        assert!(matches!(ledger.hear(0, "a", at(7)), Outcome::Answered { out_of_order: true, .. }));
        assert_eq!(ledger.hear(0, "b", at(8)), Outcome::Again);
        assert_eq!(ledger.hear(0, "b", at(9)), Outcome::Again);
        assert!(matches!(ledger.hear(0, "c", at(9)), Outcome::Answered { out_of_order: false, .. }));
        assert_eq!(ledger.hear(1, "d", at(9)), Outcome::Unexpected, "somebody else's chat");
        assert_eq!(ledger.hear(0, "never said", at(9)), Outcome::Unexpected);
        let summary = ledger.summary();
        assert_eq!((summary.received, summary.answered, summary.lost, summary.duplicated), (4, 2, 1, 1));
        assert_eq!((summary.out_of_order, summary.unexpected), (1, 2));
        assert_eq!((summary.p50_ms, summary.max_ms), (7.0, 9.0));
        assert!(!summary.is_clean());
    }
}
