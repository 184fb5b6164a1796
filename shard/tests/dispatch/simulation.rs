//! Random jobs, failures, deaths, stops, outages and changes of the layout; at the end every job is done once as its
//! recipient sees it, or is a dead letter that says why, in the order of its lane, and nothing is left anywhere.
//!
//! `SEED=<n>` replays one run, `SEEDS=<n>` makes more of them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use rand::{Rng, SeedableRng, rngs::StdRng};
use shard::{
    identity::{QueueBase, QueueName, ShardId},
    job::{Job, OnUncertain, Task},
    platform::Failed,
    queue::Limits,
};

use crate::support::{
    Act, Fault, Kind, Options, Process, World, avatar, channel, connect, disconnect, download, eventually, mark_read,
    permanent, resync, retry, send, send_or,
};

const JOBS: usize = 300;

/// A lane as a producer sees it, in one layout.
type Chat = (shard::identity::ChannelId, String);

struct Run {
    world: Arc<World>,
    rng: StdRng,
    count: u32,
    /// How often the layout has changed: what was published under another one may be overtaken on its way.
    epoch: u32,
    options: Options,
    processes: Vec<Process>,
    nonsense: usize,
    /// What was published into each lane whose order is watched.
    lanes: HashMap<Chat, Vec<String>>,
}

impl Run {
    async fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let kind = if rng.random_bool(0.5) { Kind::Chosen } else { Kind::Given };
        let world = World::new(kind);
        let count = rng.random_range(1..=3);
        let limits = Limits { running: rng.random_range(2..40), lot: rng.random_range(1..8), ..Limits::default() };
        let options = Options {
            prefetch: rng.random_range(2..40),
            limits,
            patience: Duration::from_millis(rng.random_range(20..400)),
            grace: Duration::from_millis(rng.random_range(0..400)),
            ..Options::default()
        };
        let behaviour = Mutex::new(StdRng::seed_from_u64(seed ^ 1));
        world.wire.otherwise(move |_| act(&mut behaviour.lock().expect("behaviour")));
        world.declare(count).await;
        let processes = world.start_all(count, options);
        world.faults.die_at_random(seed ^ 2, 0.0008);
        Self { world, rng, count, epoch: 0, options, processes, nonsense: 0, lanes: HashMap::new() }
    }

    fn job(&mut self, number: usize) -> Job {
        let id = format!("j{number}");
        let of = channel(self.rng.random_range(0..6), self.rng.random_range(0..2));
        let chat = format!("{}@{}", self.rng.random_range(0..3), self.epoch);
        let policy = if self.rng.random_bool(0.3) { OnUncertain::DeadLetter } else { OnUncertain::Resend };
        match self.rng.random_range(0..100) {
            0..80 => send_or(&id, of, &chat, policy),
            80..88 => mark_read(&id, of, &chat),
            88..93 => download(&id, of, &chat),
            93..97 => avatar(&id, of, &chat),
            _ => resync(&id, of),
        }
    }

    async fn publish(&mut self, number: usize) {
        let job = self.job(number);
        let home = ShardId::new(0, self.count).queue_for_channel(job.base(), job.channel);
        match self.rng.random_range(0..100) {
            0..3 => {
                self.nonsense += 1;
                self.world.publish(home, format!("nonsense {number}")).await;
            }
            // Twice, and out of the order that is watched.
            3..6 => {
                let job = send(job.id.as_str(), job.channel, &format!("twice {number}"));
                self.world.submit(self.count, &job).await;
                self.world.submit(self.count, &job).await;
                return;
            }
            // Into a queue where it does not belong.
            6..9 => {
                let job = download(job.id.as_str(), job.channel, &format!("astray {number}"));
                let index = self.rng.random_range(0..self.count);
                let astray = QueueName::of(QueueBase::ALL[self.rng.random_range(0..3)], index, self.count);
                self.world.submit_to(astray, &job).await;
                return;
            }
            9..10 => {
                let of = job.channel;
                self.world.submit(self.count, &disconnect(&format!("off{number}"), of)).await;
                self.world.submit(self.count, &connect(&format!("on{number}"), of)).await;
            }
            _ => {}
        }
        if let Some(chat) = job.task.chat() {
            let lane = format!("{} of {chat}", job.base().as_str());
            self.lanes.entry((job.channel, lane)).or_default().push(job.id.to_string());
        }
        self.world.submit_to(home, &job).await;
    }

    /// Whoever has died is started again.
    fn revive(&mut self) {
        for index in 0..self.count {
            if self.processes[index as usize].has_ended() {
                self.processes[index as usize] = self.world.start(index, self.count, self.options);
            }
        }
    }

    fn end_one(&mut self, index: u32) {
        let next = |this: &Self| this.world.start(index, this.count, this.options);
        if self.rng.random_bool(0.5) {
            self.processes[index as usize].end(self.rng.random_bool(0.5));
        }
        self.processes[index as usize].end(false);
        self.processes[index as usize] = next(self);
    }

    async fn change_layout(&mut self) {
        // Order is kept on one way home; on two at once, from one layout before and from two, it can't be.
        eventually("the layout of before is done with", async || {
            self.revive();
            self.world.is_migrated(self.count)
        })
        .await;
        for mut process in self.processes.drain(..) {
            process.end(self.rng.random_bool(0.5));
        }
        self.count = self.rng.random_range(1..=3);
        self.epoch += 1;
        self.world.journal.note(format!("layout becomes {}", self.count));
        self.world.leases_end();
        self.world.declare(self.count).await;
        self.processes = self.world.start_all(self.count, self.options);
    }

    async fn something_happens(&mut self) {
        match self.rng.random_range(0..10) {
            0..2 => {
                let index = self.rng.random_range(0..self.count);
                self.end_one(index);
            }
            2..3 => self.change_layout().await,
            3..5 => {
                let of = channel(self.rng.random_range(0..6), self.rng.random_range(0..2));
                if self.rng.random_bool(0.5) { self.world.starting(of) } else { self.world.ready(of) }
            }
            5..6 => {
                let points =
                    ["next", "ack", "park", "unpark", "reserve", "mark_sent", "cancel", "append", "put_lane_fact"];
                let faults = [Fault::Unavailable, Fault::Refused, Fault::Fenced, Fault::Stale];
                let point = points[self.rng.random_range(0..points.len())];
                // What ends a session ends it for all that is parked in a row, never for one in the middle.
                let kinds = if point == "park" { 2 } else { faults.len() };
                self.world.faults.fail(point, faults[self.rng.random_range(0..kinds)]);
            }
            6..7 => self.world.leases_renewed(),
            _ => {
                let target = self.world.wire.begun() + self.rng.random_range(1..20);
                let until = tokio::time::Instant::now() + Duration::from_millis(100);
                while self.world.wire.begun() < target && tokio::time::Instant::now() < until {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        }
        self.revive();
    }

    /// From now on nothing goes wrong any more.
    async fn come_to_rest(&mut self) {
        self.world.faults.die_at_random(0, 0.0);
        self.world.faults.mend();
        self.world.wire.otherwise(|_| Act::Done);
        for number in 0..6 {
            self.world.ready(channel(number, 0));
            self.world.ready(channel(number, 1));
        }
        eventually("everything comes to rest", async || {
            self.revive();
            // No lane waits for nothing either.
            self.world.left().await == 0 && self.world.facts(self.count) == 0
        })
        .await;
        for mut process in self.processes.drain(..) {
            process.end(true);
        }
    }

    async fn check(&self) {
        let (world, told) = (&self.world, self.world.told().await);
        let dead = world.dead().await;
        assert!(dead.iter().all(|letter| !letter.reason().is_empty()), "each says why");
        let not_jobs = dead.iter().filter(|letter| letter.reason() == "not_a_job").count();
        assert_eq!(not_jobs, self.nonsense, "what is no job");
        let dead: HashSet<String> = dead.iter().filter_map(|letter| letter.job()).collect();
        for job in world.published() {
            let id = job.id.as_str();
            let (shown, done, failed) = (world.wire.shown(id), told.done(id).len(), told.failed(id).len());
            assert!(done <= 1 && failed <= 1, "{id} was told {done} and {failed} times");
            let control = matches!(job.task, Task::Connect(_) | Task::Disconnect(_));
            assert!(control || done == 1 || dead.contains(id), "{id} is neither done nor dead");
            assert!(control || done == 0 || shown > 0, "{id} is told to be done and was not");
            if job.task.is_send() {
                let doubt = world.was_uncertain(id);
                let chosen = world.wire.kind == Kind::Chosen;
                assert!(shown <= 1 || (!chosen && doubt), "{id} was shown {shown} times, doubt: {doubt}");
                let never_twice = job.task.on_uncertain() == OnUncertain::DeadLetter;
                assert!(!never_twice || shown <= 1, "{id} was shown {shown} times and should be a dead letter");
            }
        }
        for ((of, lane), published) in &self.lanes {
            let (base, chat) = lane.split_once(" of ").expect("as it was made");
            let shown: Vec<String> = world.wire.order(*of, chat);
            let shown: Vec<&String> = shown.iter().filter(|id| published.contains(id)).collect();
            let in_order: Vec<&String> = published.iter().filter(|id| shown.contains(id)).collect();
            if shown != in_order {
                let words = ["life", "layout"].into_iter().chain(published.iter().map(String::as_str));
                world.journal.print(&words.collect::<Vec<_>>());
            }
            assert_eq!(shown, in_order, "lane {base} {of} {chat}");
        }
    }
}

fn act(rng: &mut StdRng) -> Act {
    let shown = rng.random_bool(0.5);
    let after = Some(Duration::from_millis(rng.random_range(0..60)));
    match rng.random_range(0..1000) {
        0..80 => Act::Fail(retry()),
        80..110 => Act::Fail(Failed::Retry { error: "flood".to_owned(), after }),
        110..150 => Act::Ambiguous { shown },
        150..160 => Act::Fail(permanent()),
        160..180 => Act::Fail(Failed::NotConnected),
        180..190 => Act::Panic { shown },
        190..195 => Act::Crash { shown },
        195..400 => Act::Slow(Duration::from_millis(rng.random_range(0..20))),
        _ => Act::Done,
    }
}

async fn run(seed: u64) {
    let mut run = Run::new(seed).await;
    let mut number = 0;
    while number < JOBS {
        for _ in 0..run.rng.random_range(1..30) {
            run.publish(number).await;
            number += 1;
        }
        run.something_happens().await;
    }
    run.come_to_rest().await;
    run.check().await;
}

/// Contract: Q1 to Q10. Field reports R27, R31, R33, R34.
#[tokio::test]
async fn every_job_is_done_once_or_dead_and_nothing_is_left() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds: Vec<u64> = match number("SEED") {
        Some(seed) => vec![seed],
        None => {
            let first = rand::rng().random_range(0..u64::MAX / 2);
            (first..).take(number("SEEDS").unwrap_or(30) as usize).collect()
        }
    };
    println!("seeds {} to {}", seeds[0], seeds[seeds.len() - 1]);
    let told = |seed: u64| async move {
        let outcome = futures_util::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(run(seed))).await;
        if let Err(panic) = outcome {
            eprintln!("it was SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    };
    stream::iter(seeds).map(told).buffer_unordered(8).collect::<Vec<()>>().await;
}
