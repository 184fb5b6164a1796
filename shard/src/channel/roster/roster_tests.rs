use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::{
    channel::{
        State,
        testing::{Script, World, id, spec},
    },
    directory::{ChannelSpec, Handler},
    dispatch::{Availability, Channels},
    event::{EventKind, Message},
    identity::ChannelId,
    platform::Closed,
    secret::Secret,
    sink::Destination,
};

const LONG: Duration = Duration::from_secs(3600);

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn start(world: &World, config: RosterConfig) -> RosterHandle {
    let roster = world.roster(config);
    let handle = roster.handle();
    tokio::spawn(roster.run());
    handle
}

/// Waits (in paused time) until something holds.
async fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() <= limit, "it never came about");
        sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

fn state_of(handle: &RosterHandle, channel: ChannelId) -> Option<State> {
    handle.states().into_iter().find(|status| status.channel == channel).map(|status| status.state)
}

fn all_connected(handle: &RosterHandle, count: usize) -> bool {
    let states = handle.states();
    states.len() == count && states.iter().all(|status| status.state == State::Connected)
}

fn event(n: u32, key: &str, kind: EventKind) -> crate::event::Event {
    let at = jiff::Timestamp::UNIX_EPOCH;
    crate::event::Event::new(id(n), PlatformKind::Telegram, None, at, key, kind)
}

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

/// Contract: E1, E2.
#[tokio::test(start_paused = true)]
async fn events_keep_their_order_and_the_offset_goes_with_the_last() {
    let world = World::new();
    world.directory.set([spec(1)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 1)).await;
    let inbox = world.platform.inboxes.lock().unwrap()[&id(1)].clone();
    let message = || EventKind::MessageReceived(Message::default());
    let other = EventKind::Other(Default::default());
    let events = vec![
        event(1, "update/1", message()),
        event(1, "update/2", message()),
        event(1, "update/3", other),
        event(1, "update/4", message()),
    ];
    let ids: Vec<_> = events.iter().map(|event| event.id).collect();
    inbox.store(events, Some(5)).await.unwrap();
    let stored = world.outbox.stored.lock().unwrap()[2..].to_vec();
    assert_eq!(stored.iter().map(|(event, _)| event.id).collect::<Vec<_>>(), ids);
    let handled: Vec<_> = stored.iter().map(|(_, to)| to.contains(&Destination::Handler)).collect();
    assert_eq!(handled, [true, true, false, true]);
    assert!(stored.iter().all(|(_, to)| to.contains(&Destination::Endpoint)));
    assert_eq!(inbox.offset().await, Ok(Some(5)));
}

/// Contract: E1.
#[tokio::test(start_paused = true)]
async fn a_change_of_state_that_cannot_be_stored_is_stored_later() {
    let world = World::new();
    world.outbox.away.store(true, Ordering::SeqCst);
    world.directory.set([spec(1)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 1)).await;
    world.outbox.away.store(false, Ordering::SeqCst);
    until(secs(6), || world.outbox.told(id(1)) == ["connecting", "connected"]).await;
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
