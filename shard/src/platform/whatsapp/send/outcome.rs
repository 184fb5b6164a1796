//! What an error of the client, or a refusal of the server, means for a job. Pure.

use std::{fmt::Debug, time::Duration};

use whatsapp_rust::{ClientError, IqError, SendError, features::GroupError};

use super::refused;
use crate::platform::Failed;

/// The pause after the server has said that it was too much.
const PAUSE: Duration = Duration::from_secs(60);

/// The name of an error's variant: all of it that holds nobody's address.
pub(super) fn kind<E: Debug>(error: &E) -> String {
    let text = format!("{error:?}");
    text.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
}

/// A send that the client did not write.
pub(super) fn send_error(error: &SendError) -> Failed {
    match error {
        SendError::NotLoggedIn => Failed::NotConnected,
        SendError::InvalidRequest(_) => refused("rejected", "the message can't be sent to this chat"),
        SendError::Iq(error) => iq(error),
        SendError::Client(error) => client(error),
        other => Failed::Ambiguous { error: format!("the client failed: {}", kind(other)) },
    }
}

pub(super) fn client(error: &ClientError) -> Failed {
    match error {
        ClientError::NotConnected | ClientError::NotLoggedIn => Failed::NotConnected,
        ClientError::Iq(error) => iq(error),
        // The frame may have gone out before the socket broke.
        other => Failed::Ambiguous { error: format!("the client failed: {}", kind(other)) },
    }
}

/// A question that was not answered, or answered with a refusal.
pub(super) fn iq(error: &IqError) -> Failed {
    match error {
        IqError::NotConnected | IqError::Disconnected(_) | IqError::InternalChannelClosed => Failed::NotConnected,
        IqError::ServerError { code, backoff, .. } => {
            let after = backoff.map(|seconds| Duration::from_secs(u64::from(seconds)));
            let text = || format!("the server refused ({code})");
            match code {
                401 | 403 | 405 | 406 | 409 => Failed::Permanent { reason: "rejected", error: text() },
                404 | 410 => Failed::Permanent { reason: "bad_recipient", error: text() },
                400 => Failed::Permanent { reason: "rejected", error: text() },
                429 => Failed::Retry { error: text(), after: Some(after.unwrap_or(PAUSE)) },
                _ => Failed::Retry { error: text(), after },
            }
        }
        other => Failed::Ambiguous { error: format!("the client failed: {}", kind(other)) },
    }
}

pub(super) fn group(error: &GroupError) -> Failed {
    match error {
        GroupError::Iq(error) => iq(error),
        GroupError::InvalidRequest(_) => refused("rejected", "the group's change is not one that can be made"),
        GroupError::DescriptionConflict => {
            Failed::Retry { error: "somebody else changed the description meanwhile".to_owned(), after: None }
        }
        other => Failed::Ambiguous { error: format!("the client failed: {}", kind(other)) },
    }
}

/// A message that the server did not take.
pub(super) fn nack(code: &str) -> Failed {
    let text = |what: &str| format!("{what} ({code})");
    match code.parse::<u32>() {
        Ok(463) => Failed::Permanent {
            reason: "rejected",
            error: text("the account may not write to people who have not written to it"),
        },
        Ok(404) => Failed::Permanent { reason: "bad_recipient", error: text("there is no such recipient") },
        Ok(429) => Failed::Retry { error: text("too many messages"), after: Some(PAUSE) },
        // Stale lists of devices or of a group's people: the client has fetched them anew by the next try.
        Ok(406 | 409 | 421 | 475 | 479) => Failed::Retry { error: text("the server's view was newer"), after: None },
        Ok(400..=499) => Failed::Permanent { reason: "rejected", error: text("the server refused the message") },
        _ => Failed::Retry { error: text("the server could not take the message"), after: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(failed: &Failed) -> &'static str {
        match failed {
            Failed::Retry { after: None, .. } => "retry",
            Failed::Retry { after: Some(_), .. } => "later",
            Failed::Ambiguous { .. } => "ambiguous",
            Failed::Permanent { reason, .. } => reason,
            Failed::NotConnected => "not connected",
        }
    }

    /// Contract: Q4.
    #[test]
    fn a_refusal_is_final_only_when_it_is_about_the_message() {
        for (code, expected) in [
            ("463", "rejected"),
            ("404", "bad_recipient"),
            ("429", "later"),
            ("479", "retry"),
            ("400", "rejected"),
            ("500", "retry"),
            ("503", "retry"),
            ("what", "retry"),
        ] {
            assert_eq!(word(&nack(code)), expected, "{code}");
        }
        let answered = |code| IqError::ServerError { code, text: String::new(), error_type: None, backoff: None };
        for (error, expected) in [
            (answered(403), "rejected"),
            (answered(404), "bad_recipient"),
            (answered(429), "later"),
            (answered(500), "retry"),
            (IqError::NotConnected, "not connected"),
            (IqError::Timeout, "ambiguous"),
        ] {
            assert_eq!(word(&iq(&error)), expected, "{error:?}");
        }
    }

    #[test]
    fn an_errors_text_names_nobody() {
        let error = SendError::InvalidRequest("4915112345678@s.whatsapp.net is on no list".into());
        assert!(!format!("{:?}", send_error(&error)).contains("4915112345678"));
        assert_eq!(kind(&error), "InvalidRequest");
    }
}
