//! What can be made to go wrong with the Web API, where, and how often.
//!
//! Each fault says on which side of the work it strikes: a send that was refused and a send whose answer was lost look
//! the same to a client, and only the simulator knows which it was. What goes wrong with sockets is told to the app.

use std::{sync::Mutex, time::Duration};

use crate::lock;

/// As often as it is asked.
pub const ALWAYS: u32 = u32::MAX;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// `{"ok": false, "error": …}`; nothing was done.
    Refuse(String),
    /// It was done, and `{"ok": false, "error": …}` is told all the same.
    RefuseAfter(String),
    /// 429 with its seconds in `Retry-After`; nothing was done.
    TooMany(u64),
    /// A front end's error page instead of JSON (502, 504); nothing was done.
    Page(u16),
    /// The connection is reset; nothing was done.
    ResetBefore,
    /// It was done, then the connection is reset in place of the answer.
    ResetAfter,
    /// It is done only after this time.
    Late(Duration),
    /// It is done at once and answered after this time.
    SlowAnswer(Duration),
    /// It is swallowed: not done, never answered.
    BlackHole,
    /// It was done and is never answered.
    Unanswered,
    /// It was done; the answer is cut off in the middle of its JSON.
    Malformed,
}

impl Fault {
    /// Refused with one of the platform's words.
    pub fn refuse(error: &str) -> Self {
        Self::Refuse(error.to_owned())
    }
}

/// Where a fault strikes; what isn't named matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct On {
    app: Option<String>,
    channel: Option<String>,
    method: Option<String>,
    skip: u32,
}

impl On {
    /// Everything.
    pub fn any() -> Self {
        Self::default()
    }

    /// One method, by its full name; `upload` is the upload of a file.
    pub fn method(method: &str) -> Self {
        Self::any().and_method(method)
    }

    /// One app.
    pub fn app(app: &super::AppHandle) -> Self {
        Self { app: Some(app.id().to_owned()), ..Self::default() }
    }

    /// And only this conversation.
    pub fn and_channel(mut self, channel: &str) -> Self {
        self.channel = Some(channel.to_owned());
        self
    }

    /// And only this method.
    pub fn and_method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only after so many matching requests went well.
    pub fn after(mut self, requests: u32) -> Self {
        self.skip = requests;
        self
    }

    fn matches(&self, app: &str, method: &str, channel: Option<&str>) -> bool {
        self.app.as_ref().is_none_or(|mine| mine == app)
            && self.method.as_ref().is_none_or(|mine| mine == method)
            && self.channel.as_ref().is_none_or(|mine| channel == Some(mine))
    }
}

/// A fault that was set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultId(usize);

#[derive(Debug)]
struct Rule {
    on: On,
    fault: Fault,
    left: u32,
    fired: u32,
}

/// All faults that were set up, oldest first.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<Rule>>);

impl Faults {
    pub(super) fn add(&self, on: On, fault: Fault, times: u32) -> FaultId {
        let mut rules = lock(&self.0);
        rules.push(Rule { on, fault, left: times, fired: 0 });
        FaultId(rules.len() - 1)
    }

    pub(super) fn heal_all(&self) {
        lock(&self.0).iter_mut().for_each(|rule| rule.left = 0);
    }

    pub(super) fn fired(&self, id: FaultId) -> u32 {
        lock(&self.0).get(id.0).map_or(0, |rule| rule.fired)
    }

    /// The fault that strikes this request, if any.
    pub(super) fn strike(&self, app: &str, method: &str, channel: Option<&str>) -> Option<Fault> {
        for rule in lock(&self.0).iter_mut().filter(|rule| rule.left > 0) {
            if !rule.on.matches(app, method, channel) {
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

    #[test]
    fn a_fault_strikes_what_it_names_after_what_it_skips_and_so_often_as_it_says() {
        let faults = Faults::default();
        let on = On { app: Some("A1".into()), ..On::method("chat.postMessage").and_channel("C1").after(1) };
        let id = faults.add(on, Fault::BlackHole, 2);
        assert_eq!(faults.strike("A2", "chat.postMessage", Some("C1")), None);
        assert_eq!(faults.strike("A1", "auth.test", None), None);
        assert_eq!(faults.strike("A1", "chat.postMessage", Some("C2")), None);
        let struck = || faults.strike("A1", "chat.postMessage", Some("C1")).is_some();
        assert_eq!([struck(), struck(), struck(), struck()], [false, true, true, false]);
        assert_eq!(faults.fired(id), 2);
        faults.add(On::any(), Fault::ResetBefore, ALWAYS);
        assert!(struck());
        faults.heal_all();
        assert!(!struck());
    }
}
