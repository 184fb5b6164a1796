//! What is held, proven, lost and given back.

use super::*;

/// Contract: C2.
#[tokio::test(start_paused = true)]
async fn what_is_not_wanted_is_closed_and_only_then_given_back() {
    let world = World::new();
    world.script(1, [Script::Deaf]);
    world.directory.set([spec(0), spec(1)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 2)).await;
    world.directory.set([spec(0)]);
    while world.registry.holder(id(1)).is_some() {
        sleep(Duration::from_millis(5)).await;
        let open = world.platform.open.lock().unwrap()[&id(1)];
        assert!(open == 0 || world.registry.holder(id(1)).is_some(), "given back while it was open");
    }
    until(secs(1), || handle.states().len() == 1).await;
    assert_eq!(world.outbox.told(id(1)), ["connecting", "connected", "stopped"]);
}

/// Contract: C1.
#[tokio::test(start_paused = true)]
async fn a_registry_that_is_away_has_everything_closed_before_the_leases_end() {
    let world = World::new();
    world.directory.set((0..20).map(spec));
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 20)).await;
    world.registry.away.store(true, Ordering::SeqCst);
    let took = until(secs(10), || world.platform.open_now() == 0).await;
    assert!(took >= secs(4), "what can be proven goes on: {took:?}");
    assert!(matches!(handle.availability(id(1)), Availability::Starting));
    sleep(LONG).await;
    assert_eq!(world.platform.open_now(), 0, "nothing is opened that can't be proven");
    world.registry.away.store(false, Ordering::SeqCst);
    until(secs(5), || all_connected(&handle, 20)).await;
}

/// Contract: C1.
#[tokio::test(start_paused = true)]
async fn a_short_outage_of_the_registry_closes_nothing() {
    let world = World::new();
    world.directory.set((0..20).map(spec));
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 20)).await;
    world.registry.away.store(true, Ordering::SeqCst);
    sleep(secs(4)).await;
    world.registry.away.store(false, Ordering::SeqCst);
    sleep(secs(60)).await;
    assert_eq!(world.platform.logins.lock().unwrap().len(), 20);
}

/// Contract: C1.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_closes_its_channel_and_no_other() {
    let world = World::new();
    world.directory.set([spec(0), spec(1)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 2)).await;
    world.registry.rob(id(1));
    until(secs(5), || world.platform.open.lock().unwrap()[&id(1)] == 0).await;
    assert_eq!(world.platform.open.lock().unwrap()[&id(0)], 1);
    // The thief never renews: its lease ends, and the channel comes back.
    until(secs(12), || all_connected(&handle, 2)).await;
    assert_eq!(world.platform.logins_of(id(0)).len(), 1);
}

/// Contract: C1. Field report R40.
#[tokio::test(start_paused = true)]
async fn on_waking_from_a_long_stop_nothing_is_written_before_the_registry_was_asked() {
    let world = World::new();
    world.directory.set([spec(1)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 1)).await;
    let inbox = world.platform.inboxes.lock().unwrap()[&id(1)].clone();
    world.clock.suspend(secs(300));
    let before = world.outbox.appends.load(Ordering::SeqCst);
    let message = EventKind::MessageReceived(Message::default());
    assert_eq!(inbox.store(vec![event(1, "update/1", message)], Some(2)).await, Err(Closed::Fenced));
    assert_eq!(inbox.held(), Err(Closed::Fenced));
    assert_eq!(world.outbox.appends.load(Ordering::SeqCst), before);
    assert!(matches!(handle.availability(id(1)), Availability::Starting));
    until(secs(10), || world.platform.logins_of(id(1)).len() == 2 && all_connected(&handle, 1)).await;
}

/// Contract: C1.
#[tokio::test(start_paused = true)]
async fn a_write_that_the_outbox_fences_ends_the_connection() {
    let world = World::new();
    world.directory.set([spec(1)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 1)).await;
    let inbox = world.platform.inboxes.lock().unwrap()[&id(1)].clone();
    world.outbox.fenced.store(true, Ordering::SeqCst);
    assert_eq!(inbox.store(Vec::new(), Some(2)).await, Err(Closed::Fenced));
    assert_eq!(world.metrics.fenced.get(), 1);
    world.outbox.fenced.store(false, Ordering::SeqCst);
    world.outbox.away.store(true, Ordering::SeqCst);
    let refused = inbox.store(Vec::new(), Some(2)).await;
    assert!(matches!(refused, Err(Closed::Transient { .. })), "{refused:?}");
}

/// Contract: Q10.
#[tokio::test(start_paused = true)]
async fn a_drain_closes_all_and_gives_all_leases_back() {
    let world = World::new();
    world.script(3, [Script::Deaf]);
    world.directory.set((0..20).map(spec));
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 20)).await;
    timeout(secs(6), handle.drain()).await.expect("a deaf connection is cut");
    assert_eq!(world.platform.open_now(), 0);
    assert!(world.registry.leases.lock().unwrap().is_empty());
    assert_eq!(world.outbox.told(id(3)).last().unwrap(), "stopped");
    handle.drain().await;
}
