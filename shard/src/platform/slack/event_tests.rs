//! Each payload, as the platform writes it, and what it comes to.

use serde_json::json;

use super::*;

fn channel() -> ChannelId {
    "00000000000000000000000000000001".parse().unwrap()
}

fn me() -> Me {
    Me::of(&json!({"user_id": "UBOT", "bot_id": "BBOT"}))
}

fn told_as(kind: &str, payload: Value) -> Option<Event> {
    let envelope = Envelope { id: "e1".into(), kind: kind.into(), payload };
    read(channel(), &me(), Timestamp::UNIX_EPOCH, &envelope)
}

fn event(event: Value) -> Option<Event> {
    told_as("events_api", json!({"token": "secret-of-old", "api_app_id": "A1", "event_id": "Ev1", "event": event}))
}

fn said(fields: Value) -> Value {
    let mut event = json!({"type": "message", "user": "U7", "channel": "C1", "channel_type": "channel", "ts": "1700000000.000100",
        "event_ts": "1700000000.000100", "text": "hi &amp; <https://e.org>"});
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    event
}

fn message(event: Option<Event>) -> crate::event::Message {
    match event.map(|event| event.kind) {
        Some(EventKind::MessageReceived(message) | EventKind::MessageEdited(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_has_its_place_its_author_and_its_time() {
    let told =
        event(said(json!({"thread_ts": "1699999999.000001", "user_profile": {"display_name": "Ann", "name": "ann"}})))
            .unwrap();
    assert_eq!((told.conversation.as_deref(), told.occurred_at.as_microsecond()), (Some("C1"), 1_700_000_000_000_100));
    let message = message(Some(told));
    assert_eq!((message.message_id.as_str(), message.chat_type.as_deref()), ("1700000000.000100", Some("channel")));
    assert_eq!(
        message.text.as_deref(),
        Some("hi &amp; <https://e.org>"),
        "in the platform's own form, as it is sent back"
    );
    assert_eq!(message.thread_id.as_deref(), Some("1699999999.000001"));
    let from = message.from.unwrap();
    assert_eq!(
        (from.id.as_str(), from.name.as_deref(), from.username.as_deref(), from.is_bot),
        ("U7", Some("Ann"), Some("ann"), false)
    );
    assert_eq!(message.raw, None);
}

#[test]
fn where_a_message_is_follows_from_the_platforms_word_or_the_id() {
    let kind = |fields: Value| message(event(said(fields))).chat_type.unwrap();
    assert_eq!(kind(json!({"channel_type": "im"})), "private");
    assert_eq!(kind(json!({"channel_type": "mpim"})), "group");
    assert_eq!(kind(json!({"channel_type": "group"})), "channel", "a private channel");
    assert_eq!(kind(json!({"channel_type": null, "channel": "D1"})), "private");
    assert_eq!(kind(json!({"channel_type": null})), "channel");
}

#[test]
fn what_has_no_word_of_ours_is_told_in_the_platforms_own() {
    let rich = json!({"blocks": [{"type": "rich_text"}]});
    assert_eq!(message(event(said(rich))).raw, None, "what a person types");
    for fields in
        [json!({"blocks": [{"type": "section"}]}), json!({"attachments": []}), json!({"metadata": {"event_type": "x"}})]
    {
        assert!(message(event(said(fields.clone()))).raw.is_some(), "{fields}");
    }
}

#[test]
fn a_file_has_its_kind_its_reference_and_where_it_is() {
    let file =
        json!({"id": "F1", "name": "cat.png", "mimetype": "image/png", "size": 7, "url_private": "https://files/F1"});
    let first = message(event(said(json!({"subtype": "file_share", "files": [file]})))).media.unwrap();
    assert_eq!((first.kind.as_str(), first.reference.as_str(), first.size), ("image", "F1", Some(7)));
    assert_eq!(first.extra, Some(json!({"url": "https://files/F1"})));
    let voice = json!({"id": "F2", "subtype": "slack_audio", "mimetype": "audio/mp4"});
    let two = message(event(said(json!({"subtype": "file_share", "files": [voice, file]}))));
    assert_eq!(two.media.unwrap().kind, "voice");
    assert!(two.raw.is_some(), "the second one is only there");
    let gone = message(event(said(json!({"subtype": "file_share", "files": [{"id": "F3", "mode": "tombstone"}]}))));
    assert_eq!(gone.media, None);
}

#[test]
fn edits_previews_and_deletions_are_told_apart() {
    let changed = |message: Value, before: Value| {
        event(json!({"type": "message", "subtype": "message_changed", "channel": "C1", "ts": "5.0", "event_ts": "5.0",
            "message": message, "previous_message": before}))
    };
    let (old, new) = (
        json!({"user": "U7", "ts": "1.0", "text": "a"}),
        json!({"user": "U7", "ts": "1.0", "text": "b", "edited": {"ts": "5.0"}}),
    );
    let edited = changed(new, old.clone()).unwrap();
    assert_eq!((edited.kind.name(), edited.occurred_at.as_second()), ("message.edited", 5));
    assert_eq!(message(Some(edited)).message_id, "1.0");
    let preview = changed(json!({"user": "U7", "ts": "1.0", "text": "a", "attachments": [1]}), old.clone()).unwrap();
    assert_eq!(preview.kind.name(), "platform.other");
    let tombstone =
        changed(json!({"subtype": "tombstone", "user": "USLACKBOT", "ts": "1.0", "text": "deleted"}), old.clone());
    let gone = EventKind::Revoked(MessageRef { chat_id: "C1".into(), message_id: "1.0".into() });
    assert_eq!(tombstone.unwrap().kind, gone);
    let deleted = json!({"type": "message", "subtype": "message_deleted", "channel": "C1", "ts": "6.0", "deleted_ts": "1.0", "previous_message": old});
    assert_eq!(event(deleted).unwrap().kind, gone);
}

#[test]
fn what_the_bot_itself_did_is_left_out_and_other_bots_are_told() {
    for own in [
        json!({"user": "UBOT"}),
        json!({"user": "U9", "bot_id": "BBOT"}),
        json!({"user": null, "subtype": "bot_message", "bot_id": "BBOT"}),
    ] {
        assert_eq!(event(said(own)), None);
    }
    for subtype in ["message_changed", "message_deleted"] {
        let own = json!({"user": "UBOT", "ts": "1.0", "text": "b", "edited": {"ts": "2.0"}});
        let before = json!({"user": "UBOT", "ts": "1.0", "text": "a"});
        let change = json!({"type": "message", "subtype": subtype, "channel": "C1", "ts": "5.0", "deleted_ts": "1.0", "message": own, "previous_message": before});
        assert_eq!(event(change), None, "{subtype}");
    }
    assert_eq!(
        event(
            json!({"type": "reaction_added", "user": "UBOT", "reaction": "eyes", "item": {"channel": "C1", "ts": "1.0"}})
        ),
        None
    );
    let other =
        message(event(said(json!({"user": null, "subtype": "bot_message", "bot_id": "B9", "username": "deploys"}))));
    let from = other.from.unwrap();
    assert_eq!((from.id.as_str(), from.name.as_deref(), from.is_bot), ("B9", Some("deploys"), true));
}

#[test]
fn a_reaction_says_which_came_or_went() {
    let reaction = |kind: &str| {
        let told = event(
            json!({"type": kind, "user": "U7", "reaction": "eyes", "event_ts": "9.5", "item": {"type": "message", "channel": "C1", "ts": "1.0"}}),
        );
        match told.unwrap().kind {
            EventKind::Reaction(reaction) => (reaction.message_id, reaction.emoji, reaction.removed),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reaction("reaction_added"), ("1.0".into(), vec!["eyes".into()], None));
    assert_eq!(reaction("reaction_removed"), ("1.0".into(), vec![], Some("eyes".into())));
    let on_a_file = event(
        json!({"type": "reaction_added", "user": "U7", "reaction": "eyes", "item": {"type": "file", "file": "F1"}}),
    );
    assert_eq!(on_a_file.unwrap().kind.name(), "platform.other");
}

#[test]
fn buttons_forms_and_commands_are_interactions_without_the_token_of_old() {
    let press = json!({"type": "block_actions", "token": "secret-of-old", "trigger_id": "T.1", "user": {"id": "U7", "username": "ann"},
        "channel": {"id": "C1"}, "container": {"message_ts": "1.0", "channel_id": "C1"}, "response_url": "https://hooks/1",
        "actions": [{"action_id": "go", "value": "yes", "action_ts": "3.0"}]});
    let form = json!({"type": "view_submission", "trigger_id": "T.2", "user": {"id": "U7"}, "view": {"id": "V1", "callback_id": "order"}});
    let command = json!({"token": "secret-of-old", "command": "/do", "text": "it now", "trigger_id": "T.3", "user_id": "U7", "user_name": "ann", "channel_id": "C1"});
    for (kind, payload, interaction, value, chat) in [
        ("interactive", press, "block_actions", "yes", Some("C1")),
        ("interactive", form, "view_submission", "order", None),
        ("slash_commands", command, "slash_command", "/do it now", Some("C1")),
    ] {
        let told = told_as(kind, payload).unwrap();
        assert!(!serde_json::to_string(&told).unwrap().contains("secret-of-old"));
        let EventKind::Interaction(told) = told.kind else { panic!("{told:?}") };
        assert_eq!(
            (told.interaction.as_str(), told.value.as_deref(), told.chat_id.as_deref()),
            (interaction, Some(value), chat)
        );
        assert_eq!(told.from.unwrap().id, "U7");
    }
}

/// Field reports R14, R15: known by the event's own id, not by its envelope's.
#[test]
fn the_same_thing_told_again_is_the_same_event() {
    let with = |event_id: &str, kind: &str, envelope: &str| {
        let payload = json!({"event_id": event_id, "event": said(json!({"type": kind}))});
        let envelope = Envelope { id: envelope.into(), kind: "events_api".into(), payload };
        read(channel(), &me(), Timestamp::UNIX_EPOCH, &envelope).unwrap().id
    };
    let first = with("Ev1", "message", "e1");
    assert_eq!(first, with("Ev1", "message", "e2"), "a retry");
    assert_eq!(first, with("Ev2", "app_mention", "e3"), "the same message as a mention");
    let other = |id: &str| told_as("events_api", json!({"event_id": id, "event": {"type": "team_join"}})).unwrap().id;
    assert_eq!(other("Ev1"), other("Ev1"));
    assert_ne!(other("Ev1"), other("Ev2"));
}

#[test]
fn nothing_is_dropped_for_having_no_form() {
    for payload in
        [json!(null), json!([1]), json!({"event": {"type": "message"}}), json!({"event": {"type": 7}}), said(json!({}))]
    {
        for kind in ["events_api", "interactive", "slash_commands", "news"] {
            let told = told_as(kind, payload.clone()).unwrap();
            assert_eq!(told.kind.name(), "platform.other", "{kind} {payload}");
        }
    }
}
