//! How fast a bot may send: overall, in a chat, in a group; and what the platform itself said with a 429.
//!
//! The real limits are unpublished and move, so that these only keep a bot from running into them; a 429 is the authority
//! for its chat until its time is over. Nothing sleeps here: the caller is told to go, to wait a moment, or to come back.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use crate::platform::rate::{Rate, Turn};

/// The limits of one bot. A rate of zero is no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelegramLimits {
    /// Requests a second of a bot.
    pub per_second: u32,
    /// Messages a second in a chat, on average.
    pub chat_per_second: u32,
    /// Messages in a chat at once.
    pub chat_burst: u32,
    /// Messages in any minute in a group or channel.
    pub group_per_minute: u32,
    /// A send waits so long for its turn; when it would have to wait longer, it is put off.
    pub wait: Duration,
}

impl Default for TelegramLimits {
    fn default() -> Self {
        Self { per_second: 30, chat_per_second: 1, chat_burst: 3, group_per_minute: 20, wait: Duration::from_secs(1) }
    }
}

/// How many messages of a bot may go out at once, whatever the chat.
const BOT_BURST: u32 = 10;
/// How many messages may go into a group at once.
const GROUP_BURST: u32 = 5;
/// From so many chats on, those that are at rest are forgotten.
const MANY: usize = 256;

#[derive(Debug, Clone, Copy, Default)]
struct Chat {
    next: Duration,
    group_next: Duration,
    blocked_until: Duration,
}

#[derive(Debug, Default)]
struct State {
    next: Duration,
    blocked_until: Duration,
    chats: HashMap<String, Chat>,
}

/// The state of one bot's limits.
#[derive(Debug)]
pub(super) struct Limits {
    limits: TelegramLimits,
    bot: Option<Rate>,
    chat: Option<Rate>,
    group: Option<Rate>,
    state: Mutex<State>,
}

impl Limits {
    pub(super) fn new(limits: TelegramLimits) -> Self {
        let second = Duration::from_secs(1);
        let rate = |per_second: u32, burst: u32| {
            (per_second > 0).then(|| Rate { interval: second / per_second, burst: burst.max(1) })
        };
        // In any minute no more than the burst and what comes after it: the rate is that of the rest.
        let group_burst = GROUP_BURST.min(limits.group_per_minute);
        let group = (limits.group_per_minute > 0).then(|| Rate {
            interval: second * 60 / (limits.group_per_minute - group_burst).max(1),
            burst: group_burst,
        });
        Self {
            bot: rate(limits.per_second, BOT_BURST),
            chat: rate(limits.chat_per_second, limits.chat_burst),
            group,
            limits,
            state: Mutex::default(),
        }
    }

    /// Asks for a place to send to `chat`. Changes that show no new message count for the bot alone.
    pub(super) fn ask(&self, chat: &str, is_message: bool, now: Duration) -> Turn {
        let (chat_rate, group_rate) = match is_message {
            true => (self.chat, self.group.filter(|_| is_group(chat))),
            false => (None, None),
        };
        let mut state = self.state.lock().expect("limits");
        if state.chats.len() >= MANY && !state.chats.contains_key(chat) {
            self.forget_those_at_rest(&mut state, now);
        }
        let (bot_next, bot_blocked) = (state.next, state.blocked_until);
        let place = state.chats.get(chat).copied().unwrap_or_default();
        let blocked = bot_blocked.max(place.blocked_until).saturating_sub(now);
        let paced = [(self.bot, bot_next), (chat_rate, place.next), (group_rate, place.group_next)]
            .into_iter()
            .filter_map(|(rate, next)| Some(rate?.delay(next, now)))
            .max()
            .unwrap_or_default();
        let delay = paced.max(blocked);
        if delay > self.limits.wait {
            return Turn::NotBefore(delay);
        }
        // Each limit is charged for its own place: one chat that waits must not hold the bot's other chats up.
        let at = now + delay;
        if let Some(rate) = self.bot {
            let own = now + rate.delay(state.next, now);
            rate.take(&mut state.next, own);
        }
        if chat_rate.is_some() || group_rate.is_some() {
            let place = state.chats.entry(chat.to_owned()).or_default();
            if let Some(rate) = chat_rate {
                rate.take(&mut place.next, at);
            }
            if let Some(rate) = group_rate {
                rate.take(&mut place.group_next, at);
            }
        }
        Turn::In(delay)
    }

    /// The platform said to stay away from a chat for so long.
    pub(super) fn block(&self, chat: &str, retry_after: Duration, now: Duration) {
        let mut state = self.state.lock().expect("limits");
        let place = state.chats.entry(chat.to_owned()).or_default();
        place.blocked_until = place.blocked_until.max(now + retry_after);
    }

    /// A chat that could burst again is as good as a new one.
    fn forget_those_at_rest(&self, state: &mut State, now: Duration) {
        state.chats.retain(|_, chat| chat.next > now || chat.group_next > now || chat.blocked_until > now);
    }
}

/// Groups, supergroups and channels have negative ids or public names.
fn is_group(chat: &str) -> bool {
    chat.starts_with('-') || chat.starts_with('@')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn limits() -> Limits {
        Limits::new(TelegramLimits::default())
    }

    #[test]
    fn a_chat_takes_a_burst_then_one_a_second_and_holds_no_other_chat_up() {
        let limits = limits();
        let turns: Vec<_> = (0..5).map(|_| limits.ask("7", true, ms(0))).collect();
        let wait = Turn::In(Duration::from_secs(1));
        let later = Turn::NotBefore(Duration::from_secs(2));
        assert_eq!(turns, [Turn::In(ms(0)), Turn::In(ms(0)), Turn::In(ms(0)), wait, later]);
        assert_eq!(limits.ask("8", true, ms(0)), Turn::In(ms(0)));
        assert_eq!(limits.ask("7", false, ms(0)), Turn::In(ms(0)), "a reaction is no message");
    }

    /// Field report R22.
    #[test]
    fn a_429_holds_its_chat_and_no_other() {
        let limits = limits();
        limits.block("7", Duration::from_secs(10_072), ms(0));
        assert_eq!(limits.ask("7", true, ms(1000)), Turn::NotBefore(Duration::from_secs(10_071)));
        assert_eq!(limits.ask("8", true, ms(1000)), Turn::In(ms(0)));
        assert_eq!(limits.ask("7", true, Duration::from_secs(10_072)), Turn::In(ms(0)));
    }

    #[test]
    fn chats_at_rest_are_forgotten_and_those_that_must_wait_are_not() {
        let limits = Limits::new(TelegramLimits { per_second: 0, ..TelegramLimits::default() });
        limits.block("blocked", Duration::from_secs(9_000), ms(0));
        for n in 0..10_000u64 {
            limits.ask(&n.to_string(), true, ms(n * 100));
        }
        assert!(limits.state.lock().unwrap().chats.len() <= MANY);
        assert!(matches!(limits.ask("blocked", true, Duration::from_secs(1_000)), Turn::NotBefore(_)));
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        let none =
            TelegramLimits { per_second: 0, chat_per_second: 0, group_per_minute: 0, ..TelegramLimits::default() };
        let limits = Limits::new(none);
        assert!((0..1000).all(|_| limits.ask("-7", true, ms(0)) == Turn::In(ms(0))));
    }

    proptest! {
        /// However sends are asked for, what goes out keeps the limits in any window.
        #[test]
        fn no_window_holds_more_than_it_may(asks in proptest::collection::vec((0u64..3000, 0usize..3), 1..300)) {
            let (limits, chats) = (limits(), ["7", "8", "-9"]);
            let mut sent: Vec<(Duration, &str)> = Vec::new();
            let mut now = ms(0);
            for (passed, chat) in asks {
                now += ms(passed);
                if let Turn::In(wait) = limits.ask(chats[chat], true, now) {
                    prop_assert!(wait <= Duration::from_secs(1));
                    sent.push((now + wait, chats[chat]));
                }
            }
            sent.sort();
            let most = |chat: Option<&str>, window: Duration| {
                let times: Vec<_> = sent.iter().filter(|(_, of)| chat.is_none_or(|chat| *of == chat)).map(|(at, _)| *at).collect();
                times.iter().map(|from| times.iter().filter(|at| **at >= *from && **at < *from + window).count()).max()
            };
            for chat in chats {
                prop_assert!(most(Some(chat), Duration::from_secs(1)).unwrap_or(0) <= 4);
                prop_assert!(most(Some(chat), Duration::from_secs(10)).unwrap_or(0) <= 13);
            }
            prop_assert!(most(Some("-9"), Duration::from_secs(60)).unwrap_or(0) <= 20);
            prop_assert!(most(None, Duration::from_secs(1)).unwrap_or(0) <= 40);
        }
    }
}
