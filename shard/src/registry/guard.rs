//! The send guard: at most once as the recipient sees it, at least once as the producer sees it.

use serde_json::Value;

use super::{Fence, Holder};
use crate::job::JobId;

/// A send that is about to go on the wire.
#[derive(Debug, Clone)]
pub struct Reserve {
    /// The job.
    pub job: JobId,
    /// Under what right.
    pub fence: Fence,
    /// Who is about to send.
    pub holder: Holder,
    /// The provider id that it will carry, where the platform lets the client choose it. With it a second try carries
    /// the same id and can't be shown twice, so that such a send is never uncertain.
    pub provider_id: Option<String>,
    /// The policy for an uncertain earlier try is to send again: its record becomes a fresh reservation, and that it
    /// was uncertain stays recorded.
    pub resend: bool,
}

/// What is known of a job's send.
#[derive(Debug, Clone, PartialEq)]
pub enum Reservation {
    /// Nobody sent it: the reservation is ours.
    Fresh,
    /// Chosen id, and an earlier try may have reached the platform: send again under this same id.
    Again {
        /// The id of the first try.
        provider_id: String,
    },
    /// It was sent.
    Sent(Sent),
    /// An earlier try may have reached the platform, and it can't be told. The fact is stored by now; what is done about it
    /// is the job's policy. Reserving again with [`Reserve::resend`] is how a second try starts.
    Uncertain {
        /// Who tried.
        by: Holder,
    },
    /// Somebody alive is sending it right now.
    Busy {
        /// Who.
        by: Holder,
    },
}

/// What came of a send.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    /// The provider's id of the message.
    pub provider_id: Option<String>,
    /// What else the platform answered.
    pub result: Option<Value>,
}
