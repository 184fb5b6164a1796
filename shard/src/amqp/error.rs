//! What the broker's errors mean.

use std::time::Duration;

use lapin::{ErrorKind, types::ShortString};

/// Why a call to the broker failed, before it is said in the words of a port.
#[derive(Debug, Clone)]
pub(crate) enum Cause {
    /// Try again.
    Unavailable(String),
    /// Somebody has to change something.
    Refused(String),
    /// There is no such queue.
    Missing,
}

impl From<lapin::Error> for Cause {
    fn from(error: lapin::Error) -> Self {
        let ErrorKind::ProtocolError(protocol) = error.kind() else {
            return Self::Unavailable(error.to_string());
        };
        let text = protocol.get_message();
        match protocol.get_id() {
            404 => Self::Missing,
            403 => Self::Refused(format!("the broker refused access: {text}")),
            406 if !timed_out(text) => Self::Refused(format!("the broker has it otherwise: {text}")),
            // Unknown virtual host, or more than a user is allowed to have.
            530 => Self::Refused(format!("the broker does not allow it: {text}")),
            _ => Self::Unavailable(format!("the broker ended it: {text}")),
        }
    }
}

/// A delivery was not acknowledged within the broker's own time: nothing is wrong with what we asked for.
fn timed_out(text: &ShortString) -> bool {
    text.as_str().contains("delivery acknowledgement on channel")
}

/// Waits for an answer of the broker no longer than this: one that has lost its majority, or is stopped, never answers.
pub(crate) async fn answered<T>(
    within: Duration,
    call: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T, Cause> {
    match tokio::time::timeout(within, call).await {
        Ok(answer) => answer.map_err(Cause::from),
        Err(_) => Err(Cause::Unavailable(format!("the broker did not answer in {} s", within.as_secs()))),
    }
}
