//! Why a connection ended, and what that means for the channel: decided here alone. Pure.
//!
//! The conflict's sub-type is looked at before the code, since one code means a removed device with one and another
//! owner with the other.
//!
//! | seen | means | then |
//! |---|---|---|
//! | conflict `replaced`, whatever the code; stream 409, 440; a conflict of another type without a code | another owner | Replaced |
//! | conflict `device_removed`, whatever the code; 401, 406, 516 | the login is gone | LoggedOut, once |
//! | 402 | banned for a known time | Banned until then |
//! | 403 | the account is locked | Banned, until a person helps |
//! | 405; failure 409 | the client's version is refused | Misconfigured: probed slowly |
//! | 411 | the devices don't fit | NeedsPairing |
//! | 429 | too much | at least two minutes of backoff |
//! | 515 | restart asked for | stored, then again at once, no error |
//! | 408, 428, 503, a socket that closed, silence | the network's or the server's business | backoff |
//! | 500, any other code, an error without one | refused for no reason that tells what to do | backoff, parked after many |
//! | the window of codes is over | nobody scanned | again, three times in all, then NeedsPairing |

use std::time::Duration;

use crate::platform::Closed;

/// Windows of codes that are shown before a person has to ask again.
const WINDOWS: u32 = 3;
/// Restarts that the server may ask for in a row.
const RESTARTS: u32 = 3;
/// The least pause after 429.
const PAUSE: Duration = Duration::from_secs(120);

/// What was seen when a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// `<stream:error>`, with its code and the type of its `<conflict>`.
    StreamError { code: Option<String>, conflict: Option<String> },
    /// `<failure>`: the login was refused.
    Failure { reason: Option<u32>, expires_in: Option<u64> },
    /// All codes of a window were shown and nobody scanned one.
    CodesUsedUp,
    /// Nothing was heard for too long.
    Silent { seconds: u64 },
    /// No connection, or no handshake.
    NoConnection { reason: String },
    /// The socket ended without a word.
    Socket { reason: String },
}

/// What this life of the channel has been through already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Life {
    /// Windows of codes that are over.
    pub(super) windows: u32,
    /// Restarts that were asked for, one after the other.
    pub(super) restarts: u32,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Connect again at once: nothing went wrong.
    Again,
    /// This life is over.
    Over(Closed),
}

/// Decides.
pub(super) fn decide(end: &End, life: Life) -> Verdict {
    let over = |closed| Verdict::Over(closed);
    let transient = |reason: String, after| over(Closed::Transient { reason, after });
    match end {
        End::StreamError { code, conflict } => stream_error(code.as_deref(), conflict.as_deref(), life),
        End::Failure { reason: Some(402), expires_in } => over(Closed::Banned {
            reason: "banned for a time (402)".into(),
            until: expires_in.map(Duration::from_secs),
        }),
        End::Failure { reason: Some(409), .. } => over(outdated(409)),
        End::Failure { reason: Some(code), .. } => by_code(*code, life),
        End::Failure { reason: None, .. } => {
            over(Closed::Rejected { reason: "the login was refused without a reason".into() })
        }
        End::CodesUsedUp if life.windows < WINDOWS => Verdict::Again,
        End::CodesUsedUp => over(Closed::NeedsPairing { reason: "pairing_timeout: nobody linked the device".into() }),
        End::Silent { seconds } => transient(format!("nothing was heard for {seconds} s"), None),
        End::NoConnection { reason } => transient(format!("no connection: {reason}"), None),
        End::Socket { reason } => transient(format!("the connection ended: {reason}"), None),
    }
}

fn stream_error(code: Option<&str>, conflict: Option<&str>, life: Life) -> Verdict {
    match (conflict, code) {
        (Some("replaced"), _) => Verdict::Over(Closed::Replaced { reason: "another session took over".into() }),
        (Some("device_removed"), _) => {
            Verdict::Over(Closed::LoggedOut { reason: "the device was removed on the phone".into() })
        }
        (_, Some("409" | "440")) => Verdict::Over(Closed::Replaced { reason: "another session took over".into() }),
        (_, Some(code)) => match code.parse() {
            Ok(code) => by_code(code, life),
            Err(_) => Verdict::Over(Closed::Rejected { reason: "a stream error with a code that is none".into() }),
        },
        (Some(_), None) => Verdict::Over(Closed::Replaced { reason: "a conflict of a type that is not known".into() }),
        (None, None) => Verdict::Over(Closed::Rejected { reason: "a stream error without a code".into() }),
    }
}

fn by_code(code: u32, life: Life) -> Verdict {
    let reason = |text: &str| format!("{text} ({code})");
    Verdict::Over(match code {
        401 | 406 | 516 => Closed::LoggedOut { reason: reason("the login is no longer valid") },
        402 => Closed::Banned { reason: reason("banned for a time"), until: None },
        403 => Closed::Banned { reason: reason("the account is locked, or its phone is gone"), until: None },
        405 => outdated(code),
        408 => Closed::Transient { reason: reason("timed out"), after: None },
        411 => Closed::NeedsPairing { reason: reason("the account's devices don't fit: link it again") },
        428 => Closed::Transient { reason: reason("the server closed the connection"), after: None },
        429 => Closed::Transient { reason: reason("too many connections or messages"), after: Some(PAUSE) },
        440 => Closed::Replaced { reason: reason("another session took over") },
        503 => Closed::Transient { reason: reason("the service is unavailable"), after: None },
        515 if life.restarts < RESTARTS => return Verdict::Again,
        515 => Closed::Transient { reason: reason("a restart was asked for again and again"), after: None },
        _ => Closed::Rejected { reason: reason("the server refused") },
    })
}

fn outdated(code: u32) -> Closed {
    Closed::Misconfigured {
        reason: format!("the client's version is refused ({code}): set whatsapp.version to a newer one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(code: Option<&str>, conflict: Option<&str>) -> End {
        End::StreamError { code: code.map(str::to_owned), conflict: conflict.map(str::to_owned) }
    }

    fn failure(reason: u32) -> End {
        End::Failure { reason: Some(reason), expires_in: None }
    }

    fn word(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Again => "again",
            Verdict::Over(Closed::Asked) => "asked",
            Verdict::Over(Closed::Transient { after: None, .. }) => "backoff",
            Verdict::Over(Closed::Transient { after: Some(_), .. }) => "pause",
            Verdict::Over(Closed::Rejected { .. }) => "rejected",
            Verdict::Over(Closed::Replaced { .. }) => "replaced",
            Verdict::Over(Closed::LoggedOut { .. }) => "logged_out",
            Verdict::Over(Closed::Banned { .. }) => "banned",
            Verdict::Over(Closed::NeedsPairing { .. }) => "needs_pairing",
            Verdict::Over(Closed::Misconfigured { .. }) => "outdated",
            Verdict::Over(Closed::Fenced) => "fenced",
        }
    }

    /// Field reports R01, R03, R10.
    #[test]
    fn every_end_is_judged_by_its_conflict_first_and_then_by_its_code() {
        for (end, expected) in [
            (stream(None, Some("replaced")), "replaced"),
            (stream(Some("401"), Some("replaced")), "replaced"),
            (stream(Some("440"), Some("replaced")), "replaced"),
            (stream(None, Some("device_removed")), "logged_out"),
            (stream(Some("401"), Some("device_removed")), "logged_out"),
            (stream(Some("440"), Some("device_removed")), "logged_out"),
            (stream(Some("401"), None), "logged_out"),
            (stream(Some("401"), Some("new_type")), "logged_out"),
            (stream(None, Some("new_type")), "replaced"),
            (stream(Some("409"), None), "replaced"),
            (stream(Some("440"), None), "replaced"),
            (stream(Some("402"), None), "banned"),
            (stream(Some("403"), None), "banned"),
            (stream(Some("405"), None), "outdated"),
            (stream(Some("406"), None), "logged_out"),
            (stream(Some("408"), None), "backoff"),
            (stream(Some("411"), None), "needs_pairing"),
            (stream(Some("428"), None), "backoff"),
            (stream(Some("429"), None), "pause"),
            (stream(Some("500"), None), "rejected"),
            (stream(Some("503"), None), "backoff"),
            (stream(Some("515"), None), "again"),
            (stream(Some("516"), None), "logged_out"),
            (stream(Some("999"), None), "rejected"),
            (stream(Some("what"), None), "rejected"),
            (stream(None, None), "rejected"),
            (failure(400), "rejected"),
            (failure(401), "logged_out"),
            (failure(402), "banned"),
            (failure(403), "banned"),
            (failure(405), "outdated"),
            (failure(406), "logged_out"),
            (failure(409), "outdated"),
            (failure(413), "rejected"),
            (failure(418), "rejected"),
            (failure(440), "replaced"),
            (failure(500), "rejected"),
            (failure(503), "backoff"),
            (End::Failure { reason: None, expires_in: None }, "rejected"),
            (End::Silent { seconds: 75 }, "backoff"),
            (End::NoConnection { reason: "refused".into() }, "backoff"),
            (End::Socket { reason: "EOF".into() }, "backoff"),
        ] {
            assert_eq!(word(&decide(&end, Life::default())), expected, "{end:?}");
        }
    }

    #[test]
    fn a_ban_ends_when_the_platform_says() {
        let end = End::Failure { reason: Some(402), expires_in: Some(3600) };
        let verdict = decide(&end, Life::default());
        let hour = Some(Duration::from_secs(3600));
        assert!(matches!(verdict, Verdict::Over(Closed::Banned { until, .. }) if until == hour), "{verdict:?}");
    }

    /// Field report R04.
    #[test]
    fn codes_that_nobody_scanned_cost_no_backoff_and_end_after_three_windows() {
        let after = |windows| word(&decide(&End::CodesUsedUp, Life { windows, restarts: 0 }));
        assert_eq!([after(1), after(2), after(3)], ["again", "again", "needs_pairing"]);
        let dropped = decide(&End::Socket { reason: "503".into() }, Life { windows: 1, restarts: 0 });
        assert_eq!(word(&dropped), "backoff", "a drop while a code shows is a drop");
    }

    /// Field report R03.
    #[test]
    fn a_restart_is_no_error_unless_it_never_stops() {
        let after = |restarts| word(&decide(&stream(Some("515"), None), Life { windows: 0, restarts }));
        assert_eq!([after(0), after(1), after(2), after(3)], ["again", "again", "again", "backoff"]);
    }
}
