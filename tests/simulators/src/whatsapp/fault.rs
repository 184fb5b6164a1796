//! What can be made to go wrong, where, and how often.
//!
//! Each fault says on which side of the work it strikes: a message that was never relayed and one whose acknowledgement
//! was lost look the same to a device, and only the simulator knows which it was.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use wacore_binary::Node;

use super::{
    address::Address,
    node::{attr, children},
    record::Way,
};
use crate::lock;

/// As often as it is asked.
pub const ALWAYS: u32 = u32::MAX;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// `<failure reason=…>`: 401 logged out, 402 banned for a while, 403 locked, 405 outdated, ….
    Failure(u16),
    /// `<failure reason=402>` for so long.
    Banned(Duration),
    /// `<stream:error code=…>`: 503, 500, 515 restart, 516 removed, ….
    Error(u16),
    /// `<stream:error>` with no code at all.
    Unnamed,
    /// Another connection with the same identity took over.
    Replaced,
    /// The device was unlinked on the phone: a conflict of the type `device_removed`, with the code 401.
    Removed,
    /// The WebSocket is closed in good order.
    Closed,
    /// The connection is reset.
    Cut,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is swallowed: not done, never answered.
    Lost,
    /// It was done and is never answered.
    Unanswered,
    /// It is done or delivered only after this time; what comes behind it overtakes it.
    Late(Duration),
    /// It is done or delivered twice.
    Twice,
    /// Refused with a code: an error in the answer or in the acknowledgement, or an HTTP status.
    Refuse(u16),
    /// The connection ends; nothing was done.
    EndBefore(End),
    /// It was done, then the connection ends in place of the answer.
    EndAfter(End),
    /// It was done and answered; the connection ends after this time.
    EndLater(End, Duration),
}

/// The parts of the protocol in which something can go wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Where {
    Any,
    Login,
    Pairing,
    Stanza { way: Way, tag: &'static str, word: Option<String> },
    Upload,
    Download,
}

/// Where a fault strikes; what isn't named matches all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct On {
    place: Where,
    number: Option<String>,
    device: Option<u16>,
    id: Option<String>,
    skip: u32,
}

impl On {
    fn place(place: Where) -> Self {
        Self { place, number: None, device: None, id: None, skip: 0 }
    }

    /// Everything.
    pub fn any() -> Self {
        Self::place(Where::Any)
    }

    /// A linked device that asks to be let in.
    pub fn login() -> Self {
        Self::place(Where::Login)
    }

    /// A client that is not linked yet and asks for codes to show.
    pub fn pairing() -> Self {
        Self::place(Where::Pairing)
    }

    /// A stanza that a device sends, by tag.
    pub fn from_device(tag: &'static str) -> Self {
        Self::place(Where::Stanza { way: Way::FromDevice, tag, word: None })
    }

    /// A stanza that a device is sent, by tag.
    pub fn to_device(tag: &'static str) -> Self {
        Self::place(Where::Stanza { way: Way::ToDevice, tag, word: None })
    }

    /// A query in this namespace: `encrypt`, `usync`, `w:g2`, ….
    pub fn query(namespace: &str) -> Self {
        Self::from_device("iq").and_word(namespace)
    }

    /// Media that a device uploads.
    pub fn upload() -> Self {
        Self::place(Where::Upload)
    }

    /// Media that a device downloads.
    pub fn download() -> Self {
        Self::place(Where::Download)
    }

    /// And only where the stanza's type, namespace, class or first child is this.
    pub fn and_word(mut self, word: &str) -> Self {
        if let Where::Stanza { word: mine, .. } = &mut self.place {
            *mine = Some(word.to_owned());
        }
        self
    }

    /// And only the stanza with this id; a receipt has that of the message it is for.
    pub fn and_id(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }

    /// And only devices of this account.
    pub fn of(mut self, number: &str) -> Self {
        self.number = Some(number.to_owned());
        self
    }

    /// And only this device.
    pub fn of_device(mut self, device: &Address) -> Self {
        self.number = Some(device.number.clone());
        self.device = Some(device.device);
        self
    }

    /// Only after so many that match went well.
    pub fn after(mut self, times: u32) -> Self {
        self.skip = times;
        self
    }

    fn is_about(&self, happening: Happening<'_>) -> bool {
        let Some(mine) = &self.id else { return true };
        matches!(happening, Happening::Stanza(_, node) if attr(node, "id").as_ref() == Some(mine))
    }

    fn concerns(&self, device: Option<&Address>) -> bool {
        let number = device.map(|device| device.number.as_str());
        self.number.as_ref().is_none_or(|mine| number == Some(mine))
            && self.device.is_none_or(|mine| device.is_some_and(|device| device.device == mine))
    }
}

/// What is about to happen.
#[derive(Debug, Clone, Copy)]
pub(super) enum Happening<'a> {
    Login,
    Pairing,
    Stanza(Way, &'a Node),
    Upload,
    Download,
}

impl Where {
    fn matches(&self, happening: Happening<'_>) -> bool {
        match (self, happening) {
            (Self::Any, _)
            | (Self::Login, Happening::Login)
            | (Self::Pairing, Happening::Pairing)
            | (Self::Upload, Happening::Upload)
            | (Self::Download, Happening::Download) => true,
            (Self::Stanza { way, tag, word }, Happening::Stanza(went, node)) => {
                *way == went && node.tag == *tag && word.as_ref().is_none_or(|word| has_word(node, word))
            }
            _ => false,
        }
    }
}

fn has_word(node: &Node, word: &str) -> bool {
    ["type", "xmlns", "class"].iter().any(|key| attr(node, key).as_deref() == Some(word))
        || children(node).first().is_some_and(|child| child.tag == word)
}

/// A fault that was set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultId(u64);

#[derive(Debug)]
struct Rule {
    id: FaultId,
    on: On,
    fault: Fault,
    left: u32,
    fired: u32,
}

/// All faults that were set up, oldest first.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Mutex<Vec<Rule>>,
    live: AtomicUsize,
    next: AtomicU64,
}

impl Faults {
    pub(super) fn add(&self, on: On, fault: Fault, times: u32) -> FaultId {
        let id = FaultId(self.next.fetch_add(1, Ordering::Relaxed));
        let mut rules = lock(&self.rules);
        rules.push(Rule { id, on, fault, left: times, fired: 0 });
        self.live.store(rules.len(), Ordering::Release);
        id
    }

    pub(super) fn heal(&self, id: Option<FaultId>) {
        for rule in lock(&self.rules).iter_mut().filter(|rule| id.is_none_or(|id| rule.id == id)) {
            rule.left = 0;
        }
    }

    pub(super) fn fired(&self, id: FaultId) -> u32 {
        lock(&self.rules).iter().find(|rule| rule.id == id).map_or(0, |rule| rule.fired)
    }

    /// The fault that strikes here, if any.
    pub(super) fn strike(&self, device: Option<&Address>, happening: Happening<'_>) -> Option<Fault> {
        if self.live.load(Ordering::Acquire) == 0 {
            return None;
        }
        for rule in lock(&self.rules).iter_mut().filter(|rule| rule.left > 0) {
            if !rule.on.concerns(device) || !rule.on.is_about(happening) || !rule.on.place.matches(happening) {
                continue;
            }
            if rule.on.skip > 0 {
                rule.on.skip -= 1;
                continue;
            }
            if rule.left != ALWAYS {
                rule.left -= 1;
            }
            rule.fired = rule.fired.saturating_add(1);
            return Some(rule.fault.clone());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatsapp::node::el;

    #[test]
    fn a_fault_strikes_what_it_names_after_what_it_skips_and_so_often_as_it_says() {
        let faults = Faults::default();
        let device = Address::new("15550000001", 1);
        let id = faults.add(On::query("usync").of_device(&device).after(1), Fault::Lost, 2);
        let usync = el("iq").attr("xmlns", "usync").build();
        let ping = el("iq").attr("xmlns", "w:p").build();
        let asked = |node: &Node, device: &Address| {
            faults.strike(Some(device), Happening::Stanza(Way::FromDevice, node)).is_some()
        };
        assert!(!asked(&ping, &device));
        assert!(!asked(&usync, &Address::new("15550000001", 2)));
        let struck: Vec<_> = (0..4).map(|_| asked(&usync, &device)).collect();
        assert_eq!(struck, [false, true, true, false]);
        assert_eq!(faults.fired(id), 2);
    }

    #[test]
    fn a_healed_fault_strikes_no_more() {
        let faults = Faults::default();
        let id = faults.add(On::login(), Fault::EndBefore(End::Failure(405)), ALWAYS);
        assert!(faults.strike(None, Happening::Login).is_some());
        faults.heal(Some(id));
        assert!(faults.strike(None, Happening::Login).is_none());
    }
}
