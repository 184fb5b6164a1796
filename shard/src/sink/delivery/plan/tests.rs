//! Single promises of the plan, each with the smallest outbox that shows it.

use jiff::Timestamp;

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
        let settled = self.plan.finish(&attempt.lane, outcome, self.now, 0.5);
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

/// Contract: E1. Dead for an hour: what is remembered of it is bounded, and nobody else waits.
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

/// The waits of one event's attempts, each failing with `outcome`, until it is buried.
fn waits(bench: &mut Bench, outcome: Outcome) -> Vec<u128> {
    let mut waits = Vec::new();
    while bench.buried.is_empty() && waits.len() < 500 {
        let attempts = bench.attempts();
        assert_eq!(attempts.len(), 1);
        bench.finish(&attempts[0], outcome.clone());
        if bench.buried.is_empty() {
            let wait = bench.wait_ms().expect("another attempt");
            waits.push(wait);
            bench.pass(Duration::from_millis(wait as u64));
        }
    }
    waits
}

/// Contract: E1.
#[test]
fn a_failing_event_is_tried_for_a_day_and_then_buried_with_its_reason() {
    let mut bench = Bench::new(limits());
    let position = bench.store(1, "a", &[Endpoint]);
    let waits = waits(&mut bench, failed());
    assert_eq!(waits[..11], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600].map(|seconds| seconds * 1000));
    let (day, sum) = (24 * 3600 * 1000, waits.iter().sum::<u128>());
    assert!((day..day + 600_000).contains(&sum), "{waits:?}");
    let reason = format!("given up after {} attempts: answered 500", waits.len() + 1);
    assert_eq!(bench.buried, [(position, reason)]);
    assert!(bench.attempts().is_empty());
    assert_eq!(bench.wait_ms(), None);
}

/// What grew old while nothing ran gets several chances; what waits behind it, on a site known to be dead, does not.
#[test]
fn age_alone_buries_nothing() {
    let mut bench = Bench::new(limits());
    let old = bench.store(1, "a", &[Endpoint]);
    let behind = bench.store(1, "a", &[Endpoint]);
    bench.pass(Duration::from_secs(48 * 3600));
    assert_eq!(waits(&mut bench, failed()).len(), 7);
    assert_eq!(bench.buried[0].0, old);
    let attempts = bench.attempts();
    bench.finish(&attempts[0], failed());
    assert_eq!(bench.buried[1].0, behind);
}

#[test]
fn an_answer_that_makes_no_sense_is_given_up_soon() {
    let mut bench = Bench::new(limits());
    bench.store(1, "a", &[Handler]);
    let malformed = Outcome::Failed { error: "the answer is not JSON".into(), retry_after: None, malformed: true };
    assert_eq!(waits(&mut bench, malformed).len(), 4);
    assert_eq!(bench.buried[0].1, "given up after 5 attempts: the answer is not JSON");
}

#[test]
fn a_refusal_is_final_and_lets_the_next_event_go() {
    let mut bench = Bench::new(limits());
    bench.store(1, "a", &[Endpoint]);
    let next = bench.store(1, "a", &[Endpoint]);
    assert_eq!(waits(&mut bench, Outcome::Refused { error: "answered 410".into() }), []);
    assert_eq!(bench.buried[0].1, "answered 410");
    assert_eq!(bench.attempts()[0].position, next);
}

#[test]
fn a_receiver_that_asks_for_patience_gets_it_but_no_hot_loop() {
    let patience = |asked| {
        let mut bench = Bench::new(limits());
        bench.store(1, "a", &[Endpoint]);
        let attempts = bench.attempts();
        let outcome = Outcome::Failed {
            error: "answered 429".into(),
            retry_after: Some(Duration::from_secs(asked)),
            malformed: false,
        };
        bench.finish(&attempts[0], outcome);
        bench.wait_ms().expect("another attempt")
    };
    assert_eq!(patience(90), 90_000);
    assert_eq!(patience(0), 1000);
}

#[test]
fn an_unknown_channel_is_nobodys_failure_and_goes_on_when_it_is_known() {
    let mut bench = Bench::new(limits());
    let position = bench.store(1, "a", &[Handler]);
    for _ in 0..5 {
        let attempts = bench.attempts();
        assert_eq!(bench.finish(&attempts[0], Outcome::Unknown), Settled::default());
        bench.pass(Duration::from_millis(bench.wait_ms().expect("another look") as u64));
    }
    assert_eq!(bench.open[0].open, [(Handler, 0)]);
    let attempts = bench.attempts();
    bench.finish(&attempts[0], Outcome::Unknown);
    assert!(bench.attempts().is_empty());
    bench.plan.handler_changed(channel(1), bench.now);
    let attempts = bench.attempts();
    assert_eq!(attempts[0].position, position);
    bench.finish(&attempts[0], Outcome::Unknown);
    bench.pass(Duration::from_secs(25 * 3600));
    waits(&mut bench, Outcome::Unknown);
    assert_eq!(bench.buried[0].1, "its channel is not known");
}

/// A slow agent has its limit, a channel has its own, and neither is anybody else's.
#[test]
fn a_slow_site_holds_nobody_else_back() {
    let mut bench = Bench::new(limits());
    for n in 0..60 {
        bench.store(n % 6, &format!("chat-{n}"), &[Endpoint, Handler]);
    }
    let attempts = bench.attempts();
    let to = |destination| attempts.iter().filter(|attempt| attempt.lane.group.0 == destination).count();
    assert_eq!((to(Endpoint), to(Handler)), (16, 6 * 8));
    // One place at the endpoint is given to one of those who wait there, and the next ones go round.
    let under_way: Vec<_> = attempts.iter().filter(|attempt| attempt.lane.group.0 == Endpoint).collect();
    bench.finish(under_way[0], Outcome::Done);
    assert_eq!(bench.attempts().len(), 1);
    for attempt in &under_way[1..] {
        bench.finish(attempt, Outcome::Done);
    }
    let next = bench.attempts();
    let served = (0..6).map(|n| next.iter().filter(|attempt| attempt.lane.group == (Endpoint, channel(n))).count());
    assert!(served.clone().all(|n| (1..=3).contains(&n)), "{:?}", served.collect::<Vec<_>>());
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

#[test]
fn a_site_is_told_to_be_down_once_and_up_once() {
    let mut bench = Bench::new(limits());
    for n in 0..8 {
        bench.store(1, &format!("chat-{n}"), &[Endpoint]);
    }
    let attempts = bench.attempts();
    let told: Vec<_> = attempts[..6].iter().map(|attempt| bench.finish(attempt, failed()).down).collect();
    assert_eq!(told, [None, None, Some(true), None, None, None]);
    assert_eq!(bench.finish(&attempts[6], Outcome::Done).down, Some(false));
    assert_eq!(bench.finish(&attempts[7], Outcome::Done).down, None);
}

#[test]
fn nothing_is_begun_after_stop() {
    let mut bench = Bench::new(limits());
    bench.store(1, "a", &[Handler]);
    bench.plan.stop();
    assert!(bench.attempts().is_empty());
    assert_eq!(bench.open.len(), 1);
}
