//! The platforms' simulators as networks of bots that people chat with.

use std::collections::HashMap;

use super::{Heard, Network};
use crate::{
    slack::{AppHandle, Slack},
    telegram::{BotHandle, Telegram},
};

/// The first person's id on Telegram; far from the small numbers that tests pick by hand.
const FIRST_ID: i64 = 1_000_000;

/// Bots on Telegram; each person writes in a private chat.
#[derive(Debug)]
pub struct TelegramBots {
    telegram: Telegram,
    bots: Vec<BotHandle>,
}

impl TelegramBots {
    /// These bots of a server.
    pub fn new(telegram: &Telegram, bots: &[BotHandle]) -> Self {
        Self { telegram: telegram.clone(), bots: bots.to_vec() }
    }
}

impl Network for TelegramBots {
    fn bots(&self) -> usize {
        self.bots.len()
    }

    fn say(&mut self, bot: usize, person: usize, text: &str) {
        self.bots[bot].user(FIRST_ID + i64::try_from(person).unwrap_or_default()).say(text);
    }

    fn listen(&mut self, heard: Heard) {
        let places: HashMap<i64, usize> = self.bots.iter().enumerate().map(|(place, bot)| (bot.id(), place)).collect();
        self.telegram.watch(move |seen| {
            let person = usize::try_from(seen.entry.chat - FIRST_ID);
            if let (true, Some(bot), Ok(person)) = (seen.entry.is_answer(), places.get(&seen.bot), person) {
                heard(*bot, person, seen.entry.text.as_deref().unwrap_or_default());
            }
        });
    }
}

/// Apps on Slack; each person writes directly to the bot.
#[derive(Debug)]
pub struct SlackApps {
    slack: Slack,
    apps: Vec<AppHandle>,
}

impl SlackApps {
    /// These apps of a server.
    pub fn new(slack: &Slack, apps: &[AppHandle]) -> Self {
        Self { slack: slack.clone(), apps: apps.to_vec() }
    }
}

impl Network for SlackApps {
    fn bots(&self) -> usize {
        self.apps.len()
    }

    fn say(&mut self, bot: usize, person: usize, text: &str) {
        self.apps[bot].dm(&format!("U{person}P")).say(text);
    }

    fn listen(&mut self, heard: Heard) {
        let places: HashMap<String, usize> =
            self.apps.iter().enumerate().map(|(place, app)| (app.id().to_owned(), place)).collect();
        self.slack.watch(move |seen| {
            let person = seen.entry.channel.strip_prefix('D').and_then(|rest| rest.strip_suffix('P')?.parse().ok());
            if let (true, Some(bot), Some(person)) = (seen.entry.is_answer(), places.get(&*seen.app), person) {
                heard(*bot, person, &seen.entry.text);
            }
        });
    }
}
