//! What a call that has no result means: for a connection, how it ended; for a send, whether it may have happened. Pure.

use super::api::CallError;
use crate::platform::{Closed, Failed};

/// Words that say that a token is dead: only a person can help.
const DEAD: [&str; 10] = [
    "not_authed",
    "invalid_auth",
    "account_inactive",
    "user_removed_from_team",
    "team_disabled",
    "token_revoked",
    "token_expired",
    "not_allowed_token_type",
    "app_not_found",
    "team_not_found",
];
/// Words that say that something has to be set up otherwise.
const MISCONFIGURED: [&str; 8] = [
    "missing_scope",
    "access_denied",
    "no_permission",
    "org_login_required",
    "ekm_access_denied",
    "two_factor_setup_required",
    "enterprise_is_restricted",
    "forbidden_team",
];
/// Words that say that it may work again in a moment and was not done.
const PASSING: [&str; 3] = ["service_unavailable", "request_timeout", "team_added_to_org"];
/// Words after which a part of the work may have been done, as the platform itself says.
const UNSURE: [&str; 2] = ["fatal_error", "internal_error"];

/// A socket that could not be opened, or an app that could not show itself.
pub(super) fn closed(error: &CallError, what: &str) -> Closed {
    let reason = format!("{what}: {error}");
    match error {
        CallError::Unsent(_) | CallError::Lost(_) | CallError::Foreign { .. } => {
            Closed::Transient { reason, after: None }
        }
        CallError::Limited { after } => Closed::Transient { reason, after: Some(*after) },
        CallError::Refused { word } => match word.as_str() {
            word if DEAD.contains(&word) => Closed::LoggedOut { reason },
            word if MISCONFIGURED.contains(&word) => Closed::Misconfigured { reason },
            word if PASSING.contains(&word) || UNSURE.contains(&word) => Closed::Transient { reason, after: None },
            _ => Closed::Rejected { reason },
        },
    }
}

/// A send without a result.
///
/// Only three things prove that nothing was shown: that no connection was made, a 429, and a refusal in a word of the Web
/// API's that doesn't itself leave it open. A page of a front end proves nothing, and neither does silence.
pub(super) fn failed(error: &CallError) -> Failed {
    let text = error.to_string();
    match error {
        CallError::Unsent(_) => Failed::Retry { error: text, after: None },
        CallError::Limited { after } => Failed::Retry { error: text, after: Some(*after) },
        CallError::Lost(_) => Failed::Ambiguous { error: text },
        CallError::Foreign { status: 413 } => Failed::Permanent { reason: "too_large", error: text },
        // 408 and 499 tell that somebody stopped waiting, not that nothing was done.
        CallError::Foreign { status: 408 | 499 } => Failed::Ambiguous { error: text },
        CallError::Foreign { status: 400..=499 } => Failed::Retry { error: text, after: None },
        CallError::Foreign { .. } => Failed::Ambiguous { error: text },
        CallError::Refused { word } if UNSURE.contains(&word.as_str()) => Failed::Ambiguous { error: text },
        CallError::Refused { word } if PASSING.contains(&word.as_str()) => Failed::Retry { error: text, after: None },
        CallError::Refused { word } => Failed::Permanent { reason: reason(word), error: text },
    }
}

/// The job's word for the platform's.
fn reason(word: &str) -> &'static str {
    match word {
        word if DEAD.contains(&word) => "logged_out",
        "channel_not_found"
        | "not_in_channel"
        | "is_archived"
        | "user_not_found"
        | "users_not_found"
        | "user_disabled"
        | "user_not_visible"
        | "cannot_dm_bot"
        | "channel_is_limited_access"
        | "restricted_action"
        | "restricted_action_read_only_channel"
        | "restricted_action_thread_only_channel"
        | "restricted_action_non_threadable_channel"
        | "restricted_action_thread_locked" => "bad_recipient",
        "msg_too_long"
        | "msg_blocks_too_long"
        | "too_many_attachments"
        | "metadata_too_large"
        | "file_upload_size_restricted" => "too_large",
        _ => "rejected",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused(word: &str) -> CallError {
        CallError::Refused { word: word.into() }
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
            (CallError::Foreign { status: 403 }, "retry"),
            (CallError::Foreign { status: 408 }, "ambiguous"),
            (CallError::Foreign { status: 413 }, "too_large"),
            (CallError::Foreign { status: 502 }, "ambiguous"),
            (CallError::Limited { after: Duration::from_secs(3) }, "retry"),
            (refused("internal_error"), "ambiguous"),
            (refused("fatal_error"), "ambiguous"),
            (refused("service_unavailable"), "retry"),
            (refused("channel_not_found"), "bad_recipient"),
            (refused("msg_too_long"), "too_large"),
            (refused("invalid_blocks"), "rejected"),
            (refused("token_revoked"), "logged_out"),
            (refused("something_new"), "rejected"),
        ] {
            assert_eq!(word(&failed(&error)), expected, "{error}");
        }
    }

    #[test]
    fn a_connection_ends_for_good_only_by_a_word_that_says_so() {
        let of = |error: &CallError| closed(error, "apps.connections.open");
        for dead in ["not_authed", "invalid_auth", "account_inactive", "user_removed_from_team", "team_disabled"] {
            assert!(matches!(of(&refused(dead)), Closed::LoggedOut { .. }), "{dead}");
        }
        assert!(matches!(of(&refused("missing_scope")), Closed::Misconfigured { .. }));
        assert!(matches!(of(&refused("something_new")), Closed::Rejected { .. }));
        for passing in [refused("internal_error"), CallError::Foreign { status: 401 }, CallError::Lost("x".into())] {
            assert!(matches!(of(&passing), Closed::Transient { after: None, .. }), "{passing}");
        }
        let after = Duration::from_secs(42);
        assert!(
            matches!(of(&CallError::Limited { after }), Closed::Transient { after: Some(told), .. } if told == after)
        );
    }
}
