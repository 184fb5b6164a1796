//! How fast an app may send: messages in a conversation, calls of each method; and what the platform itself said with a 429.
//!
//! The tiers are published as "so many a minute or more", so that these only keep an app from running into them; a 429
//! holds its method, for which the platform gives it out, until its time is over. Nothing sleeps here: the caller is told to
//! go, to wait a moment, or to come back.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use crate::platform::rate::{Rate, Turn};

/// The limits of one app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackLimits {
    /// Messages a second in a conversation, on average; zero is no limit, of methods neither.
    pub chat_per_second: u32,
    /// Messages in a conversation at once.
    pub chat_burst: u32,
    /// A send waits so long for its turn; when it would have to wait longer, it is put off.
    pub wait: Duration,
}

impl Default for SlackLimits {
    fn default() -> Self {
        Self { chat_per_second: 1, chat_burst: 3, wait: Duration::from_secs(1) }
    }
}

/// From so many conversations on, those that are at rest are forgotten.
const MANY: usize = 256;
/// How many calls of a method may go out at once.
const BURST: u32 = 10;

/// The method's tier: calls a minute. What shows a message is limited by the conversation.
fn per_minute(method: &str) -> Option<u32> {
    match method {
        "reactions.remove" => Some(20),
        "chat.update" | "chat.delete" | "reactions.add" | "reactions.get" | "conversations.open" => Some(50),
        "files.getUploadURLExternal" | "files.completeUploadExternal" => Some(100),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    next: Duration,
    blocked_until: Duration,
}

#[derive(Debug, Default)]
struct State {
    methods: HashMap<&'static str, Place>,
    chats: HashMap<String, Duration>,
}

/// The state of one app's limits.
#[derive(Debug)]
pub(super) struct Limits {
    limits: SlackLimits,
    chat: Option<Rate>,
    state: Mutex<State>,
}

impl Limits {
    pub(super) fn new(limits: SlackLimits) -> Self {
        let chat = (limits.chat_per_second > 0).then(|| Rate {
            interval: Duration::from_secs(1) / limits.chat_per_second,
            burst: limits.chat_burst.max(1),
        });
        Self { chat, limits, state: Mutex::default() }
    }

    /// The rate of a method: in any minute no more than the burst and what comes after it.
    fn rate(&self, method: &str) -> Option<Rate> {
        let calls = per_minute(method).filter(|_| self.chat.is_some())?;
        Some(Rate { interval: Duration::from_secs(60) / (calls - BURST), burst: BURST })
    }

    /// Asks for a place for a call, and with `chat` for a message there.
    pub(super) fn ask(&self, method: &'static str, chat: Option<&str>, now: Duration) -> Turn {
        let mut state = self.state.lock().expect("limits");
        if state.chats.len() >= MANY && chat.is_some_and(|chat| !state.chats.contains_key(chat)) {
            state.chats.retain(|_, next| *next > now);
        }
        let place = state.methods.get(method).copied().unwrap_or_default();
        let next = chat.and_then(|chat| state.chats.get(chat)).copied().unwrap_or_default();
        let (rate, chat_rate) = (self.rate(method), chat.and(self.chat));
        let paced = [(rate, place.next), (chat_rate, next)];
        let paced = paced.into_iter().filter_map(|(rate, next)| Some(rate?.delay(next, now))).max();
        let delay = paced.unwrap_or_default().max(place.blocked_until.saturating_sub(now));
        if delay > self.limits.wait {
            return Turn::NotBefore(delay);
        }
        // Each limit is charged for its own place: a conversation that waits must not hold the method up for others.
        if let Some(rate) = rate {
            let own = now + rate.delay(place.next, now);
            rate.take(&mut state.methods.entry(method).or_default().next, own);
        }
        if let (Some(rate), Some(chat)) = (chat_rate, chat) {
            rate.take(state.chats.entry(chat.to_owned()).or_default(), now + delay);
        }
        Turn::In(delay)
    }

    /// The platform said to leave a method alone for so long.
    pub(super) fn block(&self, method: &'static str, retry_after: Duration, now: Duration) {
        let mut state = self.state.lock().expect("limits");
        let place = state.methods.entry(method).or_default();
        place.blocked_until = place.blocked_until.max(now + retry_after);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    const POST: &str = "chat.postMessage";

    #[test]
    fn a_conversation_takes_a_burst_then_one_a_second_and_holds_no_other_up() {
        let limits = Limits::new(SlackLimits::default());
        let turns: Vec<_> = (0..5).map(|_| limits.ask(POST, Some("C1"), ms(0))).collect();
        let (wait, later) = (Turn::In(ms(1000)), Turn::NotBefore(ms(2000)));
        assert_eq!(turns, [Turn::In(ms(0)), Turn::In(ms(0)), Turn::In(ms(0)), wait, later]);
        assert_eq!(limits.ask(POST, Some("C2"), ms(0)), Turn::In(ms(0)));
        assert_eq!(limits.ask("reactions.add", None, ms(0)), Turn::In(ms(0)), "a reaction is no message");
    }

    #[test]
    fn a_429_holds_its_method_and_no_other() {
        let limits = Limits::new(SlackLimits::default());
        limits.block(POST, Duration::from_secs(42), ms(0));
        assert_eq!(limits.ask(POST, Some("C1"), ms(1000)), Turn::NotBefore(ms(41_000)));
        assert_eq!(limits.ask("chat.update", None, ms(1000)), Turn::In(ms(0)));
        assert_eq!(limits.ask(POST, Some("C1"), ms(42_000)), Turn::In(ms(0)));
    }

    #[test]
    fn conversations_at_rest_are_forgotten() {
        let limits = Limits::new(SlackLimits::default());
        for n in 0..10_000u64 {
            limits.ask(POST, Some(&n.to_string()), ms(n * 100));
        }
        assert!(limits.state.lock().unwrap().chats.len() <= MANY);
    }

    #[test]
    fn a_rate_of_zero_is_no_limit_but_for_the_platforms_word() {
        let limits = Limits::new(SlackLimits { chat_per_second: 0, ..SlackLimits::default() });
        assert!((0..1000).all(|_| limits.ask(POST, Some("C1"), ms(0)) == Turn::In(ms(0))));
        assert!((0..1000).all(|_| limits.ask("chat.update", None, ms(0)) == Turn::In(ms(0))));
        limits.block(POST, Duration::from_secs(42), ms(0));
        assert_eq!(limits.ask(POST, Some("C1"), ms(0)), Turn::NotBefore(ms(42_000)));
    }

    proptest! {
        /// However calls are asked for, what goes out keeps the limits in any window.
        #[test]
        fn no_window_holds_more_than_it_may(asks in prop::collection::vec((0u64..3000, 0usize..4), 1..400)) {
            let limits = Limits::new(SlackLimits::default());
            let mut sent: Vec<(Duration, usize)> = Vec::new();
            let mut now = ms(0);
            for (passed, what) in asks {
                now += ms(passed);
                let (method, chat) = [(POST, Some("C1")), (POST, Some("C2")), ("chat.update", None), ("reactions.remove", None)][what];
                if let Turn::In(wait) = limits.ask(method, chat, now) {
                    prop_assert!(wait <= Duration::from_secs(1));
                    sent.push((now + wait, what));
                }
            }
            let most = |what: usize, window: Duration| {
                let times: Vec<_> = sent.iter().filter(|(_, of)| *of == what).map(|(at, _)| *at).collect();
                times.iter().map(|from| times.iter().filter(|at| **at >= *from && **at < *from + window).count()).max().unwrap_or(0)
            };
            for chat in [0, 1] {
                prop_assert!(most(chat, Duration::from_secs(1)) <= 4);
                prop_assert!(most(chat, Duration::from_secs(10)) <= 13);
            }
            prop_assert!(most(2, Duration::from_secs(60)) <= 50);
            prop_assert!(most(3, Duration::from_secs(60)) <= 20);
        }
    }
}
