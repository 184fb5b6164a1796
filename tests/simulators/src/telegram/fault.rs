//! What can be made to go wrong, where, and how often.
//!
//! Each fault says on which side of the work it strikes: a send that was refused and a send whose answer was lost look
//! the same to a client, and only the simulator knows which it was.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::answer::Refused;
use crate::lock;

/// As often as it is asked.
pub const ALWAYS: u32 = u32::MAX;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Refused by the platform; nothing was done.
    Refuse(Refused),
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
    /// `409`: another process polls the same bot.
    pub fn conflict() -> Self {
        Self::Refuse(Refused::conflict(super::poll::TERMINATED))
    }

    /// `401`: the token was revoked.
    pub fn unauthorized() -> Self {
        Self::Refuse(Refused::unauthorized())
    }

    /// `429` with its seconds.
    pub fn too_many(retry_after: u64) -> Self {
        Self::Refuse(Refused::too_many(retry_after))
    }

    /// `403`: the person blocked the bot.
    pub fn blocked() -> Self {
        Self::Refuse(Refused::new(403, "Forbidden: bot was blocked by the user"))
    }

    /// `400`: the bot never met this chat.
    pub fn chat_not_found() -> Self {
        Self::Refuse(Refused::bad_request("chat not found"))
    }

    /// `400`: the group became a supergroup with another id.
    pub fn migrated(to: i64) -> Self {
        Self::Refuse(Refused::migrated(to))
    }

    /// `5xx`, worded as the platform does.
    pub fn server_error(code: u16) -> Self {
        let words = match code {
            502 => "Bad Gateway",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            _ => "Internal Server Error",
        };
        Self::Refuse(Refused::new(code, words))
    }
}

/// Where a fault strikes; what isn't named matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct On {
    token: Option<String>,
    chat: Option<i64>,
    method: Option<String>,
    skip: u32,
}

impl On {
    /// Everything.
    pub fn any() -> Self {
        Self::default()
    }

    /// One method, in any letter case.
    pub fn method(method: &str) -> Self {
        Self::any().and_method(method)
    }

    /// One bot.
    pub fn bot(bot: &super::BotHandle) -> Self {
        Self::token(bot.token())
    }

    /// One bot, known by its token.
    pub fn token(token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::default() }
    }

    /// And only this chat.
    pub fn and_chat(mut self, chat: i64) -> Self {
        self.chat = Some(chat);
        self
    }

    /// And only this method, in any letter case.
    pub fn and_method(mut self, method: &str) -> Self {
        self.method = Some(method.to_ascii_lowercase());
        self
    }

    /// Only after so many matching requests went well.
    pub fn after(mut self, requests: u32) -> Self {
        self.skip = requests;
        self
    }

    fn matches(&self, token: &str, method: &str, chat: Option<i64>) -> bool {
        self.token.as_ref().is_none_or(|mine| mine == token)
            && self.method.as_ref().is_none_or(|mine| mine == method)
            && self.chat.is_none_or(|mine| chat == Some(mine))
    }
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

    /// The fault that strikes this request, if any.
    pub(super) fn strike(&self, token: &str, method: &str, chat: Option<i64>) -> Option<Fault> {
        if self.live.load(Ordering::Acquire) == 0 {
            return None;
        }
        for rule in lock(&self.rules).iter_mut().filter(|rule| rule.left > 0) {
            if !rule.on.matches(token, method, chat) {
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
        let on = On::token("1:a").and_method("sendMessage").and_chat(7).after(1);
        let id = faults.add(on, Fault::BlackHole, 2);
        assert_eq!(faults.strike("1:b", "sendmessage", Some(7)), None);
        assert_eq!(faults.strike("1:a", "getupdates", None), None);
        assert_eq!(faults.strike("1:a", "sendmessage", Some(8)), None);
        let struck: Vec<_> = (0..4).map(|_| faults.strike("1:a", "sendmessage", Some(7)).is_some()).collect();
        assert_eq!(struck, [false, true, true, false]);
        assert_eq!(faults.fired(id), 2);
    }

    #[test]
    fn a_healed_fault_strikes_no_more() {
        let faults = Faults::default();
        let id = faults.add(On::any(), Fault::conflict(), ALWAYS);
        assert!(faults.strike("1:a", "getme", None).is_some());
        faults.heal(Some(id));
        assert!(faults.strike("1:a", "getme", None).is_none());
    }
}
