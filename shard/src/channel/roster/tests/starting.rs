//! How channels come up: fast, not too fast, each once.

use super::*;

/// Contract: C3. Field report R09.
#[tokio::test(start_paused = true)]
async fn a_thousand_channels_are_up_within_ten_seconds_of_a_cold_start() {
    let world = World::new();
    world.directory.set((0..1000).map(spec));
    let handle = start(&world, world.config());
    let took = until(secs(10), || all_connected(&handle, 1000)).await;
    assert!(took > secs(4), "spread over the jitter: {took:?}");
    assert!(world.platform.most_dialing.load(Ordering::SeqCst) <= 60);
}

/// Field report R09.
#[tokio::test(start_paused = true)]
async fn never_more_logins_in_flight_than_the_limit() {
    let world = World::new();
    world.directory.set((0..500).map(spec));
    let ramp = RampConfig { in_flight: 10, ..RampConfig::default() };
    let handle = start(&world, RosterConfig { ramp, ..world.config() });
    until(secs(20), || all_connected(&handle, 500)).await;
    assert_eq!(world.platform.most_dialing.load(Ordering::SeqCst), 10);
}

/// Contract: C3.
#[tokio::test(start_paused = true)]
async fn a_restart_in_place_takes_its_predecessors_leases_over_without_jitter() {
    let world = World::new();
    world.directory.set((0..50).map(spec));
    let first = world.roster(world.config());
    let handle = first.handle();
    let first = tokio::spawn(first.run());
    until(secs(10), || all_connected(&handle, 50)).await;
    // It dies: its connections end, its leases don't.
    first.abort();
    until(secs(1), || world.platform.open_now() == 0).await;
    let mut config = RosterConfig { supersede: true, cold_start: false, ..world.config() };
    config.holder.incarnation = 2;
    let second = start(&world, config);
    let took = until(secs(2), || world.platform.logins.lock().unwrap().len() == 100).await;
    assert!(took < Duration::from_millis(800), "{took:?}");
    assert!(*second.ready().borrow());
}

/// Field report R02.
#[tokio::test(start_paused = true)]
async fn three_ways_to_start_one_channel_make_one_login() {
    let world = World::new();
    world.directory.set([spec(1)]);
    let handle = start(&world, RosterConfig { cold_start: false, ..world.config() });
    let (connect, restart) = (handle.clone(), handle.clone());
    let job = tokio::spawn(async move { connect.connect(id(1)).await });
    sleep(Duration::from_millis(2)).await;
    handle.reconcile();
    sleep(Duration::from_millis(2)).await;
    restart.restart(id(1));
    assert!(job.await.unwrap().unwrap());
    until(secs(10), || state_of(&handle, id(1)) == Some(State::Connected)).await;
    sleep(secs(60)).await;
    assert_eq!(world.platform.logins_of(id(1)).len(), 1);
    let silence = world.metrics.silence.with_label_values(&["telegram"]).get();
    assert!((59..62).contains(&silence), "{silence}");
}

/// Contract: C2.
#[tokio::test(start_paused = true)]
async fn another_handler_needs_no_new_connection() {
    let world = World::new();
    world.directory.set([spec(1)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 1)).await;
    world.directory.set([Arc::new(ChannelSpec { handler: Handler::None, ..(*spec(1)).clone() })]);
    until(secs(5), || match handle.availability(id(1)) {
        Availability::Ready(ready) => ready.spec.handler == Handler::None,
        _ => false,
    })
    .await;
    assert_eq!(world.platform.logins_of(id(1)).len(), 1);
}

/// Contract: Q9.
#[tokio::test(start_paused = true)]
async fn a_channel_added_a_moment_ago_is_found_and_one_that_is_not_there_is_not() {
    let world = World::new();
    world.directory.set([spec(0)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 1)).await;
    world.directory.specs.lock().unwrap().push(spec(1));
    assert!(matches!(handle.availability(id(1)), Availability::Starting));
    until(secs(2), || matches!(handle.availability(id(1)), Availability::Ready(_))).await;
    until(secs(2), || matches!(handle.availability(id(9)), Availability::Unknown)).await;
}

/// Contract: C2, Q9.
#[tokio::test(start_paused = true)]
async fn what_the_directory_said_before_starts_channels_and_proves_that_none_is_missing() {
    let world = World::new();
    world.directory.stale.store(true, Ordering::SeqCst);
    world.directory.set([spec(0)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 1)).await;
    timeout(secs(2), handle.ready().wait_for(|ready| *ready)).await.unwrap().unwrap();
    assert!(matches!(handle.availability(id(9)), Availability::Starting));
    sleep(secs(20)).await;
    assert!(matches!(handle.availability(id(9)), Availability::Starting), "nobody could be asked yet");
    let age = world.metrics.directory_age.get();
    assert!((20..32).contains(&age), "{age}");
    world.directory.stale.store(false, Ordering::SeqCst);
    handle.reconcile();
    until(secs(2), || matches!(handle.availability(id(9)), Availability::Unknown)).await;
    until(secs(2), || world.metrics.directory_age.get() <= 1).await;
}

/// Contract: C2. However seldom it is looked, an outage is not waited out for an interval.
#[tokio::test(start_paused = true)]
async fn a_directory_that_was_away_is_asked_again_soon() {
    let world = World::new();
    world.directory.set([spec(0)]);
    let handle = start(&world, RosterConfig { reconcile_every: secs(3600), ..world.config() });
    until(secs(10), || all_connected(&handle, 1)).await;
    world.directory.away.store(true, Ordering::SeqCst);
    handle.reconcile();
    sleep(secs(5)).await;
    world.directory.away.store(false, Ordering::SeqCst);
    world.directory.specs.lock().unwrap().push(spec(1));
    until(secs(31), || all_connected(&handle, 2)).await;
}

/// Contract: H1.
#[tokio::test(start_paused = true)]
async fn ready_means_that_every_channel_was_claimed_or_is_somebodys() {
    let world = World::new();
    world.directory.away.store(true, Ordering::SeqCst);
    world.registry.rob(id(1));
    world.directory.set([spec(0), spec(1)]);
    let handle = start(&world, world.config());
    let mut ready = handle.ready();
    sleep(secs(60)).await;
    assert!(!*ready.borrow(), "nobody said yet what is wanted");
    world.directory.away.store(false, Ordering::SeqCst);
    timeout(secs(2), ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
}

/// Field report R41.
#[tokio::test(start_paused = true)]
async fn the_loops_tick_while_nothing_is_to_do() {
    let world = World::new();
    let _handle = start(&world, world.config());
    sleep(LONG).await;
    assert_eq!(world.progress.stalled(), []);
    assert!(world.directory.asked.load(Ordering::SeqCst) >= 119);
}
