//! Who a stanza is for: a device of an account. The same device goes by its number and by its hidden id (LID).

use std::fmt;

use serde::Serialize;
use wacore_binary::Jid;

/// A device: its account's number and its place there. The phone itself is 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Address {
    /// The account's number, digits only.
    pub number: String,
    /// Which of its devices.
    pub device: u16,
}

impl Address {
    /// A device of a number.
    pub fn new(number: impl Into<String>, device: u16) -> Self {
        Self { number: number.into(), device }
    }

    /// The device on the wire: `15550000001:3@s.whatsapp.net`, without the colon for the phone.
    pub fn jid(&self) -> Jid {
        Jid::pn_device(self.number.as_str(), self.device)
    }

    /// The account on the wire.
    pub(super) fn account(&self) -> Jid {
        Jid::pn(self.number.as_str())
    }

    pub(super) fn is_phone(&self) -> bool {
        self.device == 0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.number, self.device)
    }
}
