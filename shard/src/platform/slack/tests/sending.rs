//! What goes out, and what is known of it.

use super::*;

#[tokio::test]
async fn each_kind_of_job_is_seen_by_the_person() {
    let world = World::new().await;
    let person = world.app.dm("U7");
    let theirs = person.say("hello");
    let blocks = json!([{"type": "section", "text": {"type": "mrkdwn", "text": "*hi*"}}]);
    let send = json!({"chat_id": "D7", "text": "hi", "blocks": blocks, "thread_id": theirs});
    let ours = world.perform("send", send).await.unwrap().provider_id.unwrap();
    let edit = json!({"chat_id": "D7", "text": "hi!", "edit_message_id": ours});
    for _ in 0..2 {
        assert_eq!(world.perform("send", edit.clone()).await.unwrap().provider_id, Some(ours.clone()));
    }
    let react = json!({"chat_id": "D7", "message_id": theirs, "emoji": ":thumbsup:"});
    for _ in 0..2 {
        world.perform("send_reaction", react.clone()).await.unwrap();
    }
    world.perform("send_reaction", json!({"chat_id": "D7", "message_id": theirs, "emoji": "eyes"})).await.unwrap();
    person.react(&theirs, "eyes");
    for _ in 0..2 {
        world.perform("send_reaction", json!({"chat_id": "D7", "message_id": theirs, "emoji": ""})).await.unwrap();
    }
    let left = person.message_at(&theirs).unwrap()["reactions"].clone();
    assert_eq!(left, json!([{"name": "eyes", "count": 1, "users": ["U7"]}]), "the person's own stays");
    let revoke = json!({"chat_id": "D7", "message_id": ours});
    for _ in 0..2 {
        assert_eq!(world.perform("revoke", revoke.clone()).await, Ok(Done::default()), "the second finds it gone");
    }
    let entries = person.conversation();
    let bots: Vec<_> = entries.iter().filter(|entry| entry.by == simulators::slack::By::Bot).collect();
    let whats: Vec<_> = bots.iter().map(|entry| entry.what).collect();
    let (edit, add, remove) = (What::Edit, What::Reaction, What::Unreaction);
    assert_eq!(whats, [What::Message, edit, edit, add, add, remove, remove, What::Delete]);
    assert_eq!(bots[0].content["thread_ts"], theirs.as_str());
    assert_eq!(bots[0].content["blocks"][0]["text"]["text"], "*hi*");
}

#[tokio::test]
async fn a_person_is_written_to_by_their_id_and_the_conversation_is_told() {
    let world = World::new().await;
    let person = world.app.dm("U7");
    let theirs = person.say("hello");
    let done = world.perform("send", json!({"chat_id": "U7", "text": "x", "reply_to": theirs})).await.unwrap();
    assert_eq!(done.result, Some(json!({"chat_id": "D7"})));
    assert_eq!(person.answers()[0].content["thread_ts"], theirs.as_str());
}

/// A server of files, some of them odd.
async fn files() -> String {
    use axum::{Router, body::Body, http::StatusCode, response::Redirect, routing::get};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let chunk = |bytes: &'static [u8]| Ok::<_, std::io::Error>(bytes);
    let routes = Router::new()
        .route("/cat.png", get(async || "a picture"))
        .route(
            "/chunked",
            get(async move || Body::from_stream(futures_util::stream::iter([chunk(b"in two "), chunk(b"pieces")]))),
        )
        .route("/empty", get(async || ""))
        .route("/gone", get(async || StatusCode::NOT_FOUND))
        .route("/busy", get(async || StatusCode::SERVICE_UNAVAILABLE))
        .route("/moved", get(async || Redirect::temporary("/cat.png")))
        .route("/round", get(async || Redirect::temporary("/round")));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

#[tokio::test]
async fn a_file_goes_from_its_url_to_the_conversation() {
    let world = World::new().await;
    let person = world.app.dm("U7");
    let theirs = person.say("send me one");
    let from = files().await;
    let data = |path: &str| json!({"chat_id": "U7", "kind": "image", "url": format!("{from}{path}")});
    let mut captioned = data("/cat.png");
    captioned["caption"] = "look".into();
    captioned["thread_id"] = theirs.as_str().into();
    let done = world.perform("send_media", captioned).await.unwrap();
    let answer = person.answers().remove(0);
    assert_eq!((answer.text.as_str(), &answer.content["thread_ts"]), ("look", &json!(theirs)));
    let file = &answer.content["files"][0];
    assert_eq!((&file["name"], &file["size"]), (&json!("cat.png"), &json!(9)));
    assert_eq!(done.result, Some(json!({"file_id": file["id"], "chat_id": "D7"})));
    for (path, size) in [("/chunked", 13), ("/moved", 9)] {
        world.perform("send_media", data(path)).await.unwrap();
        assert_eq!(person.answers().last().unwrap().content["files"][0]["size"], size, "{path}");
    }
    let shown = person.answers().len();
    for (path, reason) in [("/gone", "rejected"), ("/empty", "rejected"), ("/round", "rejected")] {
        let failed = world.perform("send_media", data(path)).await;
        assert!(matches!(failed, Err(Failed::Permanent { reason: told, .. }) if told == reason), "{path}: {failed:?}");
    }
    assert!(matches!(world.perform("send_media", data("/busy")).await, Err(Failed::Retry { .. })));
    assert_eq!(person.answers().len(), shown);
}

#[tokio::test]
async fn a_file_behind_the_wall_is_not_fetched() {
    let world = World::new().await;
    world.app.dm("U7");
    let config = SlackConfig::new(world.simulator.api_url().parse().unwrap());
    let slack = Slack::new(config, crate::media::for_tests(false), Arc::new(SystemClock)).unwrap();
    let sender = slack.sender(&spec_of(&secret_of(&world.app))).unwrap();
    let from = files().await;
    let data = json!({"chat_id": "D7", "kind": "image", "url": format!("{from}/cat.png")});
    let failed = sender.perform(&job("send_media", data), None).await;
    assert!(matches!(failed, Err(Failed::Permanent { reason: "rejected", .. })), "{failed:?}");
    assert_eq!(world.app.stats().requests_of("files.getUploadURLExternal"), 0);
}

#[tokio::test]
async fn what_slack_cannot_do_and_what_makes_no_sense_is_permanent() {
    let world = World::new().await;
    world.app.dm("U7");
    world.app.dm("U8").refuse(Some("is_archived"));
    let text = |chat: &str| json!({"chat_id": chat, "text": "x"});
    for (name, data, reason) in [
        ("group_create", json!({"subject": "s", "participants": ["U7"]}), "unsupported"),
        ("mark_read", json!({"chat_id": "D7", "message_ids": ["1"]}), "unsupported"),
        ("send_location", json!({"chat_id": "D7", "latitude": 1.0, "longitude": 2.0}), "unsupported"),
        ("send", text("C404"), "bad_recipient"),
        ("send", text("D8"), "bad_recipient"),
        ("send", json!({"chat_id": "D7", "text": "x", "parse_mode": "HTML"}), "rejected"),
        ("send", json!({"chat_id": "D7", "text": "x", "edit_message_id": "1.2"}), "rejected"),
        ("send", json!({"chat_id": "D7", "text": "x".repeat(40_001)}), "too_large"),
        ("send_reaction", json!({"chat_id": "D7", "message_id": "1.2", "emoji": "👍"}), "rejected"),
        ("send_media", json!({"chat_id": "D7", "kind": "image", "url": "https://[x"}), "rejected"),
    ] {
        match world.perform(name, data).await {
            Err(Failed::Permanent { reason: told, .. }) => assert_eq!(told, reason, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    world.app.refuse(Some("token_revoked"));
    let revoked = world.perform("send", text("D7")).await;
    assert!(matches!(revoked, Err(Failed::Permanent { reason: "logged_out", .. })), "{revoked:?}");
}

/// Contract: Q8.
#[tokio::test]
async fn a_send_whose_outcome_is_not_known_says_so_and_one_that_was_not_sent_is_tried_again() {
    let world = World::new().await;
    let mut user = 10;
    for (fault, happened) in [
        (Fault::ResetBefore, 0),
        (Fault::ResetAfter, 1),
        (Fault::Malformed, 1),
        (Fault::Page(502), 0),
        (Fault::refuse("internal_error"), 0),
        (Fault::RefuseAfter("fatal_error".into()), 1),
    ] {
        user += 1;
        let person = world.app.dm(&format!("U{user}"));
        let told = format!("{fault:?}");
        world.simulator.fault(On::method("chat.postMessage"), fault, 1);
        let failed = world.perform("send", json!({"chat_id": person.channel(), "text": "x"})).await;
        assert!(matches!(failed, Err(Failed::Ambiguous { .. })), "{told}: {failed:?}");
        assert_eq!(person.answers().len(), happened, "{told}");
    }
    let person = world.app.dm("U7");
    let theirs = person.say("x");
    let react = json!({"chat_id": "D7", "message_id": theirs, "emoji": "eyes"});
    world.simulator.fault(On::method("reactions.add"), Fault::ResetAfter, 1);
    let failed = world.perform("send_reaction", react).await;
    assert!(matches!(failed, Err(Failed::Retry { .. })), "once more shows the same: {failed:?}");
    // A file is on its way for long before anything is shown.
    let media = json!({"chat_id": "D7", "kind": "image", "url": format!("{}/cat.png", files().await)});
    for method in ["files.getUploadURLExternal", "upload"] {
        world.simulator.fault(On::method(method), Fault::ResetAfter, 1);
        let failed = world.perform("send_media", media.clone()).await;
        assert!(matches!(failed, Err(Failed::Retry { .. })), "{method}: {failed:?}");
    }
    world.simulator.fault(On::method("files.completeUploadExternal"), Fault::ResetAfter, 1);
    let failed = world.perform("send_media", media).await;
    assert!(matches!(failed, Err(Failed::Ambiguous { .. })), "{failed:?}");
    world.simulator.outage();
    let failed = world.perform("send", json!({"chat_id": "D7", "text": "x"})).await;
    assert!(matches!(failed, Err(Failed::Retry { after: None, .. })), "{failed:?}");
}

/// Field report R30: a method that must rest holds no other back.
#[tokio::test]
async fn a_429_keeps_its_method_from_being_called_and_no_other() {
    let world = World::new().await;
    let theirs = world.app.dm("U7").say("x");
    world.simulator.fault(On::app(&world.app).and_method("chat.postMessage"), Fault::TooMany(3_000), ALWAYS);
    let sender = world.slack.sender(&spec_of(&secret_of(&world.app))).unwrap();
    for _ in 0..3 {
        let failed = sender.perform(&job("send", json!({"chat_id": "D7", "text": "x"})), None).await;
        let Err(Failed::Retry { after: Some(after), .. }) = failed else { panic!("{failed:?}") };
        assert!(after > Duration::from_secs(2_900));
    }
    assert_eq!(world.app.stats().requests_of("chat.postMessage"), 1, "asked once");
    let react = job("send_reaction", json!({"chat_id": "D7", "message_id": theirs, "emoji": "eyes"}));
    sender.perform(&react, None).await.unwrap();
}

#[tokio::test]
async fn a_conversation_is_written_to_in_bursts_and_then_put_off() {
    let world = World::new().await;
    world.simulator.limit(Some(simulators::slack::Limits { burst: 5.0, ..Default::default() }));
    let person = world.app.dm("U7");
    let sender = world.slack.sender(&spec_of(&secret_of(&world.app))).unwrap();
    let send = job("send", json!({"chat_id": "D7", "text": "x"}));
    let begun = Instant::now();
    for _ in 0..4 {
        sender.perform(&send, None).await.unwrap();
    }
    assert!(begun.elapsed() > Duration::from_millis(800), "the fourth waits for its turn");
    let other = world.slack.sender(&spec_of(&secret_of(&world.app))).unwrap();
    let (first, second) = tokio::join!(sender.perform(&send, None), other.perform(&send, None));
    assert!(first.is_ok(), "{first:?}");
    assert!(matches!(second, Err(Failed::Retry { after: Some(_), .. })), "two senders share a limit: {second:?}");
    assert_eq!(person.answers().len(), 5);
}
