//! Answers as agents give them, good and bad.

use super::*;
use crate::{
    event::{Interaction, Message},
    job::{MediaKind, Task},
    platform::PlatformKind,
};

fn event(kind: EventKind) -> Event {
    let channel = "6f9619ff-8b86-4011-b42d-00c04fc964ff".parse().expect("a channel");
    Event::new(channel, PlatformKind::Telegram, Some("7".into()), Timestamp::UNIX_EPOCH, "update/1", kind)
}

fn received() -> Event {
    event(EventKind::MessageReceived(Message {
        message_id: "5".into(),
        chat_id: "7".into(),
        thread_id: Some("topic".into()),
        ..Message::default()
    }))
}

fn answer(body: &str) -> Result<Vec<Job>, BadAnswer> {
    replies(&received(), body.as_bytes(), Timestamp::UNIX_EPOCH)
}

/// Contract: E2.
#[test]
fn one_text_becomes_one_send_to_the_same_place() {
    let jobs = answer(r#"{"reply":"hello","model":"whatever the agent likes to add"}"#).expect("jobs");
    let [Job { id, channel, task: Task::Send(send), .. }] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert_eq!(id.as_str(), format!("reply:{}:0", received().id));
    assert_eq!(*channel, received().channel_id);
    assert_eq!((send.chat_id.as_str(), send.text.as_str()), ("7", "hello"));
    assert_eq!(send.thread_id.as_deref(), Some("topic"));
}

/// Contract: E2.
#[test]
fn several_replies_become_jobs_in_their_order() {
    let jobs = answer(
        r#"{"replies":[
            {"text":"<b>a</b>","parse_mode":"HTML","reply_to":"5"},
            {"media":{"kind":"image","url":"https://files.test/a.png","caption":"a"}},
            {"location":{"latitude":52.5,"longitude":13.4,"title":"here"}},
            {"reaction":{"emoji":"👍"}}]}"#,
    )
    .expect("jobs");
    let names: Vec<_> = jobs.iter().map(|job| job.task.name()).collect();
    assert_eq!(names, ["send", "send_media", "send_location", "send_reaction"]);
    assert!(jobs.iter().enumerate().all(|(n, job)| job.id.as_str().ends_with(&format!(":{n}"))));
    assert!(jobs.iter().all(|job| job.task.chat() == Some("7")));
    let Task::SendMedia(media) = &jobs[1].task else { panic!("{:?}", jobs[1]) };
    assert_eq!((media.kind, media.thread_id.as_deref()), (MediaKind::Image, Some("topic")));
    let Task::SendReaction(reaction) = &jobs[3].task else { panic!("{:?}", jobs[3]) };
    assert_eq!(reaction.message_id, "5");
}

#[test]
fn an_agent_may_say_nothing() {
    for nothing in ["", " \n", r#"{"reply":null}"#, r#"{"reply":""}"#, r#"{"replies":[]}"#, r#"{"replies":null}"#] {
        assert_eq!(answer(nothing), Ok(Vec::new()), "{nothing}");
    }
}

/// An empty text is left out without moving the ids of the others.
#[test]
fn a_reply_keeps_its_number() {
    let jobs = answer(r#"{"replies":[{"text":""},{"text":"b"}]}"#).expect("jobs");
    assert_eq!(jobs.len(), 1);
    assert!(jobs[0].id.as_str().ends_with(":1"));
}

#[test]
fn a_bad_answer_names_the_field_and_never_what_was_written() {
    let cases = [
        (r#"nonsense PRIVATE"#, "not JSON"),
        (r#"["PRIVATE"]"#, "top level"),
        (r#""PRIVATE""#, "top level"),
        (r#"{"rely":"PRIVATE"}"#, "expected `reply` or `replies`"),
        (r#"{"reply":"PRIVATE","replies":[]}"#, "not both"),
        (r#"{"reply":["PRIVATE"]}"#, "reply: expected a string"),
        (r#"{"replies":"PRIVATE"}"#, "replies: expected an array"),
        (r#"{"replies":["PRIVATE"]}"#, "replies[0]"),
        (r#"{"replies":[{"text":"a"},{"txet":"PRIVATE"}]}"#, "replies[1]: expected exactly one"),
        (r#"{"replies":[{"text":"PRIVATE","media":{}}]}"#, "exactly one"),
        (r#"{"replies":[{"text":"a","parse_mode":"PRIVATE, expected `x`"}]}"#, "expected `MarkdownV2` or `HTML`"),
        (r#"{"replies":[{"text":"a","PRIVATE":1}]}"#, "unknown field"),
        (r#"{"replies":[{"text":"a","chat_id":"PRIVATE"}]}"#, "chat_id"),
        (r#"{"replies":[{"media":"PRIVATE"}]}"#, "`media`: expected an object"),
        (r#"{"replies":[{"media":{"kind":"image","url":"ftp://PRIVATE"}}]}"#, "data.url"),
        (r#"{"replies":[{"media":{"kind":"PRIVATE","url":"https://a.test"}}]}"#, "unknown variant"),
        (r#"{"replies":[{"media":{"kind":"image"}}]}"#, "missing field `url`"),
        (r#"{"replies":[{"location":{"latitude":"PRIVATE","longitude":1}}]}"#, "expected f64"),
        (r#"{"replies":[{"location":{"latitude":91,"longitude":1}}]}"#, "expected -90 to 90"),
        (r#"{"replies":[{"reaction":{"emoji":"a"},"note":"PRIVATE"}]}"#, "unknown field beside"),
    ];
    for (body, expected) in cases {
        let error = answer(body).expect_err(body).to_string();
        assert!(error.contains(expected), "{body}: {error}");
        assert!(!error.contains("PRIVATE"), "{error}");
    }
    let many = format!(r#"{{"replies":[{}]}}"#, vec![r#"{"text":"a"}"#; MAX_REPLIES + 1].join(","));
    assert!(answer(&many).expect_err("too many").to_string().contains("at most"));
}

#[test]
fn an_interaction_is_answered_in_its_conversation_and_nowhere_without_one() {
    let pressed = |chat: Option<&str>, conversation: Option<String>| Event {
        conversation,
        ..event(EventKind::Interaction(Interaction { chat_id: chat.map(Into::into), ..Interaction::default() }))
    };
    let reply = |event: &Event| replies(event, br#"{"reply":"ok"}"#, Timestamp::UNIX_EPOCH);
    assert_eq!(reply(&pressed(Some("8"), None)).expect("a job")[0].task.chat(), Some("8"));
    assert_eq!(reply(&pressed(None, Some("9".into()))).expect("a job")[0].task.chat(), Some("9"));
    assert!(reply(&pressed(None, None)).expect_err("nowhere").to_string().contains("no conversation"));
    assert_eq!(replies(&pressed(None, None), b"", Timestamp::UNIX_EPOCH), Ok(Vec::new()));
}

#[test]
fn handlers_are_asked_about_what_waits_for_an_answer() {
    assert!(handler_takes(&received().kind));
    assert!(handler_takes(&EventKind::Interaction(Interaction::default())));
    assert!(!handler_takes(&EventKind::MessageEdited(Message::default())));
    assert!(!handler_takes(&EventKind::JobDone(crate::event::JobDone::default())));
}
