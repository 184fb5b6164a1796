//! What is counted: for one bot, and over all of them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{bot::Bot, server::Server};
use crate::lock;

/// Counts of one bot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BotStats {
    /// Whether a poll is open at this moment.
    pub polling: bool,
    /// Polls so far, short ones included.
    pub polls: u64,
    /// Polls that were ended by a second one.
    pub conflicts: u64,
    /// Requests by method, in lower case.
    pub requests: BTreeMap<String, u64>,
    /// Answers other than 2xx by status.
    pub refused: BTreeMap<u16, u64>,
    /// Requests that a fault struck.
    pub faults: u64,
    /// Updates that no offset has confirmed.
    pub pending: usize,
    /// Updates given out, each time counted.
    pub given: u64,
    /// Of these, those that had been given out before.
    pub given_again: u64,
    /// Updates that were dropped because the bot has not asked for their kind.
    pub not_asked_for: u64,
    /// Messages of people.
    pub messages_in: u64,
    /// Messages of the bot.
    pub messages_out: u64,
}

impl BotStats {
    pub(super) fn of(bot: &Bot) -> Self {
        let state = lock(&bot.state);
        let counts = state.counts.clone();
        Self {
            polling: state.waiter.is_some(),
            polls: counts.polls,
            conflicts: counts.conflicts,
            requests: counts.requests,
            refused: counts.refused,
            faults: counts.faults,
            pending: state.pending.len(),
            given: counts.given,
            given_again: counts.given_again,
            not_asked_for: counts.not_asked_for,
            messages_in: counts.messages_in,
            messages_out: counts.messages_out,
        }
    }

    /// Requests of one method, in any letter case.
    pub fn requests_of(&self, method: &str) -> u64 {
        self.requests.get(&method.to_ascii_lowercase()).copied().unwrap_or(0)
    }
}

/// Counts over all bots.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Bots that exist.
    pub bots: usize,
    /// Bots with a poll open at this moment.
    pub polls_open: usize,
    /// The sums over all bots.
    pub sum: BotStats,
}

impl Stats {
    pub(super) fn of(server: &Server) -> Self {
        let bots = server.bots();
        let mut sum = BotStats::default();
        for bot in &bots {
            let one = BotStats::of(bot);
            sum.polling |= one.polling;
            for (method, count) in one.requests {
                *sum.requests.entry(method).or_default() += count;
            }
            for (status, count) in one.refused {
                *sum.refused.entry(status).or_default() += count;
            }
            sum.polls += one.polls;
            sum.conflicts += one.conflicts;
            sum.faults += one.faults;
            sum.pending += one.pending;
            sum.given += one.given;
            sum.given_again += one.given_again;
            sum.not_asked_for += one.not_asked_for;
            sum.messages_in += one.messages_in;
            sum.messages_out += one.messages_out;
        }
        Self { bots: bots.len(), polls_open: server.polls_open(), sum }
    }
}
