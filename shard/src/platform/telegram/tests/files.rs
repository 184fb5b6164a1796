//! Files in, and files that lie here out.

use super::*;

/// Contract: E1.
#[tokio::test]
async fn a_received_file_is_fetched_and_goes_out_again_from_where_it_lies() {
    let world = World::new().await;
    let (_receiving, _stop) = world.receive();
    let user = world.bot.user(7);
    let message = user.send_file("document", "notes.txt", &b"some notes"[..], Some("read this")).message_id.to_string();
    world.bot.wait_for_confirmed(SOON).await.unwrap();
    let media = world.inbox.media().expect("a file was told");
    let fetch = json!({"chat_id": "7", "message_id": message, "media": media});
    let stored = world.perform("download_media", fetch.clone()).await.expect("done").result.expect("a result");
    let path = stored["path"].as_str().expect("a path").to_owned();
    assert_eq!(std::fs::read(&path).expect("read"), b"some notes");
    assert_eq!(stored["size"], 10);
    let again = world.perform("download_media", fetch).await.expect("done").result.expect("a result");
    assert_eq!(again, stored, "fetched again it is the same file");

    let back = json!({"chat_id": "7", "kind": "document", "url": format!("file://{path}"), "caption": "yours"});
    world.perform("send_media", back).await.expect("sent");
    let answer = user.answers().remove(0);
    assert_eq!((&answer.content["caption"], &answer.content["document"]["file_size"]), (&json!("yours"), &json!(10)));
}

#[tokio::test]
async fn what_is_not_there_or_not_ours_is_refused() {
    let world = World::new().await;
    world.bot.user(7).say("hello");
    let fetch = |media: serde_json::Value| json!({"chat_id": "7", "message_id": "1", "media": media});
    for (media, reason) in [
        (json!({"kind": "image"}), "rejected"),
        (json!({"kind": "image", "reference": "no such file"}), "rejected"),
        (json!({"kind": "image", "reference": "x", "size": 1_u64 << 40}), "too_large"),
    ] {
        let failed = world.perform("download_media", fetch(media.clone())).await;
        assert!(matches!(failed, Err(Failed::Permanent { reason: is, .. }) if is == reason), "{media}: {failed:?}");
    }
    for path in ["/etc/hostname", "/proc/self/environ", "/nowhere"] {
        let send = json!({"chat_id": "7", "kind": "document", "url": format!("file://{path}")});
        let failed = world.perform("send_media", send).await;
        assert!(matches!(failed, Err(Failed::Permanent { reason: "rejected", .. })), "{path}: {failed:?}");
    }
    assert!(world.bot.user(7).answers().is_empty());
}
