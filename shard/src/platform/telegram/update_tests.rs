//! Each kind of update, and what can be wrong with one.

use serde_json::json;

use super::*;
use crate::event::{Location, Message};

fn channel() -> ChannelId {
    "00000000000000000000000000000001".parse().unwrap()
}

fn read_all(updates: Value) -> Batch {
    let raw = serde_json::value::to_raw_value(&updates).unwrap();
    read(channel(), Timestamp::UNIX_EPOCH, &raw).unwrap()
}

fn one(kind: &str, content: Value) -> Event {
    let mut batch = read_all(json!([{ "update_id": 5, kind: content }]));
    assert_eq!((batch.events.len(), batch.next_offset), (1, Some(6)));
    batch.events.remove(0)
}

fn private(fields: Value) -> Value {
    let mut message = json!({
        "message_id": 11, "date": 1_700_000_000,
        "from": {"id": 7, "is_bot": false, "first_name": "Ann", "last_name": "Lee", "username": "ann"},
        "chat": {"id": 7, "type": "private", "first_name": "Ann"},
    });
    message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    message
}

fn received(fields: Value) -> Message {
    match one("message", private(fields)).kind {
        EventKind::MessageReceived(message) => message,
        kind => panic!("{kind:?}"),
    }
}

#[test]
fn a_text_is_told_with_its_author_and_without_its_raw_form() {
    let event = one("message", private(json!({"text": "hello"})));
    assert_eq!(event.conversation.as_deref(), Some("7"));
    assert_eq!(event.occurred_at.as_second(), 1_700_000_000);
    let expected = Event::new(
        channel(),
        PlatformKind::Telegram,
        Some("7".into()),
        event.occurred_at,
        "update/5",
        event.kind.clone(),
    );
    assert_eq!(event.id, expected.id);
    let EventKind::MessageReceived(message) = event.kind else { panic!("a message") };
    assert_eq!((message.message_id.as_str(), message.text.as_deref()), ("11", Some("hello")));
    assert_eq!((message.chat_id.as_str(), message.chat_type.as_deref()), ("7", Some("private")));
    let author = message.from.unwrap();
    assert_eq!((author.id.as_str(), author.name.as_deref()), ("7", Some("Ann Lee")));
    assert_eq!(author.username.as_deref(), Some("ann"));
    assert_eq!(message.raw, None);
}

#[test]
fn what_has_no_place_in_a_message_is_told_in_its_raw_form() {
    let entities = json!([{"type": "bold", "offset": 0, "length": 5}]);
    let message = received(json!({"text": "hello", "entities": entities}));
    assert_eq!(message.raw.unwrap()["entities"], entities);
    let contact = json!({"phone_number": "1", "first_name": "Bo"});
    let message = received(json!({"contact": contact}));
    assert_eq!((message.text, message.raw.unwrap()["contact"].clone()), (None, contact));
}

#[test]
fn each_kind_of_file_is_told() {
    let file = |extra: Value| {
        let mut file = json!({"file_id": "F", "file_unique_id": "U", "file_size": 12});
        file.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        file
    };
    let named = json!({"file_name": "n", "mime_type": "a/b"});
    let moving = |name: Value| {
        let mut moving = file(json!({"width": 1, "height": 1, "duration": 1}));
        moving.as_object_mut().unwrap().extend(name.as_object().unwrap().clone());
        moving
    };
    let sticker = json!({"width": 1, "height": 1, "type": "regular", "is_animated": false, "is_video": false});
    let sound = json!({"duration": 1, "file_name": "n", "mime_type": "a/b"});
    for (field, content, kind) in [
        ("video", moving(named.clone()), "video"),
        ("animation", moving(named.clone()), "animation"),
        ("audio", file(sound), "audio"),
        ("voice", file(json!({"duration": 1, "mime_type": "audio/ogg"})), "voice"),
        ("document", file(named), "document"),
        ("video_note", file(json!({"length": 1, "duration": 1})), "video_note"),
        ("sticker", file(sticker), "sticker"),
    ] {
        let message = received(json!({ field: content }));
        let media = message.media.unwrap_or_else(|| panic!("{field}: {:?}", message.raw));
        assert_eq!((media.kind.as_str(), media.reference.as_str(), media.size), (kind, "F", Some(12)), "{field}");
        if matches!(field, "video" | "audio" | "document" | "animation") {
            assert_eq!((media.mime_type.as_deref(), media.file_name.as_deref()), (Some("a/b"), Some("n")), "{field}");
        }
    }
}

#[test]
fn of_a_photo_the_largest_size_is_told() {
    let size = |id: &str, side: u32| json!({"file_id": id, "file_unique_id": id, "width": side, "height": side});
    let message = received(json!({"photo": [size("s", 90), size("l", 800), size("m", 320)], "caption": "look"}));
    let media = message.media.unwrap();
    assert_eq!((media.kind.as_str(), media.reference.as_str(), media.size), ("image", "l", None));
    assert_eq!(message.text.as_deref(), Some("look"));
}

#[test]
fn a_place_is_told_with_its_name() {
    let place = json!({"latitude": 1.5, "longitude": -2.25});
    let bare = Location { latitude: 1.5, longitude: -2.25, title: None, address: None };
    assert_eq!(received(json!({"location": place})).location, Some(bare.clone()));
    let venue = json!({"location": place, "title": "Café", "address": "1 Way"});
    let named = Location { title: Some("Café".into()), address: Some("1 Way".into()), ..bare };
    assert_eq!(received(json!({"location": place, "venue": venue})).location, Some(named));
}

#[test]
fn a_topic_is_told_as_thread_and_its_root_is_no_reply() {
    let chat = json!({"id": -1001, "type": "supergroup", "title": "G", "is_forum": true});
    let root =
        json!({"message_id": 3, "date": 1, "chat": chat, "forum_topic_created": {"name": "t", "icon_color": 7322096}});
    let topic =
        json!({"chat": chat, "message_thread_id": 3, "is_topic_message": true, "reply_to_message": root, "text": "x"});
    let message = received(topic.clone());
    assert_eq!((message.thread_id.as_deref(), message.reply_to), (Some("3"), None));
    assert_eq!((message.chat_id.as_str(), message.chat_type.as_deref()), ("-1001", Some("group")));
    let mut reply = topic;
    reply["reply_to_message"]["message_id"] = 9.into();
    assert_eq!(received(reply).reply_to.as_deref(), Some("9"));
}

#[test]
fn edits_and_channel_posts_are_told() {
    let edited = one("edited_message", private(json!({"text": "new", "edit_date": 1_700_000_009})));
    assert_eq!(edited.occurred_at.as_second(), 1_700_000_009);
    assert!(matches!(&edited.kind, EventKind::MessageEdited(message) if message.text.as_deref() == Some("new")));
    let chat = json!({"id": -1002, "type": "channel", "title": "News", "username": "news"});
    let post = json!({"message_id": 4, "date": 1, "chat": chat, "sender_chat": chat, "text": "x"});
    let EventKind::MessageReceived(message) = one("channel_post", post).kind else { panic!("a message") };
    assert_eq!(message.chat_type.as_deref(), Some("channel"));
    assert_eq!(message.from.unwrap().name.as_deref(), Some("News"));
}

#[test]
fn reactions_and_presses_are_told() {
    let reaction = json!({
        "chat": {"id": -5, "type": "group", "title": "G"}, "message_id": 8, "date": 9,
        "user": {"id": 7, "is_bot": false, "first_name": "Ann"}, "old_reaction": [],
        "new_reaction": [{"type": "emoji", "emoji": "👍"}, {"type": "custom_emoji", "custom_emoji_id": "77"}, {"type": "paid"}],
    });
    let event = one("message_reaction", reaction);
    assert_eq!((event.conversation.as_deref(), event.occurred_at.as_second()), (Some("-5"), 9));
    let EventKind::Reaction(reaction) = event.kind else { panic!("a reaction") };
    assert_eq!(reaction.emoji, ["👍", "custom:77", "paid"]);
    assert_eq!((reaction.message_id.as_str(), reaction.from.unwrap().id.as_str()), ("8", "7"));

    let query = json!({
        "id": "Q", "from": {"id": 7, "is_bot": false, "first_name": "Ann"}, "message": private(json!({"text": "?"})),
        "chat_instance": "c", "data": "yes",
    });
    let event = one("callback_query", query);
    assert_eq!(event.conversation.as_deref(), Some("7"));
    let EventKind::Interaction(press) = event.kind else { panic!("an interaction") };
    assert_eq!((press.interaction_id.as_str(), press.interaction.as_str()), ("Q", "callback"));
    assert_eq!((press.message_id.as_deref(), press.value.as_deref()), (Some("11"), Some("yes")));
    assert_eq!(press.raw, None);
}

/// Contract: E1.
#[test]
fn everything_else_is_told_in_the_platforms_own_words() {
    let joined = private(json!({"new_chat_members": [{"id": 9, "is_bot": false, "first_name": "Bo"}]}));
    let vote = json!({"poll_id": "1", "user": {"id": 7, "is_bot": false, "first_name": "A"}, "option_ids": [0]});
    for (kind, content, conversation) in [
        ("message", joined, Some("7")),
        ("poll_answer", vote, None),
        ("business_message", private(json!({"text": "x"})), Some("7")),
        ("a_kind_of_next_year", json!({"chat": {"id": -3}, "new": true}), Some("-3")),
        ("a_kind_without_content", json!(17), None),
    ] {
        let event = one(kind, content.clone());
        assert_eq!(event.conversation.as_deref(), conversation, "{kind}");
        let EventKind::Other(other) = event.kind else { panic!("{kind} is {:?}", event.kind) };
        assert_eq!((other.update.as_str(), &other.raw[kind]), (kind, &content));
    }
}

/// Contract: E1.
#[test]
fn an_update_that_cannot_be_read_spoils_no_other() {
    let deep = "[".repeat(500) + &"]".repeat(500);
    // The second makes a reader of the library panic: a reaction of nobody.
    let text = format!(
        r#"[{{"update_id":1,"message":{{"message_id":"no number"}}}},
            {{"update_id":2,"message_reaction":{{"chat":{{"id":1,"type":"private"}},"message_id":1,"date":1,"old_reaction":[],"new_reaction":[]}}}},
            {{"update_id":3,"message":{}}},
            {{"update_id":4}}, 17, {{"message":{}}}, {{"update_id":"x","message":{}}},
            {{"update_id":4,"strange":{deep}}}]"#,
        private(json!({"text": "fine"})),
        private(json!({"text": "no id"})),
        private(json!({"text": "bad id"})),
    );
    let raw = RawValue::from_string(text).unwrap();
    let batch = read(channel(), Timestamp::UNIX_EPOCH, &raw).unwrap();
    assert_eq!((batch.events.len(), batch.next_offset), (8, Some(5)));
    let fine = batch.events.iter().filter(|event| matches!(event.kind, EventKind::MessageReceived(_))).count();
    assert_eq!(fine, 3, "those that can be read are read, an id or not");
    let mut ids: Vec<_> = batch.events.iter().map(|event| event.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 7, "two tell of update 4, in the same words of ours");
}

#[test]
fn an_answer_that_is_no_list_is_refused() {
    let raw = serde_json::value::to_raw_value(&json!({"update_id": 1})).unwrap();
    assert!(read(channel(), Timestamp::UNIX_EPOCH, &raw).is_none());
}
