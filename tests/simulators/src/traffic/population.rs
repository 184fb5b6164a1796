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

/// How far a rate may fall behind and still be caught up with.
const CATCH_UP: Duration = Duration::from_millis(200);

/// What somebody at the other end wrote, as it was shown.
pub(super) struct Answer {
    /// Who wrote, by the id that the platform has for them.
    pub(super) bot: i64,
    /// In which chat.
    pub(super) chat: i64,
    pub(super) text: String,
    pub(super) at: Instant,
}

/// A person's side of a private chat.
pub(super) trait Voice: Send {
    /// Says something without waiting for what becomes of it.
    fn say(&self, text: &str);
}

/// A chat between a person and whoever answers there.
pub(super) struct Chat {
    /// Who answers, by place.
    pub(super) place: usize,
    /// Who answers, by the id that the platform has for them.
    pub(super) bot: i64,
    /// The chat, by the id that the platform has for it.
    pub(super) chat: i64,
    pub(super) voice: Box<dyn Voice>,
}

struct Person {
    bot: usize,
    chat: i64,
    voice: Box<dyn Voice>,
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
    /// Those in `chats`, who speak in this order when their turns come at once.
    pub(super) fn new(
        chats: Vec<Chat>,
        answers: mpsc::UnboundedReceiver<Answer>,
        plan: Plan,
        told: Box<dyn FnMut(&Told) + Send>,
    ) -> Self {
        let now = Instant::now();
        let mut population = Self {
            plan,
            people: Vec::new(),
            by_chat: HashMap::new(),
            bot_places: HashMap::new(),
            turns: BinaryHeap::new(),
            answers,
            told,
            ledger: Ledger::default(),
            next_slot: now,
        };
        for Chat { place, bot, chat, voice } in chats {
            let person = population.people.len();
            population.by_chat.insert((bot, chat), person);
            population.bot_places.insert(bot, place);
            population.people.push(Person { bot: place, chat, voice, sent: 0 });
            for _ in 0..population.plan.in_flight.max(1) {
                let turn = now + population.thinking();
                population.turns.push(Reverse((turn, person)));
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
            let text = format!("message {} of user {} to bot {}", person.sent, person.chat, person.bot + 1);
            self.ledger.say(index, person.sent, text.clone(), Instant::now());
            person.voice.say(&text);
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
