//! The platform's send limits as they are known from outside: overall, in a chat, in a group.
//!
//! Off unless asked for: a load test of the client must not measure the simulator's limits.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

/// How many messages pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Of a bot in a second.
    pub bot_per_second: f64,
    /// In a chat in a second.
    pub chat_per_second: f64,
    /// In a chat at once.
    pub chat_burst: f64,
    /// In a group in a minute.
    pub group_per_minute: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bot_per_second: 30.0, chat_per_second: 1.0, chat_burst: 3.0, group_per_minute: 20.0 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn new(burst: f64, now: Instant) -> Self {
        Self { tokens: burst, at: now }
    }

    /// How long until a token is there.
    fn wait(&mut self, per_second: f64, burst: f64, now: Instant) -> Option<Duration> {
        self.tokens = (self.tokens + now.duration_since(self.at).as_secs_f64() * per_second).min(burst);
        self.at = now;
        (self.tokens < 1.0).then(|| Duration::from_secs_f64((1.0 - self.tokens) / per_second))
    }
}

/// The state of one bot's limits.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    bot: Option<Bucket>,
    chats: HashMap<i64, Bucket>,
    groups: HashMap<i64, Bucket>,
}

impl Limiter {
    /// Takes a place for a message to `chat`, or says after how many seconds there is one.
    pub(super) fn take(&mut self, limits: &Limits, chat: i64, now: Instant) -> Result<(), u64> {
        let bot = self.bot.get_or_insert_with(|| Bucket::new(limits.bot_per_second, now));
        let mut wait = bot.wait(limits.bot_per_second, limits.bot_per_second, now);
        let place = self.chats.entry(chat).or_insert_with(|| Bucket::new(limits.chat_burst, now));
        wait = wait.max(place.wait(limits.chat_per_second, limits.chat_burst, now));
        let mut group = None;
        if chat < 0 {
            let bucket = self.groups.entry(chat).or_insert_with(|| Bucket::new(limits.group_per_minute, now));
            wait = wait.max(bucket.wait(limits.group_per_minute / 60.0, limits.group_per_minute, now));
            group = Some(bucket);
        }
        if let Some(wait) = wait {
            return Err((wait.as_secs_f64().ceil() as u64).max(1));
        }
        bot.tokens -= 1.0;
        place.tokens -= 1.0;
        if let Some(bucket) = group {
            bucket.tokens -= 1.0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_takes_a_burst_and_then_one_a_second() {
        let (mut limiter, limits, start) = (Limiter::default(), Limits::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let taken = (0..5).filter(|_| limiter.take(&limits, 1, at(0)).is_ok()).count();
        assert_eq!(taken, 3);
        assert_eq!(limiter.take(&limits, 1, at(0)), Err(1));
        assert_eq!(limiter.take(&limits, 1, at(1001)), Ok(()));
        assert_eq!(limiter.take(&limits, 2, at(1001)), Ok(()), "another chat is not held back");
    }

    #[test]
    fn a_group_takes_twenty_a_minute_and_a_bot_thirty_a_second() {
        let (mut limiter, limits, start) = (Limiter::default(), Limits::default(), Instant::now());
        let spaced = |n: u64| start + Duration::from_millis(1100 * n);
        let taken = (0..40).filter(|n| limiter.take(&limits, -5, spaced(*n)).is_ok()).count();
        assert!((20..=36).contains(&taken), "{taken} in 44 s");
        let later = start + Duration::from_secs(100);
        let taken = (100..200).filter(|chat| limiter.take(&limits, *chat, later).is_ok()).count();
        assert_eq!(taken, 30);
    }
}
