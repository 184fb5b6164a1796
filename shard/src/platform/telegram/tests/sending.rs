//! What goes out, and what is known of it.

use super::*;

#[tokio::test]
async fn each_kind_of_job_is_seen_by_the_person() {
    let world = World::new().await;
    let user = world.bot.user(7);
    let theirs = user.say("hello").message_id.to_string();
    let sent = world.perform("send", json!({"chat_id": "7", "text": "hi", "reply_to": theirs})).await.unwrap();
    let ours = sent.provider_id.unwrap();
    let edit = json!({"chat_id": "7", "text": "<b>hi!</b>", "edit_message_id": ours, "parse_mode": "HTML"});
    assert_eq!(world.perform("send", edit.clone()).await.unwrap().provider_id, Some(ours.clone()));
    assert_eq!(world.perform("send", edit).await, Ok(Done::default()), "the same edit again changes nothing");
    let react = json!({"chat_id": "7", "message_id": theirs, "emoji": "👍"});
    world.perform("send_reaction", react).await.unwrap();
    world.perform("send_reaction", json!({"chat_id": "7", "message_id": theirs, "emoji": ""})).await.unwrap();
    let revoke = json!({"chat_id": "7", "message_id": ours});
    world.perform("revoke", revoke.clone()).await.unwrap();
    assert_eq!(world.perform("revoke", revoke).await, Ok(Done::default()), "it is gone already");
    let seen: Vec<_> = user.conversation().iter().skip(1).map(|entry| entry.what).collect();
    assert_eq!(seen, [What::Message, What::Edit, What::Reaction, What::Reaction, What::Delete]);
    assert_eq!(user.conversation()[1].content["reply_to_message"]["text"], "hello");
}

#[tokio::test]
async fn each_kind_of_file_and_place_is_sent() {
    let world = World::new().await;
    for (n, (kind, field)) in [
        ("image", "photo"),
        ("video", "video"),
        ("audio", "audio"),
        ("voice", "voice"),
        ("document", "document"),
        ("sticker", "sticker"),
    ]
    .into_iter()
    .enumerate()
    {
        let chat = 100 + n as i64;
        let user = world.bot.user(chat);
        let mut data = json!({"chat_id": chat.to_string(), "kind": kind, "url": "https://files.test/x"});
        if kind != "sticker" {
            data["caption"] = "look".into();
        }
        world.perform("send_media", data).await.unwrap();
        let answer = user.answers().remove(0);
        assert!(!answer.content[field].is_null(), "{kind}: {}", answer.content);
    }
    let user = world.bot.user(7);
    let place = json!({"chat_id": "7", "latitude": 1.5, "longitude": 2.5});
    let mut venue = place.clone();
    venue["title"] = "Café".into();
    venue["address"] = "1 Way".into();
    world.perform("send_location", place).await.unwrap();
    world.perform("send_location", venue).await.unwrap();
    let answers = user.answers();
    assert_eq!(answers[0].content["location"]["latitude"], 1.5);
    assert_eq!(answers[1].content["venue"]["title"], "Café");
}

#[tokio::test]
async fn what_telegram_cannot_do_and_what_makes_no_sense_is_permanent() {
    let world = World::new().await;
    world.bot.user(7);
    let text = |chat: &str| json!({"chat_id": chat, "text": "x"});
    for (name, data, reason) in [
        ("group_create", json!({"subject": "s", "participants": ["7"]}), "unsupported"),
        ("mark_read", json!({"chat_id": "7", "message_ids": ["1"]}), "unsupported"),
        ("resync_history", json!({}), "unsupported"),
        ("send", text("somebody"), "bad_recipient"),
        ("send", text("404"), "bad_recipient"),
        ("send", json!({"chat_id": "7", "text": "x", "reply_to": "abc"}), "rejected"),
        ("send_media", json!({"chat_id": "7", "kind": "image", "url": "https://[x"}), "rejected"),
        (
            "send_media",
            json!({"chat_id": "7", "kind": "sticker", "url": "https://f.test/x", "caption": "c"}),
            "rejected",
        ),
    ] {
        match world.perform(name, data).await {
            Err(Failed::Permanent { reason: told, .. }) => assert_eq!(told, reason, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    let user = world.bot.user(8);
    user.block();
    let blocked = world.perform("send", text("8")).await;
    assert!(matches!(blocked, Err(Failed::Permanent { reason: "bad_recipient", .. })), "{blocked:?}");
    world.bot.revoke();
    let revoked = world.perform("send", text("7")).await;
    assert!(matches!(revoked, Err(Failed::Permanent { reason: "logged_out", .. })), "{revoked:?}");
}

#[tokio::test]
async fn a_group_that_moved_is_written_to_where_it_is() {
    let world = World::new().await;
    world.bot.member(-5, 7);
    world.bot.migrate(-5, -1005);
    let done = world.perform("send", json!({"chat_id": "-5", "text": "x"})).await.unwrap();
    assert_eq!(done.result, Some(json!({"chat_id": "-1005"})));
    assert_eq!(world.bot.member(-1005, 7).answers().len(), 1);
}

/// Contract: Q8.
#[tokio::test]
async fn a_send_whose_outcome_is_not_known_says_so_and_one_that_was_not_sent_is_tried_again() {
    let world = World::new().await;
    let user = world.bot.user(7);
    let mut chat = 10;
    for (fault, happened) in [
        (Fault::ResetBefore, 0),
        (Fault::ResetAfter, 1),
        (Fault::Malformed, 1),
        (Fault::Page(502), 0),
        (Fault::server_error(500), 0),
    ] {
        chat += 1;
        let user = world.bot.user(chat);
        let told = format!("{fault:?}");
        world.simulator.fault(On::method("sendMessage"), fault, 1);
        let failed = world.perform("send", json!({"chat_id": chat.to_string(), "text": "x"})).await;
        assert!(matches!(failed, Err(Failed::Ambiguous { .. })), "{told}: {failed:?}");
        assert_eq!(user.answers().len(), happened, "{told}");
    }
    let theirs = user.say("x").message_id.to_string();
    world.simulator.fault(On::method("setMessageReaction"), Fault::ResetAfter, 1);
    let react = json!({"chat_id": "7", "message_id": theirs, "emoji": "👍"});
    assert!(
        matches!(world.perform("send_reaction", react).await, Err(Failed::Retry { .. })),
        "once more shows the same"
    );
    world.simulator.outage();
    let failed = world.perform("send", json!({"chat_id": "7", "text": "x"})).await;
    assert!(matches!(failed, Err(Failed::Retry { after: None, .. })), "{failed:?}");
}

/// Field report R22.
#[tokio::test]
async fn a_429_for_one_chat_keeps_that_chat_from_being_asked_and_no_other() {
    let world = World::new().await;
    (1..=26).for_each(|chat| drop(world.bot.user(chat)));
    world.simulator.fault(On::bot(&world.bot).and_chat(1), Fault::too_many(10_072), ALWAYS);
    let sender = world.telegram.sender(&spec_of(world.bot.token())).unwrap();
    let send = |chat: i64| job("send", json!({"chat_id": chat.to_string(), "text": "x"}));
    for _ in 0..3 {
        let failed = sender.perform(&send(1), None).await;
        let Err(Failed::Retry { after: Some(after), .. }) = failed else { panic!("{failed:?}") };
        assert!(after > Duration::from_secs(10_000));
    }
    assert_eq!(world.bot.stats().requests_of("sendMessage"), 1, "asked once");
    for chat in 2..=26 {
        sender.perform(&send(chat), None).await.unwrap();
    }
}

#[tokio::test]
async fn a_chat_is_written_to_in_bursts_and_then_put_off() {
    let world = World::new().await;
    let user = world.bot.user(7);
    let sender = world.telegram.sender(&spec_of(world.bot.token())).unwrap();
    let send = job("send", json!({"chat_id": "7", "text": "x"}));
    let begun = Instant::now();
    for _ in 0..4 {
        sender.perform(&send, None).await.unwrap();
    }
    assert!(begun.elapsed() > Duration::from_millis(800), "the fourth waits for its turn");
    let other = world.telegram.sender(&spec_of(world.bot.token())).unwrap();
    let (first, second) = tokio::join!(sender.perform(&send, None), other.perform(&send, None));
    assert!(first.is_ok(), "{first:?}");
    assert!(matches!(second, Err(Failed::Retry { after: Some(_), .. })), "two senders share a limit: {second:?}");
    assert_eq!(user.answers().len(), 5);
}
