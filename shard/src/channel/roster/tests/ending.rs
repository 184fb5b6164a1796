//! How channels end, by what the platform and the directory say.

use super::*;

/// Field report R08. Contract: C3.
#[tokio::test(start_paused = true)]
async fn a_panic_in_one_channel_touches_no_other() {
    let world = World::new();
    world.script(7, [Script::Panic]);
    world.directory.set((0..200).map(spec));
    let handle = start(&world, world.config());
    sleep(LONG).await;
    for n in (0..200).filter(|n| *n != 7) {
        assert_eq!(world.platform.logins_of(id(n)).len(), 1);
    }
    assert_eq!(handle.states().iter().filter(|status| status.state == State::Connected).count(), 199);
    assert!(world.platform.logins_of(id(7)).len() < 30, "it backs off");
}

/// Field report R06.
#[tokio::test(start_paused = true)]
async fn channels_that_are_always_refused_come_to_rest() {
    let world = World::new();
    let refused = Closed::Rejected { reason: "500".into() };
    (0..50).for_each(|n| world.script(n, [Script::Refuse(refused.clone())]));
    world.directory.set((0..50).map(spec));
    let handle = start(&world, world.config());
    sleep(3 * LONG).await;
    assert!(handle.states().iter().all(|status| status.state == State::Parked));
    for n in 0..50 {
        let logins = world.platform.logins_of(id(n));
        assert!((20..26).contains(&logins.len()), "{} logins", logins.len());
        assert!(logins[19..].windows(2).all(|pair| pair[1].0 - pair[0].0 >= secs(1800)));
    }
    let gauge = world.metrics.channels.with_label_values(&["telegram", "parked"]).get();
    assert_eq!(gauge, 50);
}

/// Field report R01.
#[tokio::test(start_paused = true)]
async fn a_channel_that_is_evicted_after_each_login_is_told_replaced_once() {
    let world = World::new();
    let evicted = Closed::Replaced { reason: "conflict".into() };
    world.script(1, [Script::Last(Duration::from_millis(300), evicted)]);
    world.directory.set([spec(1)]);
    let _handle = start(&world, RosterConfig { cold_start: false, ..world.config() });
    sleep(secs(30)).await;
    assert!(world.platform.logins_of(id(1)).len() <= 5);
    sleep(24 * LONG).await;
    let told = world.outbox.told(id(1));
    assert_eq!(told, ["connecting", "connected", "reconnecting", "connected", "replaced"]);
    let last = world.platform.logins_of(id(1)).last().unwrap().0;
    assert!(last.elapsed() <= secs(300), "never given up");
}

/// Field report R21.
#[tokio::test(start_paused = true)]
async fn a_dead_token_is_told_once_and_a_new_one_is_tried_at_once() {
    let world = World::new();
    let dead = Closed::LoggedOut { reason: "Unauthorized".into() };
    world.script(1, [Script::Refuse(dead.clone()), Script::Refuse(dead), Script::Stay]);
    world.directory.set([spec(1), spec(2)]);
    let handle = start(&world, world.config());
    sleep(secs(600)).await;
    assert_eq!(world.platform.logins_of(id(1)).len(), 1);
    assert_eq!(world.outbox.told(id(1)), ["connecting", "logged_out"]);
    assert_eq!(state_of(&handle, id(2)), Some(State::Connected));

    handle.connect(id(1)).await.unwrap();
    until(secs(5), || world.platform.logins_of(id(1)).len() == 2).await;
    let fresh = ChannelSpec { token: Some(Secret::new("new")), ..(*spec(1)).clone() };
    world.directory.set([Arc::new(fresh), spec(2)]);
    until(secs(5), || state_of(&handle, id(1)) == Some(State::Connected)).await;
    let tokens: Vec<_> = world.platform.logins_of(id(1)).into_iter().map(|(_, token)| token).collect();
    assert_eq!(tokens, ["1:token", "1:token", "new"]);
}

/// Contract: C2.
#[tokio::test(start_paused = true)]
async fn a_directory_that_is_down_stops_nothing() {
    let world = World::new();
    world.directory.set((0..20).map(spec));
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 20)).await;
    world.directory.away.store(true, Ordering::SeqCst);
    world.directory.set([]);
    sleep(LONG).await;
    assert_eq!(world.platform.open_now(), 20);
    world.directory.set((0..21).map(spec));
    world.directory.away.store(false, Ordering::SeqCst);
    until(secs(31), || all_connected(&handle, 21)).await;
}

/// Contract: C2.
#[tokio::test(start_paused = true)]
async fn disconnect_returns_when_it_is_closed_and_connect_brings_it_back() {
    let world = World::new();
    world.directory.set([spec(0)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 1)).await;
    assert!(handle.disconnect(id(0), false).await.unwrap());
    assert_eq!((world.platform.open_now(), world.registry.holder(id(0))), (0, None));
    assert!(matches!(handle.availability(id(0)), Availability::Disabled));
    sleep(LONG).await;
    assert_eq!(world.platform.logins.lock().unwrap().len(), 1);
    assert!(handle.connect(id(0)).await.unwrap());
    until(secs(2), || all_connected(&handle, 1)).await;
    assert!(!handle.connect(id(5)).await.unwrap());
    assert!(!handle.disconnect(id(5), false).await.unwrap());
}

/// Contract: C2.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_older_than_a_disconnect_brings_nothing_back() {
    let world = World::new();
    world.directory.set([spec(0)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 1)).await;
    *world.directory.slow.lock().unwrap() = secs(5);
    let asked = world.directory.asked.load(Ordering::SeqCst);
    handle.reconcile();
    until(secs(2), || world.directory.asked.load(Ordering::SeqCst) > asked).await;
    assert!(handle.disconnect(id(0), false).await.unwrap());
    sleep(LONG).await;
    assert_eq!(world.platform.logins.lock().unwrap().len(), 1);
}
