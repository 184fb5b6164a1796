//! Files in, and files that lie here out.

use super::*;

/// Contract: E1.
#[tokio::test]
async fn a_received_file_is_fetched_and_goes_out_again_from_where_it_lies() {
    let world = World::new().await;
    let (_receiving, _stop) = world.connected().await;
    let person = world.app.dm("U7");
    let message = person.send_file("notes.txt", &b"some notes"[..], "read this");
    world.app.wait_for_acks(SOON).await.unwrap();
    let media = world.inbox.media().expect("a file was told");
    let fetch = json!({"chat_id": "D7", "message_id": message, "media": media});
    let stored = world.perform("download_media", fetch.clone()).await.expect("done").result.expect("a result");
    let path = stored["path"].as_str().expect("a path").to_owned();
    assert_eq!(std::fs::read(&path).expect("read"), b"some notes");
    assert_eq!((&stored["size"], &stored["mime_type"]), (&json!(10), &json!("text/plain")));
    let again = world.perform("download_media", fetch).await.expect("done").result.expect("a result");
    assert_eq!(again, stored, "fetched again it is the same file");

    let back = json!({"chat_id": "D7", "kind": "document", "url": format!("file://{path}"), "caption": "yours"});
    world.perform("send_media", back).await.expect("sent");
    let answer = person.answers().remove(0);
    assert_eq!((answer.text.as_str(), &answer.content["files"][0]["size"]), ("yours", &json!(10)));
}

#[tokio::test]
async fn what_is_not_there_or_not_ours_is_refused() {
    let world = World::new().await;
    let person = world.app.dm("U7");
    for media in [json!({"kind": "image"}), json!({"kind": "image", "reference": "F404"})] {
        let fetch = json!({"chat_id": "D7", "message_id": "1", "media": media});
        let failed = world.perform("download_media", fetch).await;
        assert!(matches!(failed, Err(Failed::Permanent { .. })), "{media}: {failed:?}");
    }
    for path in ["/etc/hostname", "/proc/self/environ", "/nowhere"] {
        let send = json!({"chat_id": "D7", "kind": "document", "url": format!("file://{path}")});
        let failed = world.perform("send_media", send).await;
        assert!(matches!(failed, Err(Failed::Permanent { reason: "rejected", .. })), "{path}: {failed:?}");
    }
    assert!(person.answers().is_empty());
}

#[test]
fn a_token_is_shown_to_slack_alone() {
    let api = super::super::api::Api::new(&"http://127.0.0.1:4444/api".parse().unwrap()).unwrap();
    for (address, is_slacks) in [
        ("https://files.slack.com/files-pri/T1-F1/x.png", true),
        ("https://slack.com/x", true),
        ("http://127.0.0.1:4444/files-pri/F1/x", true),
        ("http://files.slack.com/x", false),
        ("https://files.slack.com.evil.test/x", false),
        ("https://evilslack.com/x", false),
        ("http://127.0.0.1:4445/x", false),
    ] {
        assert_eq!(api.is_slacks_own(&address.parse().unwrap()), is_slacks, "{address}");
    }
}
