//! What comes in, as events.

use simulators::whatsapp::{Attachment, Kind};

use super::*;

/// Contract: E1.
#[tokio::test(flavor = "multi_thread")]
async fn texts_replies_reactions_and_files_become_events() {
    let world = World::linked().await;
    let id = world.peer.say(world.owner.number(), "hello").await.expect("sent");
    let message = world.inbox.wait_for_text("hello").await;
    assert_eq!(message.message_id, id);
    assert_eq!(message.chat_type.as_deref(), Some("private"));
    let from = message.from.expect("an author").id;
    assert!(from.starts_with(world.peer.number()) || from.ends_with("@lid"), "{from}");
    world.peer.wait_for_receipt(&id, None, SOON).await.expect("delivered");

    let picture = Attachment::new(Kind::Image, b"a picture".to_vec()).with_caption("look");
    world.peer.attach(world.owner.number(), &picture).await.expect("sent");
    let media = world.inbox.wait_for_text("look").await.media.expect("a file");
    assert_eq!(media.kind, "image");
    assert!(media.extra.expect("keys")["media_key"].is_string());
}

/// Contract: E1, Q9.
#[tokio::test(flavor = "multi_thread")]
async fn what_came_while_nobody_was_there_comes_after_the_login_each_once() {
    let mut world = World::linked().await;
    world.peer.say(world.owner.number(), "first").await.expect("sent");
    world.inbox.wait_for_text("first").await;
    world.close().await;
    for n in 0..20 {
        world.peer.say(world.owner.number(), &format!("late {n}")).await.expect("sent");
    }
    world.again();
    world.inbox.wait_for_text("late 19").await;
    let late: Vec<String> = world.inbox.texts().into_iter().filter(|text| text.starts_with("late")).collect();
    assert_eq!(late, (0..20).map(|n| format!("late {n}")).collect::<Vec<_>>());
    world
        .server
        .wait_for("all acknowledged", SOON, || (world.server.waiting_for(&world.device) == 0).then_some(()))
        .await
        .expect("acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_groups_messages_come_with_their_author() {
    let world = World::linked().await;
    let third = world.server.phone("4915100000003");
    let group = world.peer.create_group("friends", &[&world.owner, &third]);
    third.say(&group, "to all").await.expect("sent");
    let message = world.inbox.wait_for_text("to all").await;
    assert_eq!(message.chat_id, group);
    assert_eq!(message.chat_type.as_deref(), Some("group"));
}

/// What the account's owner writes on the phone is told, and is nobody's to answer.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_owner_writes_on_the_phone_is_no_message_to_answer() {
    let world = World::linked().await;
    world.owner.say(world.peer.number(), "from the phone").await.expect("sent");
    let inbox = &world.inbox;
    inbox.wait_for("told", |inbox| (inbox.others("message.sent_elsewhere") == 1).then_some(())).await;
    assert!(inbox.texts().is_empty());
}
