//! The plan against a model of the outbox, with everything that can happen between them in any order: stores, pushes that
//! come late or out of order, slow reads, failures, lost outcomes, crashes, replays.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::{
    event::{EventKind, MessageRef},
    platform::PlatformKind,
    sink::Stored,
};

const DESTINATIONS: [Destination; 2] = [Destination::Handler, Destination::Endpoint];

struct World {
    rng: SmallRng,
    now: Now,
    plan: Plan,
    /// The outbox: what is stored, and where it is still open with how many failures.
    outbox: BTreeMap<u64, (Event, i64, BTreeMap<Destination, u32>)>,
    buried: Vec<(Destination, u64)>,
    /// Opened again: these come whenever they are found.
    replayed: BTreeSet<(Destination, u64)>,
    seqs: HashMap<ChannelId, u64>,
    pushes: VecDeque<Stored>,
    attempts: Vec<Attempt>,
    writes: Vec<(Destination, u64, Write)>,
    /// A read as it was made, and which it is.
    read: Option<(Scope, u64, usize, Option<Vec<Stored>>)>,
    healthy: bool,
    delivered: u64,
    failed: u64,
}

fn channel(n: u128) -> ChannelId {
    ChannelId::from_uuid(uuid::Uuid::from_u128(n << 96 | n))
}

fn limits() -> Limits {
    Limits { in_flight: 6, of_site: 3, of_channel: 2, window: 24, lanes: 16, unwritten: 6 }
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            rng: SmallRng::seed_from_u64(seed),
            now: Now { mono: Duration::from_secs(1000), wall_ms: 1_700_000_000_000 },
            plan: Plan::new(limits(), Backoff::default()),
            outbox: BTreeMap::new(),
            buried: Vec::new(),
            replayed: BTreeSet::new(),
            seqs: HashMap::new(),
            pushes: VecDeque::new(),
            attempts: Vec::new(),
            writes: Vec::new(),
            read: None,
            healthy: false,
            delivered: 0,
            failed: 0,
        }
    }

    fn store(&mut self) {
        let to = channel(self.rng.random_range(1..=3));
        let conversation = match self.rng.random_range(0..12) {
            0 => None,
            n => Some(format!("chat-{n}")),
        };
        let position = self.next_position();
        let kind = EventKind::Revoked(MessageRef::default());
        let key = position.to_string();
        let mut event = Event::new(to, PlatformKind::Telegram, conversation, Timestamp::UNIX_EPOCH, &key, kind);
        let seq = self.seqs.entry(to).or_default();
        *seq += 1;
        event.seq = *seq;
        let open: BTreeMap<_, _> =
            DESTINATIONS.into_iter().filter(|_| self.rng.random_bool(0.7)).map(|d| (d, 0)).collect();
        self.outbox.insert(position, (event, self.now.wall_ms, open));
        self.pushes.extend(self.stored(position));
    }

    fn stored(&self, position: u64) -> Option<Stored> {
        let (event, stored_ms, open) = self.outbox.get(&position)?;
        let open = open.iter().map(|(destination, failures)| (*destination, *failures)).collect();
        Some(Stored { position, stored_ms: *stored_ms, event: event.clone(), open })
    }

    fn push(&mut self) {
        let late = self.pushes.len().min(3);
        if late > 0 {
            let n = if self.rng.random_bool(0.9) { 0 } else { self.rng.random_range(0..late) };
            let stored = self.pushes.remove(n).expect("there");
            if self.rng.random_bool(0.99) {
                self.plan.push(stored);
            }
        }
    }

    fn poll(&mut self) {
        let mut actions = Vec::new();
        // The endpoint and the first channel's agent are remote, the others share a host or are built in.
        let mut route = |(destination, of): GroupKey| match destination {
            Destination::Endpoint => Site::Remote(1),
            Destination::Handler if of == channel(1) => Site::Remote(2),
            Destination::Handler => Site::Local,
        };
        self.plan.poll(self.now, &mut route, &mut actions);
        for action in actions {
            match action {
                Action::Load { scope, after, limit } => {
                    assert!(self.read.is_none(), "two reads at a time");
                    let page = self.rng.random_bool(0.5).then(|| self.page(&scope, after, limit));
                    self.read = Some((scope, after, limit, page));
                }
                Action::Deliver(attempt) => self.begin(attempt),
            }
        }
        for destination in DESTINATIONS {
            let groups = || self.plan.groups.iter().filter(|(key, _)| key.0 == destination).map(|(_, group)| group);
            let events: usize = groups().map(|group| group.events).sum();
            let lanes: usize = groups().map(|group| group.lanes.len()).sum();
            let held = self.plan.held.get(&destination).copied().unwrap_or_default();
            assert_eq!((held.events, held.lanes), (events, lanes));
            // Each of three channels has its least share, and a lane is read 8 at a time.
            assert!(events <= limits().window + 3 * (LEAST_EVENTS + 8), "{events} events are held");
            assert!(lanes <= limits().lanes + 3 * LEAST_LANES + 4, "{lanes} lanes are remembered");
        }
    }

    fn begin(&mut self, attempt: Attempt) {
        let Attempt { lane, position, event } = &attempt;
        let (destination, _) = lane.group;
        assert!(self.attempts.iter().all(|other| other.lane != *lane), "two in flight in one lane");
        assert_eq!(event.conversation.as_deref(), lane.conversation.as_deref());
        let open = |position: u64| {
            self.outbox[&position].2.contains_key(&destination)
                && !self.writes.iter().any(|(to, at, write)| {
                    (*to, *at) == (destination, position) && !matches!(write, Write::Failed { .. })
                })
        };
        assert!(open(*position), "{position} is delivered again though its outcome is known");
        let before = self.outbox.range(..*position).filter(|(_, (other, _, _))| {
            other.channel_id == event.channel_id && other.conversation == event.conversation
        });
        for (earlier, _) in before {
            let skipped = open(*earlier) && !self.replayed.contains(&(destination, *earlier));
            assert!(!skipped, "{position} overtakes {earlier}");
        }
        let of_site = |site: Destination| self.attempts.iter().filter(|a| a.lane.group.0 == site).count();
        assert!(destination != Destination::Endpoint || of_site(destination) < limits().of_site, "too many at a site");
        self.attempts.push(attempt);
        assert!(self.attempts.len() <= limits().in_flight);
    }

    fn page(&self, scope: &Scope, after: u64, limit: usize) -> Vec<Stored> {
        let later = self.outbox.range(after + 1..).filter_map(|(position, _)| self.stored(*position));
        later.filter(|stored| scope.includes(stored)).take(limit).collect()
    }

    fn end_attempt(&mut self) {
        if self.attempts.is_empty() {
            return;
        }
        let n = self.rng.random_range(0..self.attempts.len());
        let Attempt { lane, position, .. } = self.attempts.swap_remove(n);
        let outcome = match self.rng.random_range(0..10) {
            _ if self.healthy => Outcome::Done,
            0..=4 => Outcome::Done,
            5 => Outcome::Unknown,
            6 => Outcome::Refused { error: "410".into() },
            7 => Outcome::Failed { error: "shape".into(), retry_after: None, malformed: true },
            8 => Outcome::Failed { error: "503".into(), retry_after: Some(Duration::from_secs(7)), malformed: false },
            _ => Outcome::Failed { error: "500".into(), retry_after: None, malformed: false },
        };
        let roll = self.rng.random();
        let settled = self.plan.finish(&lane, outcome, self.now, roll);
        self.writes.extend(settled.write.map(|write| (lane.group.0, position, write)));
    }

    fn end_read(&mut self, fails: bool) {
        match self.read.take() {
            Some(_) if fails => self.plan.load_failed(self.now),
            Some((scope, after, limit, page)) => {
                let page = page.unwrap_or_else(|| self.page(&scope, after, limit));
                self.plan.loaded(page);
            }
            None => {}
        }
    }

    fn end_write(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        let n = self.rng.random_range(0..self.writes.len());
        let (destination, position, write) = self.writes.swap_remove(n);
        let open = &mut self.outbox.get_mut(&position).expect("stored").2;
        match write {
            Write::Failed { .. } => {
                if let Some(failures) = open.get_mut(&destination) {
                    *failures += 1;
                }
                self.failed += 1;
                return;
            }
            Write::Delivered => self.delivered += 1,
            Write::Buried { .. } => self.buried.push((destination, position)),
        }
        open.remove(&destination);
        self.replayed.remove(&(destination, position));
        self.plan.written(destination, position);
    }

    fn crash(&mut self) {
        self.plan = Plan::new(limits(), Backoff::default());
        self.attempts.clear();
        self.writes.clear();
        self.pushes.clear();
        self.read = None;
    }

    fn replay(&mut self) {
        if let Some((destination, position)) = self.buried.pop() {
            let event = self.outbox[&position].0.clone();
            let position = self.next_position();
            self.outbox.insert(position, (event, self.now.wall_ms, BTreeMap::from([(destination, 0)])));
            self.replayed.insert((destination, position));
            self.plan.rescan();
        }
    }

    fn next_position(&mut self) -> u64 {
        self.outbox.last_key_value().map_or(0, |(last, _)| *last) + self.rng.random_range(1..3)
    }

    fn pass(&mut self, time: Duration) {
        self.now.mono += time;
        self.now.wall_ms += time.as_millis() as i64;
    }

    fn step(&mut self) {
        match self.rng.random_range(0..1000) {
            0..180 => self.store(),
            180..380 => self.push(),
            380..600 => self.end_attempt(),
            600..780 => self.end_read(false),
            780..800 => self.end_read(true),
            800..950 => self.end_write(),
            950..985 => {
                let time = Duration::from_millis(self.rng.random_range(1..20_000));
                self.pass(time);
            }
            985..988 => self.pass(Duration::from_secs(25 * 3600)),
            988..992 => self.replay(),
            992..995 => self.plan.handler_changed(channel(1), self.now),
            995..998 => self.crash(),
            _ => self.plan.rescan(),
        }
        self.poll();
    }

    /// Everything works from here on: nothing may stay behind.
    fn settle(&mut self) {
        self.healthy = true;
        let mut looked = false;
        for _ in 0..100_000 {
            self.push();
            self.end_attempt();
            self.end_read(false);
            self.end_write();
            self.poll();
            let idle =
                self.pushes.is_empty() && self.attempts.is_empty() && self.writes.is_empty() && self.read.is_none();
            if idle {
                let Some(due) = self.plan.next_due() else {
                    if looked {
                        break;
                    }
                    looked = true;
                    self.plan.rescan();
                    self.poll();
                    continue;
                };
                self.pass(due.saturating_sub(self.now.mono));
                self.poll();
            }
        }
        let open: Vec<_> = self.outbox.iter().filter(|(_, (_, _, open))| !open.is_empty()).map(|(at, _)| at).collect();
        assert!(open.is_empty(), "still open: {open:?}");
        let lanes: usize = self.plan.groups.values().map(|group| group.lanes.len()).sum();
        assert_eq!(lanes, 0, "lanes are remembered for nothing");
        assert!(self.plan.timers.is_empty() && self.plan.in_flight == 0 && self.plan.unwritten.is_empty());
        assert_eq!(self.plan.groups.values().map(|group| group.events + group.in_flight).sum::<usize>(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Contract: E1. In order for each conversation and destination, never two at a time, each delivered or buried in the
    /// end, whatever crashes in between.
    #[test]
    fn every_event_is_delivered_in_order_or_buried(seed in any::<u64>(), steps in 0usize..1500) {
        let mut world = World::new(seed);
        world.poll();
        for _ in 0..steps {
            world.step();
        }
        world.settle();
        let stored: usize = world.outbox.len();
        prop_assert!(stored < 100 || world.delivered > 0);
    }
}
