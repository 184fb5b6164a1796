//! Baileys on the other side of the conversation: what it encrypts we read, and what we encrypt it reads.

use serde_json::json;

use crate::{
    baileys::{Baileys, installed},
    support::{signal, wait_for},
    world::{SOON, a_box, of},
};

/// Contract: Q8, C4, E1, E2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_of_baileys_and_ours_talk_across_a_death() {
    if !installed() {
        return;
    }
    let world = a_box(1).await;
    let auth = tempfile::tempdir().expect("a directory");
    let mut baileys = Baileys::start(&world.server, auth.path());
    baileys.link(&world.peer);
    let mut daemon = world.home.start();
    daemon.wait_ready();
    world.link();
    let us = world.owner.jid();
    for n in 0..3 {
        let text = format!("good morning {n}");
        baileys.say(&us, &text);
        baileys.hears(&text);
    }

    signal(daemon.pid(), 9);
    daemon.wait_exit(SOON);
    // It comes while nobody is there, and is opened by the ratchet that is on the disk.
    baileys.say(&us, "still there?");
    daemon = world.home.start();
    daemon.wait_ready();
    baileys.hears("still there?");

    let group = baileys.command(json!({"do": "create", "subject": "friends", "members": [us]}));
    let group = group.as_str().expect("a group");
    baileys.say(group, "to all");
    assert_eq!(baileys.hears("to all")["chat"], group, "the echo is in the group");

    let bytes = "YSBwaWN0dXJl";
    let id = baileys.command(json!({"do": "image", "to": us, "bytes": bytes, "caption": "look"}));
    let media = wait_for("the picture's event", SOON, || {
        let told = of(&world.events, "message.received").into_iter().find(|event| event["data"]["message_id"] == id)?;
        Some(told["data"]["media"].clone())
    });
    world.job("fetch", "download_media", &json!({"chat_id": world.peer.jid(), "message_id": id, "media": media}));
    let stored = world.done("fetch")["data"]["result"]["path"].as_str().expect("a path").to_owned();
    assert_eq!(std::fs::read(&stored).expect("read"), b"a picture");
    let told = wait_for("the stored file", SOON, || of(&world.events, "media.stored").pop());
    assert_eq!((&told["data"]["message_id"], &told["data"]["path"]), (&id, &json!(stored)));
    world.job("face", "fetch_avatar", &json!({"chat_id": world.peer.jid()}));
    let told = wait_for("the picture", SOON, || of(&world.events, "avatar.stored").pop());
    assert_eq!(told["data"]["status"], "none");

    let back =
        json!({"chat_id": world.peer.jid(), "kind": "image", "url": format!("file://{stored}"), "caption": "yours"});
    world.job("back", "send_media", &back);
    assert_eq!(baileys.hears("yours")["bytes"], bytes);

    assert!(of(&world.events, "message.undecryptable").is_empty(), "{:?}", world.events);
    assert!(world.peer.unreadable().is_empty(), "{:?}", world.peer.unreadable());
    assert!(daemon.terminate().success());
    baileys.leave();
}
