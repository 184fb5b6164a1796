//! What comes in: stored before it is acknowledged, once, whichever socket it comes by.

use super::*;

/// Contract: E1.
#[tokio::test]
async fn an_envelope_is_acknowledged_only_after_it_is_stored() {
    let world = World::new().await;
    let (receiving, stop) = world.connected().await;
    world.inbox.holds.store(true, Ordering::SeqCst);
    world.app.dm("U7").say("hello");
    world.inbox.held_up.notified().await;
    assert_eq!((world.app.stats().acked, world.app.stats().pending), (0, 1), "it is being stored");
    world.inbox.holds.store(false, Ordering::SeqCst);
    world.inbox.go_on.notify_one();
    world.app.wait_for_acks(SOON).await.unwrap();
    assert_eq!(world.inbox.texts(), ["hello"]);
    stop.cancel();
    assert_eq!(receiving.await.unwrap(), Closed::Asked);
    assert_eq!(world.app.stats().closes, 1, "it says good-bye");
}

/// Contract: E1. Field report R14.
#[tokio::test]
async fn what_could_not_be_stored_is_told_again_as_a_retry_and_then_taken() {
    let world = World::new().await;
    world.inbox.refuses.store(true, Ordering::SeqCst);
    let (receiving, _stop) = world.connected().await;
    world.app.dm("U7").say("hello");
    assert!(matches!(receiving.await.unwrap(), Closed::Transient { .. }));
    assert_eq!((world.app.stats().acked, world.app.stats().pending), (0, 1));
    world.inbox.refuses.store(false, Ordering::SeqCst);
    let (_receiving, _stop) = world.connected().await;
    world.app.wait_for_acks(SOON).await.unwrap();
    assert_eq!(world.inbox.texts(), ["hello"]);
    assert!(world.app.stats().retried > 0, "it came as a retry");
}

/// Field report R14.
#[tokio::test]
async fn what_was_said_while_no_socket_was_open_comes_as_a_retry_and_is_taken() {
    let world = World::new().await;
    world.app.dm("U7").say("is anybody there?");
    let (_receiving, _stop) = world.connected().await;
    world.app.wait_for_acks(SOON).await.unwrap();
    assert_eq!(world.inbox.texts(), ["is anybody there?"]);
    assert!(world.app.stats().retried > 0);
}

/// Field reports R14, R15.
#[tokio::test]
async fn an_event_told_twice_is_acknowledged_twice_and_has_one_id() {
    let world = World::new().await;
    let (_receiving, _stop) = world.connected().await;
    let payload = json!({
        "type": "event_callback", "event_id": "Ev1", "api_app_id": world.app.id(),
        "event": {"type": "message", "channel": "D7", "user": "U7", "ts": "1.000001", "event_ts": "1.000001", "text": "once"},
    });
    world.app.push("events_api", payload.clone());
    world.app.push("events_api", payload);
    world.app.wait_for_acks(SOON).await.unwrap();
    assert_eq!((world.app.stats().acked, world.inbox.stored.load(Ordering::SeqCst)), (2, 2));
    assert_eq!(world.inbox.texts(), ["once"], "who stores knows it by its id");
}

#[tokio::test]
async fn a_mention_is_told_by_two_events_and_is_one_message() {
    let world = World::new().await;
    let (_receiving, _stop) = world.connected().await;
    world.app.member("C1", "U7").mention("you there?");
    world.app.wait_for_acks(SOON).await.unwrap();
    assert_eq!(world.app.stats().acked, 2);
    assert_eq!(world.inbox.texts(), [format!("<@{}> you there?", world.app.bot_user())]);
}

#[tokio::test]
async fn many_events_come_in_order_and_none_twice_over_stops_at_any_time() {
    let world = World::new().await;
    let person = world.app.dm("U7");
    for round in 0..4 {
        let (receiving, stop) = world.connected().await;
        for n in 0..30 {
            person.say(&format!("{round}-{n}"));
            if n % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        stop.cancel();
        assert_eq!(receiving.await.unwrap(), Closed::Asked);
        world.app.wait_for_sockets(0, SOON).await.unwrap();
    }
    let (_receiving, _stop) = world.connected().await;
    world.app.wait_for_acks(SOON).await.unwrap();
    let mut texts = world.inbox.texts();
    assert_eq!(texts.len(), 120);
    let expected: Vec<_> = (0..4).flat_map(|round| (0..30).map(move |n| format!("{round}-{n}"))).collect();
    // What a closing socket carried is told again, after what came by the next one.
    texts.sort();
    let mut sorted = expected;
    sorted.sort();
    assert_eq!(texts, sorted);
}

#[tokio::test]
async fn every_kind_is_told_a_strange_one_spoils_nothing_and_the_bots_own_is_left_out() {
    let world = World::new().await;
    let (_receiving, _stop) = world.connected().await;
    let person = world.app.dm("U7");
    let said = person.say("one");
    person.edit(&said, "two");
    person.unfurl(&said);
    person.react(&said, "thumbsup");
    person.unreact(&said, "thumbsup");
    person.press(&said, "a_button", "yes");
    person.command("/do", "it");
    person.send_file("note.txt", "bytes", "look");
    person.delete(&said);
    world.app.push_event(json!({"type": "member_joined_channel", "user": "U8", "channel": "C1"}));
    world.app.push_event(json!({"type": "quantum_leap"}));
    world.app.push("future_kind", json!({"anything": [1, 2]}));
    world.app.push("events_api", json!(["no", "event"]));
    world.app.send_text("no JSON at all");
    world.app.send_text(r#"{"type":"news"}"#);
    let sent = world.perform("send", json!({"chat_id": "D7", "text": "mine"})).await.unwrap().provider_id.unwrap();
    world.perform("send", json!({"chat_id": "D7", "text": "mine!", "edit_message_id": sent})).await.unwrap();
    world.perform("send_reaction", json!({"chat_id": "D7", "message_id": sent, "emoji": "eyes"})).await.unwrap();
    world.perform("revoke", json!({"chat_id": "D7", "message_id": sent})).await.unwrap();
    world.app.wait_for_acks(SOON).await.unwrap();
    let mut kinds = world.inbox.kinds();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [
            "interaction.received",
            "interaction.received",
            "message.edited",
            "message.reaction",
            "message.reaction",
            "message.received",
            "message.received",
            "message.revoked",
            "platform.other",
            "platform.other",
            "platform.other",
            "platform.other",
            "platform.other",
        ]
    );
}

/// Contract: C1.
#[tokio::test]
async fn a_channel_that_is_not_ours_asks_and_acknowledges_nothing() {
    let world = World::new().await;
    world.inbox.fenced.store(true, Ordering::SeqCst);
    assert_eq!(world.closed().await, Closed::Fenced);
    assert_eq!(world.app.stats().requests_of("apps.connections.open"), 0);
    world.inbox.fenced.store(false, Ordering::SeqCst);
    let (receiving, _stop) = world.connected().await;
    world.inbox.holds.store(true, Ordering::SeqCst);
    world.app.dm("U7").say("hello");
    world.inbox.held_up.notified().await;
    world.inbox.fenced.store(true, Ordering::SeqCst);
    world.inbox.go_on.notify_one();
    assert_eq!(receiving.await.unwrap(), Closed::Fenced);
    assert_eq!(world.app.stats().acked, 0);
}
