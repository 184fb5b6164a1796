//! How sockets come, are replaced, and end.

use super::*;

/// Contract: C3. Never zero sockets, nothing twice, nothing lost.
#[tokio::test]
async fn a_refresh_leaves_no_moment_without_a_socket() {
    let times = SlackTimes { leave: Duration::from_millis(300), ..SlackTimes::default() };
    let world = World::with(times).await;
    let (receiving, _stop) = world.connected().await;
    let person = world.app.dm("U7");
    for (round, reason) in ["refresh_requested", "warning"].into_iter().enumerate() {
        let hellos = world.app.stats().hellos;
        person.say(&format!("before {round}"));
        world.app.disconnect(reason);
        person.say(&format!("while {round}"));
        world.wait_for("another socket", || (world.app.stats().hellos > hellos).then_some(())).await;
        person.say(&format!("after {round}"));
        world.app.wait_for_sockets(1, SOON).await.unwrap();
    }
    world.app.wait_for_acks(SOON).await.unwrap();
    let stats = world.app.stats();
    assert_eq!((stats.gaps, stats.most_live, stats.retried), (0, 2, 0), "{stats:?}");
    let expected: Vec<_> =
        (0..2).flat_map(|n| ["before", "while", "after"].map(|when| format!("{when} {n}"))).collect();
    assert_eq!(world.inbox.texts(), expected);
    assert_eq!(world.inbox.connected.load(Ordering::SeqCst), 1);
    assert!(!receiving.is_finished());
}

/// A second apart at least, whatever the platform asks for.
#[tokio::test]
async fn tickets_are_asked_for_once_a_second_at_most() {
    let world = World::new().await;
    let (_receiving, _stop) = world.connected().await;
    for opened in 2..4 {
        world.app.disconnect("refresh_requested");
        world.wait_for("another ticket", || (world.app.stats().opens.len() >= opened).then_some(())).await;
        world.wait_for("its socket", || (world.app.stats().hellos as usize >= opened).then_some(())).await;
    }
    let opens = world.app.stats().opens;
    assert!(opens.windows(2).all(|pair| pair[1] - pair[0] > Duration::from_millis(950)), "{opens:?}");
}

/// Field report R13, and the platform's own list of words that end it.
#[tokio::test]
async fn each_end_is_told_apart() {
    let world = World::new().await;
    let told = async |reason: &str| {
        let (receiving, _stop) = world.connected().await;
        world.app.disconnect(reason);
        let closed = tokio::time::timeout(SOON, receiving).await.expect("it ends").unwrap();
        world.app.wait_for_sockets(0, SOON).await.unwrap();
        closed
    };
    assert!(matches!(told("link_disabled").await, Closed::Misconfigured { .. }));
    assert!(matches!(told("too_many_websockets").await, Closed::Replaced { .. }));
    assert!(matches!(told("cosmic_rays").await, Closed::Transient { .. }));
    world.app.greet(Greeting::HelloAndGone("too_many_websockets".into()));
    assert!(matches!(world.closed().await, Closed::Replaced { .. }));
    world.app.greet(Greeting::Slam);
    assert!(matches!(world.closed().await, Closed::Transient { .. }));
    world.app.greet(Greeting::Hello);
    for end in [AppHandle::close_sockets, AppHandle::reset_sockets] {
        let (receiving, _stop) = world.connected().await;
        end(&world.app);
        assert!(matches!(receiving.await.unwrap(), Closed::Transient { .. }));
        world.app.wait_for_sockets(0, SOON).await.unwrap();
    }
    for word in ["not_authed", "invalid_auth", "account_inactive", "user_removed_from_team", "team_disabled"] {
        world.app.refuse(Some(word));
        assert!(matches!(world.closed().await, Closed::LoggedOut { .. }), "{word}");
    }
    world.app.refuse(None);
    let open = |fault| world.simulator.fault(On::method("apps.connections.open"), fault, 1);
    open(Fault::TooMany(42));
    let after = Some(Duration::from_secs(42));
    assert!(matches!(world.closed().await, Closed::Transient { after: told, .. } if told == after));
    open(Fault::refuse("invalid_auth"));
    assert!(matches!(world.closed().await, Closed::LoggedOut { .. }), "the app token alone is dead");
    open(Fault::refuse("something_new"));
    assert!(matches!(world.closed().await, Closed::Rejected { .. }));
    for fault in [Fault::Page(502), Fault::ResetBefore, Fault::ResetAfter, Fault::Malformed] {
        let told = format!("{fault:?}");
        open(fault);
        assert!(matches!(world.closed().await, Closed::Transient { after: None, .. }), "{told}");
    }
    let slack = slack_at(&world.simulator.api_url());
    let bot_alone = spec_of(world.app.bot_token());
    assert!(slack.holds(&bot_alone).is_err() && slack.holds(&spec_of(&secret_of(&world.app))).is_ok());
    let closed = slack.receive(bot_alone, world.inbox.clone(), CancellationToken::new()).await;
    assert!(matches!(closed, Closed::Misconfigured { .. }));
    let swapped = spec_of("xapp-1 xapp-2");
    assert!(matches!(
        slack.receive(swapped, world.inbox.clone(), CancellationToken::new()).await,
        Closed::LoggedOut { .. }
    ));
}

/// Field report R17.
#[tokio::test]
async fn a_connection_through_which_nothing_goes_is_noticed() {
    let times = SlackTimes {
        ping_after: Duration::from_millis(200),
        silence: Duration::from_millis(600),
        ..SlackTimes::default()
    };
    let world = World::with(times).await;
    let (receiving, _stop) = world.connected().await;
    let heard = || world.inbox.heard.load(Ordering::SeqCst);
    let before = heard();
    world.wait_for("pings", || (world.app.stats().pings >= 3).then_some(())).await;
    assert!(heard() > before + 1, "a pong is heard, and keeps it alive");
    world.app.freeze_sockets();
    let frozen = Instant::now();
    let closed = tokio::time::timeout(SOON, receiving).await.expect("it ends").unwrap();
    assert!(matches!(closed, Closed::Transient { .. }));
    assert!(frozen.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn a_socket_that_does_not_greet_is_given_up_and_a_stop_waits_for_nobody() {
    let times = SlackTimes { hello: Duration::from_millis(300), ..SlackTimes::default() };
    let world = World::with(times).await;
    world.app.greet(Greeting::Silence);
    assert!(matches!(world.closed().await, Closed::Transient { .. }));
    world.simulator.fault(On::method("apps.connections.open"), Fault::BlackHole, ALWAYS);
    let (receiving, stop) = world.receive();
    world.wait_for("a call", || (world.app.stats().requests_of("apps.connections.open") >= 2).then_some(())).await;
    let begun = Instant::now();
    stop.cancel();
    assert_eq!(receiving.await.unwrap(), Closed::Asked);
    assert!(begun.elapsed() < Duration::from_secs(1));
}

/// Slack leaves the connection open after the close handshake.
#[tokio::test]
async fn a_good_bye_takes_a_second_at_most() {
    let world = World::new().await;
    let (receiving, stop) = world.connected().await;
    world.app.freeze_sockets();
    let begun = Instant::now();
    stop.cancel();
    assert_eq!(receiving.await.unwrap(), Closed::Asked);
    assert!(begun.elapsed() < Duration::from_millis(1900), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn one_that_is_slow_to_store_loses_nothing_to_retries() {
    let world = World::new().await;
    world.simulator.retries(Retries { ack_within: Duration::from_millis(100), after: [Duration::ZERO; 3] });
    let (_receiving, _stop) = world.connected().await;
    world.inbox.holds.store(true, Ordering::SeqCst);
    world.app.dm("U7").say("hello");
    world.inbox.held_up.notified().await;
    world.wait_for("a retry", || (world.app.stats().retried >= 2).then_some(())).await;
    world.inbox.holds.store(false, Ordering::SeqCst);
    world.inbox.go_on.notify_one();
    world.app.wait_for_acks(SOON).await.unwrap();
    assert_eq!(world.inbox.texts(), ["hello"]);
    assert!(world.app.stats().strays >= 1, "each envelope is acknowledged, the late ones too");
}
