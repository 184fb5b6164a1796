//! The built-in handler: every text a person writes comes back as it was. It exists to try a channel out, and to
//! measure what everything around a handler costs.

use jiff::Timestamp;

use super::agent::reply_id;
use crate::{
    event::{Event, EventKind},
    job::{Job, OnUncertain, Send, Task},
};

/// The answer, if there is one: none to bots (two echoes would never end) and none to what holds no text of its own.
pub fn echo(event: &Event, now: Timestamp) -> Option<Job> {
    let EventKind::MessageReceived(message) = &event.kind else { return None };
    let text = message.text.as_ref().filter(|text| !text.is_empty() && message.media.is_none())?;
    message.from.as_ref().filter(|author| !author.is_bot)?;
    let task = Task::Send(Send {
        chat_id: message.chat_id.clone(),
        text: text.clone(),
        reply_to: None,
        edit_message_id: None,
        thread_id: message.thread_id.clone(),
        mentions: Vec::new(),
        parse_mode: None,
        blocks: Vec::new(),
        on_uncertain: OnUncertain::Resend,
    });
    let id = reply_id(event, 0)?;
    Some(Job { id, channel: event.channel_id, task, enqueued_at: Some(now), expires_at: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Author, Media, Message},
        platform::PlatformKind,
    };

    fn received(message: Message) -> Event {
        let channel = "6f9619ff-8b86-4011-b42d-00c04fc964ff".parse().expect("a channel");
        let kind = EventKind::MessageReceived(message);
        Event::new(channel, PlatformKind::Telegram, Some("7".into()), Timestamp::UNIX_EPOCH, "update/1", kind)
    }

    fn message(text: &str, is_bot: bool) -> Message {
        let from = Some(Author { id: "1".into(), is_bot, ..Author::default() });
        Message { message_id: "5".into(), chat_id: "7".into(), from, text: Some(text.into()), ..Message::default() }
    }

    /// Contract: E2.
    #[test]
    fn a_text_comes_back_into_the_same_thread_under_an_id_of_the_event() {
        let event = received(Message { thread_id: Some("t".into()), ..message("hi", false) });
        let job = echo(&event, Timestamp::UNIX_EPOCH).expect("an answer");
        assert_eq!(job.id.as_str(), format!("reply:{}:0", event.id));
        let Task::Send(send) = &job.task else { panic!("{job:?}") };
        assert_eq!(
            (send.chat_id.as_str(), send.text.as_str(), send.thread_id.as_deref(), &send.reply_to),
            ("7", "hi", Some("t"), &None)
        );
        assert_eq!(Job::parse(&job.to_json()), Ok(job));
    }

    #[test]
    fn bots_unknown_authors_files_and_other_events_are_not_answered() {
        let media = Some(Media::default());
        let silent = [
            received(message("hi", true)),
            received(message("", false)),
            received(Message { from: None, ..message("hi", false) }),
            received(Message { media, ..message("a caption", false) }),
            Event { kind: EventKind::MessageEdited(message("hi", false)), ..received(message("hi", false)) },
        ];
        for event in silent {
            assert_eq!(echo(&event, Timestamp::UNIX_EPOCH), None);
        }
    }
}
