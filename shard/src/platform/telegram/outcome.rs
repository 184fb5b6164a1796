//! What a call that has no result means: for a poll, why the connection ended; for a send, whether it may have happened.
//! Pure.

use super::api::CallError;
use crate::platform::{Closed, Failed};

/// A poll without a result.
pub(super) fn closed(error: CallError) -> Closed {
    let reason = error.to_string();
    match error {
        CallError::NoToken => Closed::LoggedOut { reason },
        // A portal or proxy that answers 401 or 404 in its own words says nothing about the token.
        CallError::Unsent(_) | CallError::Lost(_) | CallError::Foreign { .. } => {
            Closed::Transient { reason, after: None }
        }
        CallError::Refused { code: 401 | 404, .. } => Closed::LoggedOut { reason },
        // The two conflicts differ in their words alone. Deleting the webhook would take the bot away from whoever set it.
        CallError::Refused { code: 409, description, .. } if description.contains("webhook") => Closed::Misconfigured {
            reason: "a webhook is set for this bot: delete it (deleteWebhook), or take the channel out".into(),
        },
        CallError::Refused { code: 409, .. } => Closed::Replaced { reason },
        CallError::Refused { retry_after, .. } => Closed::Transient { reason, after: retry_after },
    }
}

/// A send without a result.
///
/// Only two things prove that nothing was shown: that no connection was made, and that the Bot API (or, with a 4xx,
/// whatever stands before it) refused in so many words. A server error proves nothing: 502 and 504 are told by a front end
/// that may have passed the request on, and the Bot API's own 500 may come after the work. So does silence.
pub(super) fn failed(error: CallError) -> Failed {
    let text = error.to_string();
    let retry = |after| Failed::Retry { error: text.clone(), after };
    let permanent = |reason| Failed::Permanent { reason, error: text.clone() };
    match error {
        CallError::NoToken => permanent("logged_out"),
        CallError::Unsent(_) => retry(None),
        CallError::Lost(_) => Failed::Ambiguous { error: text },
        CallError::Foreign { status: 413 } => permanent("too_large"),
        // 408 and 499 tell that somebody stopped waiting, not that nothing was done.
        CallError::Foreign { status: 408 | 499 } => Failed::Ambiguous { error: text },
        CallError::Foreign { status: 400..=499 } => retry(None),
        CallError::Foreign { .. } => Failed::Ambiguous { error: text },
        CallError::Refused { code: 429, retry_after, .. } => retry(retry_after),
        CallError::Refused { code: 401 | 404, .. } => permanent("logged_out"),
        CallError::Refused { code: 403, .. } => permanent("bad_recipient"),
        CallError::Refused { code: 413, .. } => permanent("too_large"),
        CallError::Refused { code: 409, .. } => retry(None),
        CallError::Refused { code: 400..=499, description, .. } => {
            let says = |words: &[&str]| {
                let description = description.to_ascii_lowercase();
                words.iter().any(|word| description.contains(word))
            };
            if says(&["chat not found", "user not found", "peer_id_invalid", "user_deactivated", "chat_id is empty"]) {
                permanent("bad_recipient")
            } else if says(&["too big", "too large"]) {
                permanent("too_large")
            } else if says(&["failed to get http url content"]) {
                // The platform fetches the file, and its host may be back in a moment. Nothing was shown.
                retry(None)
            } else {
                permanent("rejected")
            }
        }
        CallError::Refused { .. } => Failed::Ambiguous { error: text },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused(code: u16, description: &str) -> CallError {
        CallError::Refused { code, description: description.into(), retry_after: None, migrated_to: None }
    }

    fn word(failed: &Failed) -> &'static str {
        match failed {
            Failed::Retry { .. } => "retry",
            Failed::Ambiguous { .. } => "ambiguous",
            Failed::Permanent { reason, .. } => reason,
            Failed::NotConnected => "not connected",
        }
    }

    /// Contract: Q4, Q8.
    #[test]
    fn a_send_is_tried_again_only_when_it_certainly_did_not_happen() {
        for (error, expected) in [
            (CallError::Unsent("refused".into()), "retry"),
            (CallError::Lost("reset".into()), "ambiguous"),
            (CallError::Foreign { status: 200 }, "ambiguous"),
            (CallError::Foreign { status: 302 }, "ambiguous"),
            (CallError::Foreign { status: 403 }, "retry"),
            (CallError::Foreign { status: 408 }, "ambiguous"),
            (CallError::Foreign { status: 413 }, "too_large"),
            (CallError::Foreign { status: 502 }, "ambiguous"),
            (CallError::Foreign { status: 504 }, "ambiguous"),
            (refused(500, "Internal Server Error"), "ambiguous"),
            (refused(502, "Bad Gateway"), "ambiguous"),
            (refused(400, "Bad Request: chat not found"), "bad_recipient"),
            (refused(400, "Bad Request: message text is empty"), "rejected"),
            (refused(400, "Bad Request: file is too big"), "too_large"),
            (refused(400, "Bad Request: failed to get HTTP URL content"), "retry"),
            (refused(401, "Unauthorized"), "logged_out"),
            (refused(403, "Forbidden: bot was blocked by the user"), "bad_recipient"),
            (refused(404, "Not Found"), "logged_out"),
            (refused(429, "Too Many Requests"), "retry"),
            (CallError::NoToken, "logged_out"),
        ] {
            assert_eq!(word(&failed(error.clone())), expected, "{error}");
        }
    }

    /// Field report R22.
    #[test]
    fn a_retry_after_is_passed_on() {
        let after = Some(Duration::from_secs(10_072));
        let error =
            || CallError::Refused { code: 429, description: String::new(), retry_after: after, migrated_to: None };
        assert!(matches!(failed(error()), Failed::Retry { after: told, .. } if told == after));
        assert!(matches!(closed(error()), Closed::Transient { after: told, .. } if told == after));
    }

    /// Field reports R19, R21.
    #[test]
    fn a_conflict_is_told_from_a_webhook_and_a_dead_token_from_a_proxy() {
        let other = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
        let webhook = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete it";
        assert!(matches!(closed(refused(409, other)), Closed::Replaced { .. }));
        assert!(matches!(closed(refused(409, webhook)), Closed::Misconfigured { .. }));
        assert!(matches!(closed(refused(401, "Unauthorized")), Closed::LoggedOut { .. }));
        assert!(matches!(closed(refused(404, "Not Found")), Closed::LoggedOut { .. }));
        assert!(matches!(closed(CallError::Foreign { status: 401 }), Closed::Transient { .. }));
        assert!(matches!(closed(refused(500, "Internal Server Error")), Closed::Transient { .. }));
    }
}
