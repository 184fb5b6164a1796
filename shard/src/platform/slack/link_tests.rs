//! The sockets' life cycle: its table by examples, and what always holds by properties.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A link with one live socket, number 0, at time zero.
fn live() -> Link {
    let mut link = Link::new(SlackTimes::default());
    assert_eq!(link.on(Event::Begin, s(0), 0.5), [Action::Dial(0)]);
    assert_eq!(link.on(Event::Opened(0), s(0), 0.5), []);
    assert_eq!(link.on(Event::Hello(0), s(0), 0.5), [Action::Connected]);
    link
}

fn transient(reason: &str) -> Closed {
    Closed::Transient { reason: reason.into(), after: None }
}

#[test]
fn a_refreshed_socket_is_heard_until_its_successor_is_greeted_and_a_while_longer() {
    let mut link = live();
    assert_eq!(link.on(Event::Disconnect(0, Reason::Refresh), s(10), 0.5), [Action::Dial(1)]);
    assert_eq!(link.on(Event::Disconnect(0, Reason::Refresh), s(11), 0.5), [], "told twice");
    assert_eq!(link.on(Event::Opened(1), s(12), 0.5), []);
    assert_eq!(link.on(Event::Hello(1), s(13), 0.5), []);
    assert_eq!(link.deadline(), Some(s(23)));
    assert_eq!(link.on(Event::Due, s(23), 0.5), [Action::Close(0)]);
    assert_eq!(link.deadline(), Some(s(24)), "Slack leaves the connection open after the handshake");
    assert_eq!(link.on(Event::Due, s(24), 0.5), [Action::Drop(0)]);
    assert_eq!(link.on(Event::Ended(0), s(24), 0.5), [], "it is no more");
}

#[test]
fn a_refreshed_socket_that_slack_closes_at_once_is_replaced_without_an_end() {
    let mut link = live();
    link.on(Event::Disconnect(0, Reason::Refresh), s(10), 0.5);
    assert_eq!(link.on(Event::Ended(0), s(10), 0.5), [], "its successor is on its way");
    link.on(Event::Opened(1), s(11), 0.5);
    assert_eq!(link.on(Event::Hello(1), s(11), 0.5), []);
    assert_eq!(link.on(Event::Ended(1), s(50), 0.5), [Action::End(transient("the platform closed the socket"))]);
}

#[test]
fn a_successor_that_fails_is_tried_again_with_a_backoff_as_long_as_the_old_one_works() {
    let mut link = live();
    let mut now = s(100);
    let mut dialed = match &link.on(Event::Disconnect(0, Reason::Refresh), now, 0.0)[..] {
        [Action::Dial(id)] => *id,
        other => panic!("{other:?}"),
    };
    for wait in [1, 2, 4, 8, 16, 30, 30] {
        link.on(Event::Heard(0), now, 0.0);
        assert_eq!(link.on(Event::Failed(dialed, transient("x")), now, 0.0), []);
        let until = now + s(wait);
        while link.deadline().is_some_and(|due| due < until) {
            now = link.deadline().unwrap();
            link.on(Event::Heard(0), now, 0.0);
        }
        now = until;
        let mut actions = link.on(Event::Heard(0), now, 0.0);
        actions.extend(link.on(Event::Due, now, 0.0));
        dialed = match &actions[..] {
            [Action::Dial(id)] => *id,
            other => panic!("{other:?} after {wait}"),
        };
    }
    let after = Closed::Transient { reason: "ratelimited".into(), after: Some(s(42)) };
    link.on(Event::Failed(dialed, after.clone()), now, 0.0);
    assert_eq!(link.redial, Some(now + s(42)), "the platform's word counts");
    assert_eq!(link.on(Event::Ended(0), now, 0.0), [Action::End(transient("the platform closed the socket"))]);
}

/// Field report R13.
#[test]
fn a_successor_that_ends_right_after_its_greeting_is_tried_again_with_a_backoff() {
    let mut link = live();
    let mut now = s(100);
    link.on(Event::Disconnect(0, Reason::Refresh), now, 0.0);
    for (id, wait) in [(1, 1), (2, 2), (3, 4)] {
        link.on(Event::Heard(0), now, 0.0);
        link.on(Event::Opened(id), now, 0.0);
        link.on(Event::Hello(id), now, 0.0);
        assert_eq!(link.on(Event::Ended(id), now, 0.0), [], "the old one is needed again, and heard");
        now += s(wait);
        assert_eq!(link.redial, Some(now));
        assert_eq!(link.on(Event::Due, now, 0.0).last(), Some(&Action::Dial(id + 1)));
    }
}

#[test]
fn a_dead_token_and_a_switched_off_socket_mode_end_it_whatever_else_is_open() {
    let mut link = live();
    link.on(Event::Disconnect(0, Reason::Refresh), s(1), 0.5);
    let dead = Closed::LoggedOut { reason: "invalid_auth".into() };
    assert_eq!(link.on(Event::Failed(1, dead.clone()), s(2), 0.5), [Action::End(dead)]);
    let mut link = live();
    let ended = link.on(Event::Disconnect(0, Reason::LinkDisabled), s(1), 0.5);
    assert!(matches!(&ended[..], [Action::End(Closed::Misconfigured { .. })]), "{ended:?}");
    assert_eq!(link.on(Event::Due, s(2), 0.5), [], "nothing follows");
}

/// Field report R13.
#[test]
fn too_many_sockets_end_it_as_replaced_and_a_greeting_before_that_changes_nothing() {
    let mut link = live();
    let ended = link.on(Event::Disconnect(0, Reason::TooMany), s(0), 0.5);
    assert!(matches!(&ended[..], [Action::Close(0), Action::End(Closed::Replaced { .. })]), "{ended:?}");

    let mut link = live();
    link.on(Event::Disconnect(0, Reason::Refresh), s(100), 0.0);
    let mut waits = Vec::new();
    let mut now = s(100);
    for id in 1..5 {
        link.on(Event::Opened(id), now, 0.0);
        link.on(Event::Hello(id), now, 0.0);
        let actions = link.on(Event::Disconnect(id, Reason::TooMany), now, 0.0);
        assert_eq!(actions, [Action::Close(id)], "the old one is still heard");
        let due = link.redial.expect("another try");
        waits.push((due - now).as_secs());
        link.on(Event::Heard(0), due, 0.0);
        // The old one has a successor no longer, and must not be closed for having had one.
        link.on(Event::Disconnect(0, Reason::Refresh), due, 0.0);
        now = due;
        let dialed = link.sockets.iter().any(|socket| socket.id == id + 1 && socket.phase == Phase::Dialing);
        assert!(dialed, "{:?}", link.sockets);
    }
    assert_eq!(waits, [1, 2, 4, 8]);
}

/// Field report R17.
#[test]
fn a_socket_that_says_nothing_is_asked_and_then_given_up() {
    let mut link = live();
    link.on(Event::Heard(0), s(5), 0.5);
    assert_eq!(link.deadline(), Some(s(30)));
    assert_eq!(link.on(Event::Due, s(30), 0.5), [Action::Ping(0)]);
    assert_eq!(link.deadline(), Some(s(80)), "once");
    let ended = link.on(Event::Due, s(80), 0.5);
    assert_eq!(ended, [Action::Drop(0), Action::End(transient("nothing was heard for too long"))]);
    let mut link = live();
    link.on(Event::Due, s(25), 0.5);
    link.on(Event::Heard(0), s(26), 0.5);
    assert_eq!(link.deadline(), Some(s(51)), "a pong is an answer");
}

#[test]
fn a_stop_closes_what_is_open_and_ends_within_a_second() {
    let mut link = live();
    link.on(Event::Disconnect(0, Reason::Refresh), s(1), 0.5);
    assert_eq!(link.on(Event::Stop, s(2), 0.5), [Action::Close(0), Action::Drop(1)]);
    assert_eq!(link.deadline(), Some(s(3)));
    assert_eq!(link.on(Event::Due, s(3), 0.5), [Action::Drop(0), Action::End(Closed::Asked)]);
    let mut link = live();
    link.on(Event::Stop, s(2), 0.5);
    assert_eq!(link.on(Event::Ended(0), s(2), 0.5), [Action::End(Closed::Asked)]);
}

#[test]
fn what_does_not_connect_or_greet_in_time_is_given_up() {
    let mut link = Link::new(SlackTimes::default());
    link.on(Event::Begin, s(0), 0.5);
    assert_eq!(link.on(Event::Due, s(20), 0.5), [Action::Drop(0), Action::End(transient("no connection in time"))]);
    let mut link = Link::new(SlackTimes::default());
    link.on(Event::Begin, s(0), 0.5);
    link.on(Event::Opened(0), s(1), 0.5);
    assert_eq!(link.on(Event::Due, s(11), 0.5), [Action::Drop(0), Action::End(transient("no greeting in time"))]);
}

/// The platform and the network, as a link meets them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Dialing,
    Greeting,
    Up,
    Closing,
}

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Move { which: usize, how: u8 },
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1u64..30_000).prop_map(Step::Pass),
        12 => (any::<usize>(), any::<u8>()).prop_map(|(which, how)| Step::Move { which, how }),
        1 => Just(Step::Stop),
    ]
}

fn happens(id: SocketId, at: At, how: u8) -> Option<Event> {
    Some(match (at, how % 16) {
        (At::Dialing, 0..=10) => Event::Opened(id),
        (At::Dialing, 11) => Event::Failed(id, Closed::LoggedOut { reason: "x".into() }),
        (At::Dialing, _) => Event::Failed(id, transient("x")),
        (At::Greeting, 0..=12) => Event::Hello(id),
        (At::Greeting, _) => Event::Ended(id),
        (At::Up, 0..=5) => Event::Heard(id),
        (At::Up, 6..=10) => Event::Disconnect(id, Reason::Refresh),
        (At::Up, 11) => Event::Disconnect(id, Reason::TooMany),
        (At::Up, 12) => Event::Disconnect(id, Reason::Unknown),
        (At::Up, 13) => Event::Disconnect(id, Reason::LinkDisabled),
        (At::Up, _) => Event::Ended(id),
        (At::Closing, 0..=3) => Event::Ended(id),
        (At::Closing, _) => return None,
    })
}

/// The world beside a link, with what always holds asserted at each step.
struct World {
    link: Link,
    now: Duration,
    sockets: BTreeMap<SocketId, At>,
    heard: BTreeMap<SocketId, Duration>,
    dials: Vec<Duration>,
    told: std::collections::BTreeSet<SocketId>,
    connected: u32,
    ended: bool,
    stopping: bool,
}

impl World {
    fn tell(&mut self, event: Event) {
        match &event {
            Event::Opened(id) => {
                self.sockets.insert(*id, At::Greeting);
            }
            Event::Hello(id) => {
                self.sockets.insert(*id, At::Up);
                self.heard.insert(*id, self.now);
            }
            Event::Heard(id) => {
                self.heard.insert(*id, self.now);
            }
            Event::Disconnect(id, _) => {
                self.told.insert(*id);
            }
            Event::Failed(id, _) | Event::Ended(id) => {
                self.sockets.remove(id);
            }
            Event::Stop => self.stopping = true,
            Event::Begin | Event::Due => {}
        }
        let actions = self.link.on(event.clone(), self.now, 0.5);
        assert!(!self.ended || actions.is_empty(), "after the end: {actions:?}");
        for action in actions {
            self.obey(action, &event);
        }
        let rising = self.sockets.values().filter(|at| matches!(at, At::Dialing | At::Greeting)).count();
        assert!(rising <= 1, "{:?}", self.sockets);
        let up = self.sockets.values().any(|at| *at == At::Up);
        assert!(self.ended || self.stopping || rising == 1 || up, "nothing is up or on its way, and nobody was told");
        assert!(self.ended || self.link.deadline().is_some(), "nothing is waited for");
        assert!(self.ended || self.link.deadline() > Some(self.now) || event != Event::Due, "it would spin");
    }

    fn obey(&mut self, action: Action, cause: &Event) {
        match action {
            Action::Dial(id) => {
                assert!(!self.stopping);
                assert_eq!(self.sockets.insert(id, At::Dialing), None);
                self.dials.push(self.now);
            }
            Action::Ping(id) => assert_eq!(self.sockets.get(&id), Some(&At::Up)),
            Action::Close(id) => {
                // Never the last one that works, unless the platform has just refused it.
                let others = self.sockets.iter().any(|(other, at)| *other != id && *at == At::Up);
                let refused = matches!(cause, Event::Disconnect(of, _) if *of == id);
                assert!(others || refused || self.stopping, "the last one is closed by {cause:?}");
                assert_eq!(self.sockets.insert(id, At::Closing), Some(At::Up));
            }
            Action::Drop(id) => {
                let at = self.sockets.remove(&id).expect("it is there");
                let silent = self.heard.get(&id).is_some_and(|heard| self.now >= *heard + self.link.times.silence);
                assert!(at != At::Up || silent, "one that works is dropped");
            }
            Action::Connected => self.connected += 1,
            Action::End(_) => {
                self.ended = true;
                self.sockets.clear();
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while let Some(due) = self.link.deadline().filter(|due| *due <= until) {
            self.now = due.max(self.now);
            self.tell(Event::Due);
            if self.ended {
                break;
            }
        }
        self.now = until;
        for (id, heard) in &self.heard {
            let up = self.sockets.get(id) == Some(&At::Up);
            assert!(!up || self.ended || self.now < *heard + self.link.times.silence, "a silent one is kept");
        }
    }
}

proptest! {
    /// Field reports R13, R17.
    #[test]
    fn there_is_always_a_socket_or_one_on_its_way_and_never_a_stampede(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World {
            link: Link::new(SlackTimes::default()), now: s(1), sockets: BTreeMap::new(), heard: BTreeMap::new(),
            dials: Vec::new(), told: Default::default(), connected: 0, ended: false, stopping: false,
        };
        world.tell(Event::Begin);
        for step in steps {
            match step {
                Step::Pass(ms) => world.pass(ms),
                Step::Stop => world.tell(Event::Stop),
                Step::Move { which, how } => {
                    let known: Vec<_> = world.sockets.iter().map(|(id, at)| (*id, *at)).collect();
                    if let Some((id, at)) = known.get(which % known.len().max(1))
                        && let Some(event) = happens(*id, *at, how)
                    {
                        world.tell(event);
                    }
                }
            }
            if world.ended {
                break;
            }
        }
        prop_assert!(world.connected <= 1);
        // A try that failed is followed by the next after a second at the soonest; each other was asked for by the platform.
        let told = world.told.len();
        let quick = world.dials.windows(2).filter(|pair| pair[1] < pair[0] + s(1)).count();
        prop_assert!(quick <= told, "{quick} tries in a row, {told} asked for");
        // Whatever happened, a stop comes to its end.
        world.tell(Event::Stop);
        world.pass(2_000);
        prop_assert!(world.ended);
    }
}
