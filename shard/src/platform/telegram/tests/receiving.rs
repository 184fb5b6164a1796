//! What comes in, and how a poll ends.

use super::*;

/// Contract: E1.
#[tokio::test]
async fn an_update_is_confirmed_only_after_it_is_stored() {
    let world = World::new().await;
    world.inbox.holds.store(true, Ordering::SeqCst);
    world.bot.user(7).say("hello");
    let (receiving, stop) = world.receive();
    world.inbox.held_up.notified().await;
    assert_eq!(world.bot.stats().pending, 1, "it is being stored");
    world.inbox.holds.store(false, Ordering::SeqCst);
    world.inbox.go_on.notify_one();
    world.bot.wait_for_confirmed(SOON).await.unwrap();
    assert_eq!(world.inbox.texts(), ["hello"]);
    world.bot.wait_for_poll(SOON).await.unwrap();
    stop.cancel();
    assert_eq!(receiving.await.unwrap(), Closed::Asked);
}

/// Contract: E1.
#[tokio::test]
async fn what_could_not_be_stored_is_told_again() {
    let world = World::new().await;
    world.inbox.refuses.store(true, Ordering::SeqCst);
    world.bot.user(7).say("hello");
    assert!(matches!(world.closed().await, Closed::Transient { .. }));
    assert_eq!((world.bot.stats().pending, world.inbox.connected.load(Ordering::SeqCst)), (1, 0));
    world.inbox.refuses.store(false, Ordering::SeqCst);
    let (_receiving, _stop) = world.receive();
    world.bot.wait_for_confirmed(SOON).await.unwrap();
    assert_eq!(world.inbox.texts(), ["hello"]);
}

#[tokio::test]
async fn many_updates_come_in_order_and_none_twice_over_stops_at_any_time() {
    let world = World::new().await;
    let user = world.bot.user(7);
    for round in 0..10 {
        let (receiving, stop) = world.receive();
        for n in 0..30 {
            user.say(&format!("{round}-{n}"));
            if n % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        stop.cancel();
        assert_eq!(receiving.await.unwrap(), Closed::Asked);
    }
    let (_receiving, _stop) = world.receive();
    world.bot.wait_for_confirmed(SOON).await.unwrap();
    let expected: Vec<_> = (0..10).flat_map(|round| (0..30).map(move |n| format!("{round}-{n}"))).collect();
    assert_eq!(world.inbox.texts(), expected);
}

#[tokio::test]
async fn all_kinds_are_asked_for_and_a_strange_one_spoils_no_batch() {
    let world = World::new().await;
    let (_receiving, _stop) = world.receive();
    world.bot.wait_for_poll(SOON).await.unwrap();
    let user = world.bot.user(7);
    let said = user.say("one");
    user.edit(said.message_id, "two");
    user.react(said.message_id, &["👍"]);
    user.press(said.message_id, "yes");
    world.bot.push_update("message", &json!({"no": "message"}));
    world.bot.push_update("chat_member", &json!({"chat": {"id": -3}}));
    user.photo("bytes", Some("look"));
    user.venue(1.0, 2.0, "Café", "1 Way");
    user.block();
    world.bot.wait_for_confirmed(SOON).await.unwrap();
    assert_eq!(world.bot.stats().not_asked_for, 0);
    assert_eq!(
        world.inbox.kinds(),
        [
            "message.received",
            "message.edited",
            "message.reaction",
            "interaction.received",
            "platform.other",
            "platform.other",
            "message.received",
            "message.received",
            "platform.other",
        ]
    );
    assert_eq!(world.inbox.connected.load(Ordering::SeqCst), 1);
}

/// An update id may jump to anything after a week of silence.
#[tokio::test]
async fn update_ids_may_jump_far_and_back() {
    let world = World::new().await;
    let (_receiving, _stop) = world.receive();
    world.bot.wait_for_poll(SOON).await.unwrap();
    for id in [4_294_967_290, 17] {
        world.bot.jump_to_update(id);
        world.bot.user(7).say(&id.to_string());
        let stored = || (world.inbox.texts().last() == Some(&id.to_string())).then_some(());
        world.simulator.wait_for("the text", SOON, stored).await.unwrap();
    }
}

/// Field reports R19, R21, R22.
#[tokio::test]
async fn each_end_of_a_poll_is_told_apart() {
    let world = World::new().await;
    let closed_by = async |fault| {
        world.simulator.fault(On::method("getUpdates"), fault, 1);
        world.closed().await
    };
    assert!(matches!(closed_by(Fault::conflict()).await, Closed::Replaced { .. }));
    assert!(matches!(closed_by(Fault::unauthorized()).await, Closed::LoggedOut { .. }));
    let after = Some(Duration::from_secs(10_072));
    assert!(matches!(closed_by(Fault::too_many(10_072)).await, Closed::Transient { after: told, .. } if told == after));
    for fault in [
        Fault::server_error(500),
        Fault::Page(502),
        Fault::Page(404),
        Fault::ResetBefore,
        Fault::ResetAfter,
        Fault::Malformed,
    ] {
        let told = format!("{fault:?}");
        assert!(matches!(closed_by(fault).await, Closed::Transient { after: None, .. }), "{told}");
    }
    let api = telegram_at(&world.simulator.url()).api.clone();
    let token = Secret::new(world.bot.token());
    let hook = json!({"url": "https://hook.test/"});
    api.post(Some(&token), "setWebhook", &hook, SOON).await.unwrap();
    assert!(matches!(world.closed().await, Closed::Misconfigured { .. }));
    assert_eq!(world.bot.stats().requests_of("deleteWebhook"), 0);
    world.bot.revoke();
    assert!(matches!(world.closed().await, Closed::LoggedOut { .. }));
}

#[tokio::test]
async fn a_second_poll_of_the_same_bot_ends_the_first_as_replaced() {
    let world = World::new().await;
    let (first, _stop) = world.receive();
    world.bot.wait_for_poll(SOON).await.unwrap();
    let (_second, _stop) = world.receive();
    assert!(matches!(first.await.unwrap(), Closed::Replaced { .. }));
}

/// Contract: C1.
#[tokio::test]
async fn a_channel_that_is_not_ours_asks_the_platform_nothing() {
    let world = World::new().await;
    world.inbox.fenced.store(true, Ordering::SeqCst);
    assert_eq!(world.closed().await, Closed::Fenced);
    assert_eq!(world.bot.stats().polls, 0);
}
