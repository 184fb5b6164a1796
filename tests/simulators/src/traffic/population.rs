//! The people: one loop that lets each of them speak when it is their turn and hears all answers.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use rand::Rng;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Network, Outcome, Plan, Summary, Told, ledger::Ledger};

/// How far a rate may fall behind and still be caught up with.
const CATCH_UP: Duration = Duration::from_millis(200);

/// A bot among all of them.
type Bot = usize;

struct Answer {
    bot: Bot,
    person: usize,
    text: String,
    at: Instant,
}

struct Person {
    bot: Bot,
    sent: u64,
}

/// All people of one run.
pub(super) struct Population {
    plan: Plan,
    networks: Vec<Box<dyn Network>>,
    /// Which network a bot is on, and where there.
    bots: Vec<(usize, usize)>,
    people: Vec<Person>,
    /// Whose turn comes when; a person is in here once for each message that may be in flight.
    turns: BinaryHeap<Reverse<(Instant, usize)>>,
    answers: mpsc::UnboundedReceiver<Answer>,
    told: Box<dyn FnMut(&Told) + Send>,
    ledger: Ledger,
    next_slot: Instant,
}

impl Population {
    pub(super) fn new(mut networks: Vec<Box<dyn Network>>, plan: Plan, told: Box<dyn FnMut(&Told) + Send>) -> Self {
        let (heard, answers) = mpsc::unbounded_channel();
        let mut bots: Vec<(usize, usize)> = Vec::new();
        for (at, network) in networks.iter_mut().enumerate() {
            let (heard, before) = (heard.clone(), bots.len());
            network.listen(Box::new(move |bot, person, text| {
                // Nobody listens any more once the run is over.
                let _ = heard.send(Answer { bot: before + bot, person, text: text.to_owned(), at: Instant::now() });
            }));
            bots.extend((0..network.bots()).map(|bot| (at, bot)));
        }
        let now = Instant::now();
        let mut population = Self {
            plan,
            networks,
            bots,
            people: Vec::new(),
            turns: BinaryHeap::new(),
            answers,
            told,
            ledger: Ledger::default(),
            next_slot: now,
        };
        // One person of each bot before the second of any: a slow rate still reaches all bots.
        for _ in 0..population.plan.users_per_bot {
            for bot in 0..population.bots.len() {
                let person = population.people.len();
                population.people.push(Person { bot, sent: 0 });
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
            let text = format!("message {} of user {index} to bot {}", person.sent, person.bot + 1);
            self.ledger.say(index, person.sent, text.clone(), Instant::now());
            let (network, bot) = self.bots[person.bot];
            self.networks[network].say(bot, index, &text);
        }
    }

    fn hear(&mut self, answer: Answer) {
        let known = self.people.get(answer.person).is_some_and(|person| person.bot == answer.bot);
        let outcome = self.ledger.hear(if known { answer.person } else { usize::MAX }, &answer.text, answer.at);
        if known && matches!(outcome, Outcome::Answered { .. }) {
            let turn = Instant::now() + self.thinking();
            self.turns.push(Reverse((turn, answer.person)));
        }
        (self.told)(&Told { bot: answer.bot, text: answer.text, outcome });
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
