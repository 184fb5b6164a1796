//! Single promises of the plan, each with the smallest outbox that shows it.

use jiff::Timestamp;

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
                        let page = self.open.iter().filter(|s| s.position > after && scope.includes(s));
                        let page = page.take(limit).cloned().collect();
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
        let settled = self.plan.finish(&attempt.lane, outcome, self.now, 0.5);
        let (destination, _) = attempt.lane.group;
        let stored = self.open.iter_mut().find(|stored| stored.position == attempt.position).expect("open");
        match &settled.write {
            Some(Write::Failed { .. }) => stored.open.iter_mut().for_each(|(to, n)| *n += u32::from(*to == destination)),
            Some(Write::Delivered) => stored.open.retain(|(to, _)| *to != destination),
            Some(Write::Buried { reason, .. }) => {
                stored.open.retain(|(to, _)| *to != destination);
                self.buried.push((attempt.position, reason.clone()));
            }
            None => return settled,
        }
        self.open.retain(|stored| !stored.open.is_empty());
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

use Destination::{Endpoint, Handler};

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

/// Contract: E1.
#[test]
fn a_failing_head_holds_back_its_own_conversation_and_destination_alone() {
    let mut bench = Bench::new(limits());
    for n in 0..200 {
        bench.store(1, &format!("bad-{}", n % 40), &[Endpoint, Handler]);
    }
    // Everything of these conversations fails at the endpoint; their handler, and everybody else, goes on.
    let mut handled = 0;
    for _ in 0..100 {
        for attempt in bench.attempts() {
            handled += usize::from(attempt.lane.group.0 == Handler);
            let outcome = if attempt.lane.group.0 == Endpoint { failed() } else { Outcome::Done };
            bench.finish(&attempt, outcome);
        }
    }
    assert_eq!(handled, 200);
    bench.store(1, "good", &[Endpoint]);
    bench.store(2, "bad-1", &[Endpoint]);
    let attempts = bench.attempts();
    let chats: Vec<_> = attempts.iter().map(|attempt| attempt.lane.conversation.as_deref().unwrap_or("")).collect();
    assert_eq!(chats, ["good", "bad-1"]);
}

/// Contract: E1. Issue: an endpoint that is dead for an hour keeps memory flat and nobody else waits.
#[test]
fn a_dead_endpoint_keeps_memory_flat_and_loses_nothing() {
    let mut bench = Bench::new(limits());
    let mut most = 0;
    for second in 0..3600u32 {
        for n in 0..4 {
            bench.store(u128::from(n % 3), &format!("chat-{}", (second * 7 + n) % 500), &[Endpoint, Handler]);
        }
        let mut handled = 0;
        for attempt in bench.attempts() {
            let handler = attempt.lane.group.0 == Handler;
            handled += usize::from(handler);
            bench.finish(&attempt, if handler { Outcome::Done } else { failed() });
        }
        handled += bench.attempts().iter().map(|attempt| bench.finish(attempt, Outcome::Done)).count();
        assert!(handled >= 4, "only {handled} of 4 were handled at once");
        bench.pass(Duration::from_secs(1));
        let held = bench.plan.held[&Endpoint];
        most = most.max(held.events + held.lanes);
    }
    assert!(most <= 256 + 3 * 16, "{most} events and lanes are remembered");
    assert_eq!(bench.plan.held[&Handler].events, 0);

    // It is back: all of it arrives, in order, within the time it takes and not at the pace of the longest backoff.
    let started = bench.now.mono;
    let mut last: HashMap<LaneKey, u64> = HashMap::new();
    while !bench.open.is_empty() {
        let attempts = bench.attempts();
        for attempt in &attempts {
            let before = last.insert(attempt.lane.clone(), attempt.position);
            assert!(before < Some(attempt.position), "out of order");
            bench.finish(attempt, Outcome::Done);
        }
        if attempts.is_empty() {
            bench.pass(Duration::from_millis(bench.wait_ms().expect("something to wait for") as u64));
        }
    }
    assert!(bench.now.mono - started < Duration::from_secs(900), "{:?}", bench.now.mono - started);
}
