//! How events go into the outbox.

use super::*;

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

/// Contract: E1.
#[tokio::test(start_paused = true)]
async fn an_outbox_that_goes_away_within_a_batch_has_the_rest_told_again() {
    let world = World::new();
    world.directory.set([spec(1)]);
    let handle = start(&world, world.config());
    until(secs(10), || all_connected(&handle, 1)).await;
    let inbox = world.platform.inboxes.lock().unwrap()[&id(1)].clone();
    let message = EventKind::MessageReceived(Message::default());
    let events = vec![event(1, "update/1", message), event(1, "update/2", EventKind::Other(Default::default()))];
    let appends = world.outbox.appends.load(Ordering::SeqCst);
    *world.outbox.away_after.lock().unwrap() = Some(appends + 1);
    assert!(inbox.store(events, Some(3)).await.is_err());
    assert_eq!(world.outbox.stored.lock().unwrap().len(), 3, "two states and the first of the events");
    assert_eq!(inbox.offset().await, Ok(None), "nothing is confirmed before all of it is stored");
}
