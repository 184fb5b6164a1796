//! Single promises of the plan, each with the smallest outbox that shows it.

use jiff::Timestamp;

mod giving_up;
mod sharing;

use Destination::{Endpoint, Handler};

use super::{settle::Settled, *};
use crate::{
    event::{EventKind, MessageRef},
    platform::PlatformKind,
    sink::Stored,
};

const ENDPOINT: Site = Site::Remote(1);

/// A plan over an outbox whose reads answer at once and whose outcomes are stored at once.
struct Bench {
    plan: Plan,
    now: Now,
    open: Vec<Stored>,
    seqs: HashMap<ChannelId, u64>,
    position: u64,
    buried: Vec<(u64, String)>,
    reads: usize,
    /// The next spread of a retry; in the middle unless a test lets it wander.
    roll: f64,
    wander: f64,
}

fn channel(n: u128) -> ChannelId {
    ChannelId::from_uuid(uuid::Uuid::from_u128(n))
}

fn limits() -> Limits {
    Limits { in_flight: 64, of_site: 16, of_channel: 8, window: 256, lanes: 256, unwritten: 1024 }
}

fn failed() -> Outcome {
    Outcome::Failed { error: "answered 500".into(), retry_after: None, malformed: false }
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let mut bench = Self {
            plan: Plan::new(limits, Backoff::default()),
            now: Now { mono: Duration::from_secs(1000), wall_ms: 1_700_000_000_000 },
            open: Vec::new(),
            seqs: HashMap::new(),
            position: 0,
            buried: Vec::new(),
            reads: 0,
            roll: 0.5,
            wander: 0.0,
        };
        assert!(bench.attempts().is_empty());
        bench
    }

    fn store(&mut self, of: u128, chat: &str, to: &[Destination]) -> u64 {
        self.position += 1;
        let (key, kind) = (self.position.to_string(), EventKind::Revoked(MessageRef::default()));
        let at = Timestamp::UNIX_EPOCH;
        let mut event = Event::new(channel(of), PlatformKind::Telegram, Some(chat.into()), at, &key, kind);
        let seq = self.seqs.entry(channel(of)).or_default();
        *seq += 1;
        event.seq = *seq;
        let open = to.iter().map(|destination| (*destination, 0)).collect();
        let stored = Stored { position: self.position, stored_ms: self.now.wall_ms, event, open };
        self.open.push(stored.clone());
        self.plan.push(stored);
        self.position
    }

    /// What is to be delivered now, after all reads that are wanted.
    fn attempts(&mut self) -> Vec<Attempt> {
        let mut attempts = Vec::new();
        loop {
            let mut actions = Vec::new();
            let mut route = |(destination, of): GroupKey| match destination {
                Destination::Endpoint => ENDPOINT,
                Destination::Handler => Site::Remote(100 + of.uuid().as_u128() as u64),
            };
            self.plan.poll(self.now, &mut route, &mut actions);
            let mut read = false;
            for action in actions {
                match action {
                    Action::Deliver(attempt) => attempts.push(attempt),
                    Action::Load { scope, after, limit } => {
                        let page = self.open[self.open.partition_point(|stored| stored.position <= after)..].iter();
                        let page = page.filter(|stored| scope.includes(stored)).take(limit).cloned().collect();
                        self.plan.loaded(page);
                        (read, self.reads) = (true, self.reads + 1);
                    }
                }
            }
            if !read {
                return attempts;
            }
        }
    }

    fn finish(&mut self, attempt: &Attempt, outcome: Outcome) -> Settled {
        let settled = self.plan.finish(&attempt.lane, outcome, self.now, self.roll);
        self.roll = (self.roll + self.wander).fract();
        let (destination, _) = attempt.lane.group;
        let at = self.open.partition_point(|stored| stored.position < attempt.position);
        let stored = &mut self.open[at];
        match &settled.write {
            Some(Write::Failed { .. }) => {
                stored.open.iter_mut().for_each(|(to, n)| *n += u32::from(*to == destination))
            }
            Some(Write::Delivered) => stored.open.retain(|(to, _)| *to != destination),
            Some(Write::Buried { reason, .. }) => {
                stored.open.retain(|(to, _)| *to != destination);
                self.buried.push((attempt.position, reason.clone()));
            }
            None => return settled,
        }
        if stored.open.is_empty() {
            self.open.remove(at);
        }
        self.plan.written(destination, attempt.position);
        settled
    }

    fn pass(&mut self, time: Duration) {
        self.now.mono += time;
        self.now.wall_ms += time.as_millis() as i64;
    }

    fn wait_ms(&self) -> Option<u128> {
        self.plan.next_due().map(|due| due.saturating_sub(self.now.mono).as_millis())
    }
}

/// A fresh event of a channel that is known goes out without a read.
#[test]
fn a_fresh_event_is_not_read_again() {
    let mut bench = Bench::new(limits());
    for n in 0..50 {
        bench.store(1, if n % 2 == 0 { "a" } else { "b" }, &[Handler]);
        let attempts = bench.attempts();
        assert_eq!(attempts.len(), 1);
        bench.finish(&attempts[0], Outcome::Done);
    }
    assert_eq!(bench.reads, 2 + 1, "two scans at start, one read for a channel never heard of");
    assert_eq!(bench.wait_ms(), None);
}

#[test]
fn what_comes_out_of_order_is_read_in_order() {
    let mut bench = Bench::new(limits());
    let first = bench.store(1, "a", &[Handler]);
    let attempts = bench.attempts();
    bench.finish(&attempts[0], Outcome::Done);
    // Two appends end at about the same time, and the later one is told of first.
    let mut plan = std::mem::replace(&mut bench.plan, Plan::new(limits(), Backoff::default()));
    let (second, third) = (bench.store(1, "a", &[Handler]), bench.store(1, "a", &[Handler]));
    plan.push(bench.open[1].clone());
    plan.push(bench.open[0].clone());
    bench.plan = plan;
    for position in [second, third] {
        let attempts = bench.attempts();
        assert_eq!(attempts.iter().map(|attempt| attempt.position).collect::<Vec<_>>(), [position]);
        bench.finish(&attempts[0], Outcome::Done);
    }
    assert!(first < second && bench.attempts().is_empty());
}

/// A read was made while an event was open, and is told of when it no longer is.
#[test]
fn a_late_page_brings_nothing_back() {
    let mut bench = Bench::new(limits());
    let (first, second) = (bench.store(1, "a", &[Handler]), bench.store(1, "a", &[Handler]));
    let attempts = bench.attempts();
    let replayed = bench.open[0].clone();
    bench.finish(&attempts[0], Outcome::Refused { error: "answered 410".into() });
    let attempts = bench.attempts();
    bench.plan.finish(&attempts[0].lane, Outcome::Done, bench.now, 0.5);
    // The second is delivered, but its mark is still on its way when the first is opened again and found.
    bench.open.insert(0, replayed);
    bench.plan.rescan();
    let page = bench.open.clone();
    let poll = |plan: &mut Plan| {
        let mut actions = Vec::new();
        plan.poll(bench.now, &mut |_| Site::Local, &mut actions);
        actions
    };
    while !matches!(poll(&mut bench.plan)[..], [Action::Load { scope: Scope::Conversation(..), .. }]) {
        bench.plan.loaded(page.clone());
    }
    bench.plan.written(Handler, second);
    bench.plan.loaded(page);
    let actions = poll(&mut bench.plan);
    let [Action::Deliver(attempt), Action::Load { .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(attempt.position, first);
    bench.plan.loaded(Vec::new());
    bench.open.pop();
    bench.finish(attempt, Outcome::Done);
    assert!(bench.attempts().is_empty());
}

#[test]
fn nothing_is_begun_after_stop() {
    let mut bench = Bench::new(limits());
    bench.store(1, "a", &[Handler]);
    bench.plan.stop();
    assert!(bench.attempts().is_empty());
    assert_eq!(bench.open.len(), 1);
}
