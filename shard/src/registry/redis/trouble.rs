//! What can go wrong with a Redis, sorted by what helps: waiting, a person, or nothing since somebody newer is there.
//!
//! | answer                                                          | means       |
//! |-----------------------------------------------------------------|-------------|
//! | no connection, a broken one, none in time                       | unavailable |
//! | READONLY, LOADING, MASTERDOWN, TRYAGAIN, CLUSTERDOWN, NOREPLICAS, BUSY, too many clients | unavailable |
//! | NOAUTH, WRONGPASS, NOPERM, a certificate that isn't trusted     | refused     |
//! | OOM, MISCONF, WRONGTYPE, MOVED and other signs of a cluster     | refused     |
//! | FENCED, by our own scripts                                      | fenced      |
//! | HELD, by our own scripts: another live process has this id     | refused     |

use ::redis::{ErrorKind, RedisError};

use super::super::RegistryError;

/// An error of a Redis, without what may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// It may work later.
    #[error("{0}")]
    Unavailable(String),
    /// A person is needed.
    #[error("{0}")]
    Refused(String),
    /// A newer owner of this is there.
    #[error("fenced: {0}")]
    Fenced(String),
}

/// Codes that go away by themselves.
const PASSING: [&str; 9] =
    ["READONLY", "LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS", "BUSY", "LATE", "UNKILLABLE"];

/// Codes that need a person, and what is to be said to them.
const LASTING: [(&str, &str); 10] = [
    ("NOAUTH", "a password is needed"),
    ("WRONGPASS", "the user name or password is wrong"),
    ("NOPERM", "this user may not do what the registry needs: give it all keys, EVALSHA, SCRIPT and INFO"),
    ("OOM", "it has reached maxmemory: give it more; owners can't renew until then"),
    ("MISCONF", "it refuses writes since it can't save to disk"),
    ("WRONGTYPE", "a key of the registry holds something else: does another program use this database"),
    ("MOVED", "it is a cluster: use one primary, or Sentinel"),
    ("ASK", "it is a cluster: use one primary, or Sentinel"),
    ("CROSSSLOT", "it is a cluster: use one primary, or Sentinel"),
    ("NOTBUSY", "no script runs"),
];

impl Trouble {
    /// Sorts an error; whether the connection is of no more use, and asking anew where the server is may help.
    pub(super) fn of(error: &RedisError) -> (Self, bool) {
        let code = error.code().unwrap_or_default();
        let detail = error.detail().unwrap_or_default();
        if code == "FENCED" {
            return (Self::Fenced(detail.split_whitespace().next().unwrap_or_default().to_owned()), false);
        }
        if code == "HELD" {
            let host = detail.split_whitespace().next().unwrap_or_default();
            return (Self::Refused(format!("this worker id is that of a live process on {host}")), false);
        }
        match error.kind() {
            ErrorKind::AuthenticationFailed => return (Self::login(), true),
            ErrorKind::Io => {
                let cause = error.to_string();
                let trust = cause.contains("certificate");
                return (if trust { Self::Refused(cause) } else { Self::Unavailable(cause) }, true);
            }
            ErrorKind::Client | ErrorKind::InvalidClientConfig => return (Self::Refused(error.to_string()), true),
            ErrorKind::Parse => return (Self::Unavailable("its answer can't be read".to_owned()), true),
            _ => {}
        }
        // Before Redis 7 an error inside a script is a plain ERR that names the code with a dash.
        let is = |wanted: &&str| code == *wanted || (code == "ERR" && detail.contains(&format!("-{wanted} ")));
        if let Some(code) = PASSING.iter().find(|wanted| is(wanted)) {
            return (Self::Unavailable(format!("it answers {code}")), *code == "READONLY");
        }
        if let Some((code, said)) = LASTING.iter().find(|(wanted, _)| is(wanted)) {
            return (Self::Refused(format!("{said} ({code})")), matches!(*code, "NOAUTH" | "WRONGPASS" | "NOPERM"));
        }
        if detail.contains("max number of clients") {
            return (Self::Unavailable("it has too many clients".to_owned()), true);
        }
        // What was sent is repeated at the end of some: not more of it than tells what it is.
        let said: String = format!("{code} {detail}").chars().take(120).collect();
        (Self::Refused(said), error.is_unrecoverable_error())
    }

    /// A login failed. The server's own words may repeat the password.
    pub(super) fn login() -> Self {
        Self::Refused("it does not accept the user name or password".to_owned())
    }

    /// The same as the port says it, with the server's address.
    pub(super) fn at(self, address: &str) -> RegistryError {
        match self {
            Self::Unavailable(cause) => RegistryError::Unavailable(format!("{address}: {cause}")),
            Self::Refused(cause) => RegistryError::Refused(format!("{address}: {cause}")),
            Self::Fenced(resource) => RegistryError::Fenced { resource },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: &str, detail: &str) -> (Trouble, bool) {
        Trouble::of(&redis::make_extension_error(code.to_owned(), Some(detail.to_owned())))
    }

    #[test]
    fn what_passes_is_told_from_what_needs_a_person() {
        for code in PASSING {
            assert!(matches!(server(code, "x").0, Trouble::Unavailable(_)), "{code}");
        }
        for (code, _) in LASTING {
            assert!(matches!(server(code, "x").0, Trouble::Refused(_)), "{code}");
        }
        let old = "Error running script (call to f_1): @user_script:5: @user_script: 5: -OOM command not allowed";
        assert!(matches!(server("ERR", old).0, Trouble::Refused(said) if said.contains("maxmemory")));
        let old = "Error running script (call to f_1): @user_script:5: -READONLY You can't write against a replica";
        assert!(matches!(server("ERR", old), (Trouble::Unavailable(_), false | true)));
        assert!(matches!(server("ERR", "max number of clients reached").0, Trouble::Unavailable(_)));
        assert!(matches!(server("ERR", "unknown command 'evalsha'").0, Trouble::Refused(_)));
        let fenced = server("FENCED", "channel/x script: abc, on @user_script:3.").0;
        assert_eq!(fenced, Trouble::Fenced("channel/x".to_owned()));
    }

    #[test]
    fn a_connection_that_broke_may_be_made_again() {
        for kind in [std::io::ErrorKind::ConnectionRefused, std::io::ErrorKind::BrokenPipe] {
            assert!(matches!(Trouble::of(&std::io::Error::from(kind).into()), (Trouble::Unavailable(_), true)));
        }
        let untrusted = std::io::Error::other("invalid peer certificate: UnknownIssuer");
        assert!(matches!(Trouble::of(&untrusted.into()), (Trouble::Refused(_), true)));
    }
}
