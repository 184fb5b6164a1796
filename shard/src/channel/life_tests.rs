//! The life cycle: each report as a story, and random sequences against the invariants.

use proptest::prelude::*;

use super::*;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn replaced() -> Closed {
    Closed::Replaced { reason: "conflict".into() }
}

fn transient(after: Option<u64>) -> Closed {
    Closed::Transient { reason: "network".into(), after: after.map(secs) }
}

fn started() -> Life {
    let mut life = Life::new(Policy::default());
    assert_eq!(life.on(Event::Start { delay: Duration::ZERO }, secs(0), 0.5), [Action::Connect, Action::Tell]);
    life
}

fn armed(actions: &[Action]) -> Option<Duration> {
    actions.iter().find_map(|action| match action {
        Action::Arm(delay) => Some(*delay),
        _ => None,
    })
}

/// Plays a peer that lets each connection live for `lasting` (`None`: refuses it) and ends it as told, until `until`.
/// Returns when each connection began and each told state.
fn play(life: &mut Life, lasting: Option<Duration>, until: Duration, end: Closed) -> (Vec<Duration>, Vec<State>) {
    let (mut now, mut logins, mut told) = (Duration::ZERO, vec![Duration::ZERO], Vec::new());
    loop {
        let mut actions = Vec::new();
        if let Some(lasting) = lasting {
            actions.extend(life.on(Event::Up, now, 0.5));
            if actions.contains(&Action::Tell) {
                told.push(life.state());
            }
            now += lasting;
        }
        let ended = life.on(Event::Ended(end.clone()), now, 0.5);
        if ended.contains(&Action::Tell) {
            told.push(life.state());
        }
        let Some(delay) = armed(&ended) else { return (logins, told) };
        now += delay;
        if now > until {
            return (logins, told);
        }
        assert_eq!(life.on(Event::Due, now, 0.5), [Action::Connect]);
        logins.push(now);
    }
}

/// Field report R01.
#[test]
fn an_identity_that_two_owners_fight_over_is_tried_rarely_and_told_once() {
    let mut life = started();
    let (logins, told) = play(&mut life, Some(Duration::from_millis(300)), secs(3600), replaced());
    assert!(logins.iter().filter(|at| **at <= secs(30)).count() <= 5, "{logins:?}");
    assert_eq!(life.state(), State::Replaced);
    assert_eq!(told.iter().filter(|state| **state == State::Replaced).count(), 1, "{told:?}");
    assert_eq!(told.len(), 4, "connected, reconnecting, connected, replaced: {told:?}");
}

/// Field report R19.
#[test]
fn a_conflict_that_lasts_as_long_as_an_old_poll_heals_by_itself() {
    let mut life = started();
    let (logins, _) = play(&mut life, None, secs(55), replaced());
    assert!(logins.len() <= 4, "no storm: {logins:?}");
    life.on(Event::Due, secs(95), 0.5);
    life.on(Event::Up, secs(95), 0.5);
    assert_eq!(life.state(), State::Replaced, "a brief success proves nothing");
    assert_eq!(life.on(Event::Due, secs(125), 0.5), [Action::Tell]);
    assert_eq!(life.state(), State::Connected);
}

/// Field report R20.
#[test]
fn a_conflict_of_a_day_is_never_given_up() {
    let mut life = started();
    let (logins, told) = play(&mut life, None, secs(86_400), replaced());
    assert!(secs(86_400) - *logins.last().unwrap() <= secs(300));
    assert!(logins.windows(2).all(|pair| pair[1] - pair[0] <= secs(300)));
    assert_eq!(told, [State::Reconnecting, State::Replaced], "one event for each change, none for a repeat");
}

/// Field report R21.
#[test]
fn a_dead_token_stops_and_waits_for_somebody() {
    let mut life = started();
    let dead = Closed::LoggedOut { reason: "Unauthorized".into() };
    assert_eq!(life.on(Event::Ended(dead.clone()), secs(1), 0.5), [Action::Tell]);
    assert_eq!((life.state(), life.is_armed()), (State::LoggedOut, false));
    assert_eq!(life.on(Event::Due, secs(9_999), 0.5), []);
    assert_eq!(life.on(Event::Kick, secs(10_000), 0.5), [Action::Connect, Action::Tell]);
    life.on(Event::Ended(dead), secs(10_001), 0.5);
    assert_eq!(life.on(Event::Restart { changed: true }, secs(10_002), 0.5), [Action::Connect, Action::Tell]);
}

/// Field report R06.
#[test]
fn a_login_that_is_always_refused_is_parked_and_probed_slowly() {
    let mut life = started();
    let refused = Closed::Rejected { reason: "500".into() };
    let (logins, told) = play(&mut life, None, secs(86_400), refused);
    assert_eq!(life.state(), State::Parked);
    assert_eq!(told, [State::Reconnecting, State::Parked]);
    let probes = &logins[20..];
    assert!(!probes.is_empty() && probes.windows(2).all(|pair| pair[1] - pair[0] >= secs(1800)), "{probes:?}");
}

/// Contract: C3.
#[test]
fn an_outage_of_a_day_parks_nothing_and_heals_within_five_minutes() {
    let mut life = started();
    let (logins, told) = play(&mut life, None, secs(86_400), transient(None));
    assert_eq!(told, [State::Reconnecting]);
    assert!(logins.windows(2).all(|pair| pair[1] - pair[0] <= secs(300)));
    life.on(Event::Due, secs(86_500), 0.5);
    assert_eq!(life.on(Event::Up, secs(86_500), 0.5), [Action::Tell]);
    assert_eq!(life.state(), State::Connected);
}

/// Field report R22.
#[test]
fn the_platforms_own_word_on_when_is_honoured() {
    let mut life = started();
    let actions = life.on(Event::Ended(transient(Some(10_072))), secs(0), 0.0);
    assert_eq!(armed(&actions), Some(secs(10_072)));
}

#[test]
fn backoff_grows_over_brief_connections_and_starts_again_after_a_good_one() {
    let mut life = started();
    let delay = |life: &mut Life, lasted: u64| {
        life.on(Event::Up, secs(1000), 1.0);
        let delay = armed(&life.on(Event::Ended(transient(None)), secs(1000 + lasted), 1.0)).unwrap();
        life.on(Event::Due, secs(2000), 1.0);
        delay
    };
    let delays: Vec<_> = [1, 29, 1, 30, 1].map(|lasted| delay(&mut life, lasted).as_secs()).into();
    assert_eq!(delays, [1, 2, 4, 1, 2]);
}

/// Field report R02.
#[test]
fn a_second_wish_to_connect_joins_the_first() {
    let mut life = started();
    assert_eq!(life.on(Event::Kick, secs(0), 0.5), []);
    assert_eq!(life.on(Event::Start { delay: Duration::ZERO }, secs(0), 0.5), []);
    assert_eq!(life.on(Event::Restart { changed: false }, secs(0), 0.5), []);
}

#[test]
fn a_new_token_ends_the_old_connection_before_the_next_begins() {
    let mut life = started();
    assert_eq!(life.on(Event::Restart { changed: true }, secs(0), 0.5), [Action::HangUp]);
    assert_eq!(life.on(Event::Kick, secs(0), 0.5), []);
    let dead = Closed::LoggedOut { reason: "the old token".into() };
    assert_eq!(life.on(Event::Ended(dead), secs(0), 0.5), [Action::Connect]);
    assert_eq!(life.state(), State::Connecting);
}

#[test]
fn a_webhook_is_probed_slowly_and_heals_by_itself() {
    let mut life = started();
    let webhook = Closed::Misconfigured { reason: "a webhook is set".into() };
    let delay = armed(&life.on(Event::Ended(webhook), secs(0), 0.5)).unwrap();
    assert!((secs(300)..=secs(600)).contains(&delay));
    life.on(Event::Due, delay, 0.5);
    assert_eq!(life.state(), State::Parked, "a probe is no change");
    life.on(Event::Ended(transient(None)), delay, 0.5);
    assert_eq!((life.state(), life.reason()), (State::Parked, Some("a webhook is set")));
    life.on(Event::Due, delay * 2, 0.5);
    assert_eq!(life.on(Event::Up, delay * 2, 0.5), [Action::Tell]);
    assert_eq!(life.state(), State::Connected);
}

#[test]
fn a_lost_lease_ends_everything_without_a_word() {
    let mut life = started();
    life.on(Event::Up, secs(1), 0.5);
    assert_eq!(life.on(Event::Lost, secs(2), 0.5), [Action::HangUp]);
    assert_eq!(life.on(Event::Ended(Closed::Asked), secs(2), 0.5), [Action::Gone]);
    let mut life = started();
    assert_eq!(life.on(Event::Ended(Closed::Fenced), secs(2), 0.5), [Action::Gone]);
}

/// Field report R04.
#[test]
fn a_code_that_is_shown_is_told_and_a_drop_meanwhile_backs_off() {
    let mut life = started();
    assert_eq!(life.on(Event::Waits, secs(1), 0.5), [Action::Tell]);
    assert_eq!(life.state(), State::NeedsPairing);
    let dropped = life.on(Event::Ended(transient(None)), secs(2), 0.5);
    assert!(armed(&dropped).is_some() && life.state() == State::Reconnecting, "{dropped:?}");
    life.on(Event::Due, secs(4), 0.5);
    life.on(Event::Waits, secs(5), 0.5);
    life.on(Event::Up, secs(6), 0.5);
    assert_eq!(life.state(), State::Connected, "it was linked");
}

fn any_closed() -> impl Strategy<Value = Closed> {
    let reason = || "x".to_owned();
    prop_oneof![
        Just(Closed::Asked),
        proptest::option::of(0u64..20_000)
            .prop_map(move |after| Closed::Transient { reason: reason(), after: after.map(secs) }),
        Just(Closed::Rejected { reason: reason() }),
        Just(replaced()),
        Just(Closed::LoggedOut { reason: reason() }),
        proptest::option::of(0u64..20_000)
            .prop_map(move |until| Closed::Banned { reason: reason(), until: until.map(secs) }),
        Just(Closed::NeedsPairing { reason: reason() }),
        Just(Closed::Misconfigured { reason: reason() }),
        Just(Closed::Fenced),
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0u64..6).prop_map(|delay| Event::Start { delay: secs(delay) }),
        1 => Just(Event::Stop),
        2 => Just(Event::Kick),
        2 => any::<bool>().prop_map(|changed| Event::Restart { changed }),
        6 => Just(Event::Up),
        2 => Just(Event::Waits),
        6 => Just(Event::Due),
        12 => any_closed().prop_map(Event::Ended),
        1 => Just(Event::Lost),
    ]
}

proptest! {
    /// Contract: C1, C3. Whatever happens: at most one connection, one timer, no timer where nothing may run, bounded
    /// delays, and an end that is an end.
    #[test]
    fn any_sequence_of_events_keeps_the_invariants(
        steps in proptest::collection::vec((any_event(), 0u64..400, 0.0f64..1.0), 1..120),
    ) {
        let mut life = Life::new(Policy::default());
        let (mut now, mut linked, mut timer, mut gone) = (Duration::ZERO, false, false, false);
        for (event, passed, chance) in steps {
            now += secs(passed);
            // What the actor would never do: fire a timer that isn't set, end or raise a connection that isn't there.
            match event {
                Event::Due if !timer => continue,
                Event::Up | Event::Waits | Event::Ended(_) if !linked => continue,
                _ => {}
            }
            match &event {
                Event::Due => timer = false,
                Event::Ended(_) => linked = false,
                _ => {}
            }
            let said_when = match &event {
                Event::Ended(Closed::Transient { after, .. }) => after.unwrap_or_default(),
                Event::Ended(Closed::Banned { until, .. }) => until.unwrap_or_default() + secs(30),
                _ => Duration::ZERO,
            };
            let before = life.state();
            let stopping = matches!(event, Event::Stop | Event::Lost);
            for action in life.on(event, now, chance) {
                prop_assert!(!gone || stopping, "{action:?} after the end");
                match action {
                    Action::Connect => {
                        prop_assert!(!linked, "two connections");
                        prop_assert!(!timer, "a timer beside a try");
                        linked = true;
                    }
                    Action::HangUp => prop_assert!(linked),
                    Action::Arm(delay) => {
                        timer = true;
                        prop_assert!(delay <= secs(1980).max(said_when), "{delay:?}");
                        if life.state() == State::Replaced && !linked {
                            prop_assert!(delay >= secs(30) && delay <= secs(300).max(said_when), "{delay:?}");
                        }
                        if life.state() == State::Reconnecting {
                            prop_assert!(delay <= secs(300).max(said_when), "{delay:?}");
                        }
                    }
                    Action::Disarm => timer = false,
                    Action::Tell => prop_assert_ne!(before, life.state()),
                    Action::Gone => {
                        prop_assert!(!linked && !timer);
                        gone = true;
                    }
                }
            }
            prop_assert_eq!(life.is_armed(), timer);
            prop_assert_eq!(life.is_linked(), linked);
            if matches!(life.state(), State::Stopped | State::LoggedOut | State::NeedsPairing) && !linked {
                prop_assert!(!timer, "{:?} holds a timer", life.state());
            }
            if matches!(life.state(), State::Connecting | State::Reconnecting | State::Replaced | State::Parked) {
                prop_assert!(linked || timer, "{:?} would never be tried again", life.state());
            }
            if gone {
                break;
            }
        }
    }
}
