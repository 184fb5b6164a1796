//! The people: one loop that lets each of them speak when it is their turn and hears all answers.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::{Duration, Instant},
};

use rand::Rng;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Outcome, Plan, Summary, Told, ledger::Ledger};
use crate::telegram::{BotHandle, Telegram, User};

/// How far a rate may fall behind and still be caught up with.
const CATCH_UP: Duration = Duration::from_millis(200);
/// The first person's id; far from the small numbers that tests pick by hand.
const FIRST_ID: i64 = 1_000_000;

struct Answer {
    bot: i64,
    chat: i64,
    text: String,
    at: Instant,
}

struct Person {
    bot: usize,
    chat: User,
    sent: u64,
}

/// All people of one run.
pub(super) struct Population {
    plan: Plan,
    people: Vec<Person>,
    by_chat: HashMap<(i64, i64), usize>,
    bot_places: HashMap<i64, usize>,
    /// Whose turn comes when; a person is in here once for each message that may be in flight.
    turns: BinaryHeap<Reverse<(Instant, usize)>>,
    answers: mpsc::UnboundedReceiver<Answer>,
    told: Box<dyn FnMut(&Told) + Send>,
    ledger: Ledger,
    next_slot: Instant,
}

impl Population {
    pub(super) fn new(telegram: &Telegram, bots: &[BotHandle], plan: Plan, told: Box<dyn FnMut(&Told) + Send>) -> Self {
        let (heard, answers) = mpsc::unbounded_channel();
        telegram.watch(move |seen| {
            if seen.entry.is_answer() {
                let text = seen.entry.text.clone().unwrap_or_default();
                // Nobody listens any more once the run is over.
                let _ = heard.send(Answer { bot: seen.bot, chat: seen.entry.chat, text, at: Instant::now() });
            }
        });
        let now = Instant::now();
        let mut population = Self {
            plan,
            people: Vec::new(),
            by_chat: HashMap::new(),
            bot_places: bots.iter().enumerate().map(|(place, bot)| (bot.id(), place)).collect(),
            turns: BinaryHeap::new(),
            answers,
            told,
            ledger: Ledger::default(),
            next_slot: now,
        };
        // One person of each bot before the second of any: a slow rate still reaches all bots.
        for round in 0..population.plan.users_per_bot {
            for (place, bot) in bots.iter().enumerate() {
                let id = FIRST_ID + i64::try_from(round * bots.len() + place).unwrap_or_default();
                let person = population.people.len();
                population.by_chat.insert((bot.id(), id), person);
                population.people.push(Person { bot: place, chat: bot.user(id), sent: 0 });
                for _ in 0..population.plan.in_flight.max(1) {
                    let turn = now + population.thinking();
                    population.turns.push(Reverse((turn, person)));
                }
            }
        }
        population
    }

    fn thinking(&self) -> Duration {
        let (least, most) = (*self.plan.think.start(), *self.plan.think.end());
        if least >= most { least } else { rand::rng().random_range(least..=most) }
    }

    /// Chats until stopped, then waits for what is under way.
    pub(super) async fn chat(mut self, stop: CancellationToken) -> Summary {
        let mut end: Option<Instant> = None;
        loop {
            let turn =
                self.turns.peek().filter(|_| end.is_none()).map(|Reverse((turn, _))| (*turn).max(self.next_slot));
            tokio::select! {
                Some(answer) = self.answers.recv() => self.hear(answer),
                () = until(turn), if turn.is_some() => self.speak(Instant::now()),
                () = stop.cancelled(), if end.is_none() => end = Some(Instant::now() + self.plan.grace),
                () = until(end), if end.is_some() => return self.ledger.summary(),
            }
            if let Some(over) = end.filter(|_| self.ledger.open() == 0) {
                end = Some(over.min(Instant::now() + self.plan.settle));
            }
        }
    }

    /// Everybody speaks whose turn has come, so far as the rate allows.
    fn speak(&mut self, now: Instant) {
        while let Some(Reverse((turn, index))) = self.turns.peek().copied() {
            if turn > now || self.next_slot > now {
                return;
            }
            self.turns.pop();
            if let Some(rate) = self.plan.rate {
                let behind = now.checked_sub(CATCH_UP).unwrap_or(now);
                self.next_slot = self.next_slot.max(behind) + Duration::from_secs_f64(1.0 / rate);
            }
            let person = &mut self.people[index];
            person.sent += 1;
            let text = format!("message {} of user {} to bot {}", person.sent, person.chat.chat(), person.bot + 1);
            self.ledger.say(index, person.sent, text.clone(), Instant::now());
            person.chat.say(&text);
        }
    }

    fn hear(&mut self, answer: Answer) {
        let Some(bot) = self.bot_places.get(&answer.bot).copied() else { return };
        let person = self.by_chat.get(&(answer.bot, answer.chat)).copied();
        let outcome = self.ledger.hear(person.unwrap_or(usize::MAX), &answer.text, answer.at);
        if let (Outcome::Answered { .. }, Some(person)) = (outcome, person) {
            let turn = Instant::now() + self.thinking();
            self.turns.push(Reverse((turn, person)));
        }
        (self.told)(&Told { bot, chat: answer.chat, text: answer.text, outcome });
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
