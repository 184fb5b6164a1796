//! What a job's work came to, and the headers that say so in a queue.

use std::time::Duration;

use crate::queue::{Headers, RetryPolicy};

/// What is to become of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Done, and its result stored: it goes.
    Done,
    /// To be tried again.
    Postpone {
        /// After how long.
        after: Duration,
        /// The error, where this was an attempt that failed; `None` where only the time was not right.
        failure: Option<String>,
    },
    /// To be tried again when its channel is up: others need the room.
    GiveWay,
    /// It can't be done, and the event that says so is stored: it goes to the dead letters.
    Bury {
        /// A word of the closed list.
        reason: &'static str,
        /// What happened, for people.
        error: String,
    },
}

/// The longest error text that is kept beside a job.
const LONGEST_ERROR: usize = 500;

/// Writes a failed attempt into the headers.
pub(crate) fn note_failure(headers: &mut Headers, error: &str) {
    let error: String = error.chars().take(LONGEST_ERROR).collect();
    headers.attempts += 1;
    headers.first_error.get_or_insert_with(|| error.clone());
    headers.last_error = Some(error);
}

/// Writes into the headers why a message is a dead letter. `reason` is a word of the closed list; what is behind it follows.
pub(crate) fn note_death(headers: &mut Headers, reason: &str, error: &str, origin: &str, now_ms: i64) {
    let error: String = error.chars().take(LONGEST_ERROR).collect();
    headers.first_error.get_or_insert_with(|| error.clone());
    headers.reason = Some(format!("{reason}: {error}"));
    headers.last_error = Some(error);
    headers.origin = Some(origin.to_owned());
    headers.died_at_ms = Some(now_ms);
    headers.lane_seq = None;
}

/// A failed attempt: another one later, or the end when this was the last.
pub(crate) fn failed_attempt(policy: &RetryPolicy, failures_before: u32, error: String) -> Verdict {
    match policy.after(failures_before + 1, rand::random()) {
        Some(after) => Verdict::Postpone { after, failure: Some(error) },
        None => Verdict::Bury { reason: "exhausted", error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract: Q4.
    #[test]
    fn the_first_and_the_last_error_are_kept() {
        let mut headers = Headers::default();
        note_failure(&mut headers, "one");
        note_failure(&mut headers, &"two ".repeat(1_000));
        assert_eq!(headers.attempts, 2);
        assert_eq!(headers.first_error.as_deref(), Some("one"));
        assert_eq!(headers.last_error.as_ref().map(String::len), Some(LONGEST_ERROR));
        note_death(&mut headers, "exhausted", "three", "whatsapp-1", 7);
        assert_eq!(headers.reason.as_deref(), Some("exhausted: three"));
        assert_eq!(headers.first_error.as_deref(), Some("one"));
    }

    /// Contract: Q4.
    #[test]
    fn the_eighth_failure_is_the_end() {
        let policy = RetryPolicy::default();
        assert!(matches!(failed_attempt(&policy, 6, "e".into()), Verdict::Postpone { .. }));
        assert_eq!(failed_attempt(&policy, 7, "e".into()), Verdict::Bury { reason: "exhausted", error: "e".into() });
    }
}
