//! Jobs, seen by who gets what they send.

use axum::{Router, routing::get};
use simulators::whatsapp::{Attachment, End, Fault, Kind, On};

use super::*;

async fn file_host(bytes: &'static [u8], kind: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listening");
    let address = listener.local_addr().expect("an address");
    let routes = Router::new().route("/file", get(move || async move { ([("content-type", kind)], bytes) }));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}/file")
}

/// Contract: Q1, Q8.
#[tokio::test(flavor = "multi_thread")]
async fn texts_places_reactions_edits_and_deletions_arrive() {
    let world = World::linked().await;
    let chat = world.peer.number();
    let text = job("text", "send", json!({"chat_id": chat, "text": "hello"}));
    let done = world.perform(&text).await.expect("done");
    let shown = world.peer.wait_for_text("hello", SOON).await.expect("shown");
    assert_eq!(done.provider_id.as_deref(), Some(shown.id.as_str()));
    assert_eq!(done.provider_id, world.whatsapp.provider_id(&text));

    let reply = json!({"chat_id": chat, "text": "and again", "reply_to": shown.id, "mentions": [chat]});
    world.perform(&job("reply", "send", reply)).await.expect("done");
    let again = world.peer.wait_for_text("and again", SOON).await.expect("shown");
    let context = again.message.extended_text_message.as_option().expect("a context").context_info.as_option().cloned();
    assert_eq!(context.and_then(|context| context.stanza_id), Some(shown.id.clone()));

    let place = json!({"chat_id": chat, "latitude": 52.5, "longitude": 13.4, "title": "here"});
    world.perform(&job("place", "send_location", place)).await.expect("done");
    let seen = world.peer.wait_for("a place", SOON, |message| message.message.location_message.as_option().map(|_| ()));
    seen.await.expect("shown");

    let reaction = json!({"chat_id": chat, "message_id": shown.id, "emoji": "👍", "from_me": true});
    world.perform(&job("reaction", "send_reaction", reaction)).await.expect("done");
    let edit = json!({"chat_id": chat, "text": "changed", "edit_message_id": shown.id});
    world.perform(&job("edit", "send", edit)).await.expect("done");
    world.perform(&job("gone", "revoke", json!({"chat_id": chat, "message_id": shown.id}))).await.expect("done");
    let incoming = world.peer.say(world.owner.number(), "read me").await.expect("sent");
    world.inbox.wait_for_text("read me").await;
    let read = json!({"chat_id": chat, "message_ids": [incoming]});
    world.perform(&job("read", "mark_read", read)).await.expect("done");
    world.peer.wait_for_receipt(&incoming, Some("read"), SOON).await.expect("read");
}

/// Contract: Q8. Field report R33.
#[tokio::test(flavor = "multi_thread")]
async fn a_send_whose_answer_is_lost_is_sent_again_under_the_same_id_and_shown_once() {
    let mut world = World::linked().await;
    let text = job("once", "send", json!({"chat_id": world.peer.number(), "text": "only once"}));
    world.server.fault(On::from_device("message"), Fault::EndAfter(End::Cut), 1);
    let first = world.perform(&text).await;
    assert!(matches!(first, Err(Failed::Ambiguous { .. } | Failed::NotConnected)), "{first:?}");
    world.ended().await;
    let times = world.inbox.times_connected();
    world.again();
    world.inbox.wait_connected(times + 1).await;
    let done = world.perform(&text).await.expect("done");
    let id = done.provider_id.expect("an id");
    assert_eq!(world.server.sent_by(&world.device).iter().filter(|sent| **sent == id).count(), 2, "on the wire twice");
    world.peer.wait_for_text("only once", SOON).await.expect("shown");
    assert_eq!(world.peer.times_shown("only once"), 1);
}

/// Contract: Q4.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_server_ends_or_postpones_a_send() {
    let world = World::linked().await;
    let send = |id: &str| job(id, "send", json!({"chat_id": world.peer.number(), "text": id}));
    world.server.fault(On::from_device("message"), Fault::Refuse(463), 1);
    let refused = world.perform(&send("cold")).await;
    assert!(matches!(refused, Err(Failed::Permanent { reason: "rejected", .. })), "{refused:?}");
    world.server.fault(On::from_device("message"), Fault::Refuse(429), 1);
    let later = world.perform(&send("much")).await;
    assert!(matches!(later, Err(Failed::Retry { after: Some(_), .. })), "{later:?}");
    let nobody = job("nobody", "send", json!({"chat_id": "somebody", "text": "x"}));
    assert!(matches!(world.perform(&nobody).await, Err(Failed::Permanent { reason: "bad_recipient", .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_goes_out_by_its_url_and_another_comes_in() {
    let world = World::linked().await;
    let chat = world.peer.number();
    let url = file_host(b"some bytes", "image/jpeg").await;
    let media = json!({"chat_id": chat, "kind": "image", "url": url, "caption": "look"});
    world.perform(&job("picture", "send_media", media)).await.expect("done");
    let shown = world
        .peer
        .wait_for("a picture", SOON, |message| message.message.image_message.as_option().map(|_| message.clone()));
    let shown = shown.await.expect("shown");
    assert_eq!(world.peer.open(&shown).expect("opened"), b"some bytes");

    let attached = Attachment::new(Kind::Document, b"a document".to_vec()).with_caption("read this");
    let id = world.peer.attach(world.owner.number(), &attached).await.expect("sent");
    let media = world.inbox.wait_for_text("read this").await.media.expect("a file");
    let fetch = |id: &str, message: &str| {
        job(id, "download_media", json!({"chat_id": chat, "message_id": message, "media": media}))
    };
    let stored = world.perform(&fetch("fetch", &id)).await.expect("done").result.expect("a result");
    assert_eq!(std::fs::read(stored["path"].as_str().expect("a path")).expect("read"), b"a document");

    // Gone from the servers: the phone gives it again, or can't.
    world.server.expire_all_media();
    let again = world.perform(&fetch("again", &id)).await.expect("done").result.expect("a result");
    assert_eq!(again["sha256"], stored["sha256"]);
    world.server.expire_all_media();
    world.owner.lose_media(true);
    let gone = world.perform(&fetch("gone", &id)).await;
    assert!(matches!(gone, Err(Failed::Permanent { .. })), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_picture_is_stored_hidden_or_not_there() {
    let world = World::linked().await;
    let fetch = |id: &str| job(id, "fetch_avatar", json!({"chat_id": world.peer.number()}));
    let status = |done: super::super::super::Done| done.result.expect("a result")["status"].clone();
    assert_eq!(status(world.perform(&fetch("none")).await.expect("done")), "none");
    world.peer.set_picture(b"a face");
    let done = world.perform(&fetch("there")).await.expect("done");
    let path = done.result.as_ref().expect("a result")["path"].as_str().expect("a path").to_owned();
    assert_eq!(std::fs::read(path).expect("read"), b"a face");
    assert_eq!(status(done), "stored");
    world.peer.hide_picture();
    assert_eq!(status(world.perform(&fetch("hidden")).await.expect("done")), "hidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_made_changed_written_to_and_left() {
    let world = World::linked().await;
    let third = world.server.phone("4915100000003");
    let create = json!({"subject": "friends", "participants": [world.peer.number()]});
    let made = world.perform(&job("make", "group_create", create)).await.expect("done");
    let group = made.provider_id.expect("a group");
    let on = |id: &str, name: &str, extra: Value| {
        let mut data = json!({"group_id": group});
        for (key, value) in extra.as_object().expect("an object") {
            data[key] = value.clone();
        }
        job(id, name, data)
    };
    world.perform(&on("name", "group_update_subject", json!({"subject": "best friends"}))).await.expect("done");
    world.perform(&on("about", "group_update_description", json!({"description": "all of them"}))).await.expect("done");
    let people = json!({"participants": [third.number()]});
    world.perform(&on("add", "group_add_participants", people.clone())).await.expect("done");
    world.perform(&on("promote", "group_promote", people.clone())).await.expect("done");
    world.perform(&on("demote", "group_demote", people.clone())).await.expect("done");
    let text = job("hello", "send", json!({"chat_id": group, "text": "hello all"}));
    world.perform(&text).await.expect("done");
    world.peer.wait_for_text("hello all", SOON).await.expect("shown");
    third.wait_for_text("hello all", SOON).await.expect("shown");
    let found = world.perform(&on("fetch", "group_fetch", json!({}))).await.expect("done").result.expect("a result");
    assert_eq!(found["subject"], "best friends");
    assert_eq!(found["participants"].as_array().map(Vec::len), Some(3), "{found}");
    let link =
        world.perform(&on("link", "group_invite_link", json!({}))).await.expect("done").result.expect("a result");
    assert!(link["link"].is_string(), "{link}");
    world.perform(&on("remove", "group_remove_participants", people)).await.expect("done");
    world.perform(&on("leave", "group_leave", json!({}))).await.expect("done");
}
