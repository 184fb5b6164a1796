//! What an agent is asked, and what its answer means: pure, from bytes to `send*` jobs.
//!
//! A job's id follows from the event's and the reply's number, so that an event delivered twice (a crash between the
//! answer and its mark) is answered once: the send guard knows the id. Errors name the field, never what the agent wrote.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::{
    event::{Event, EventKind},
    job::{Job, JobId, NotAJob},
};

/// How many messages one answer may hold.
pub const MAX_REPLIES: usize = 32;

/// Whether a handler is asked about events of this kind: those a person waits for an answer to. The others go to
/// `events.url` alone, so that an agent that reads texts is never asked about a reaction.
pub fn handler_takes(kind: &EventKind) -> bool {
    matches!(kind, EventKind::MessageReceived(_) | EventKind::Interaction(_))
}

/// The id of the job that sends an event's reply number `n`.
pub fn reply_id(event: &Event, n: usize) -> Option<JobId> {
    JobId::new(format!("reply:{}:{n}", event.id))
}

/// An answer that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// Not JSON.
    #[error("the answer is not JSON: line {line} column {column}")]
    NotJson {
        /// Where.
        line: usize,
        /// Where in the line.
        column: usize,
    },
    /// A shape that is not documented.
    #[error("the answer's {field}: {problem}")]
    Shape {
        /// Which part.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

fn bad(field: impl Into<String>, problem: impl Into<String>) -> BadAnswer {
    BadAnswer::Shape { field: field.into(), problem: problem.into() }
}

/// The jobs that an answer's body asks for; none for an empty body.
pub fn replies(event: &Event, body: &[u8], now: Timestamp) -> Result<Vec<Job>, BadAnswer> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let answer: Value = serde_json::from_slice(body)
        .map_err(|error| BadAnswer::NotJson { line: error.line(), column: error.column() })?;
    let Value::Object(mut answer) = answer else { return Err(bad("top level", "expected an object")) };
    let items = match (answer.remove("reply"), answer.remove("replies")) {
        (Some(_), Some(_)) => return Err(bad("top level", "expected `reply` or `replies`, not both")),
        (Some(Value::Null), None) | (None, Some(Value::Null)) => return Ok(Vec::new()),
        (Some(text @ Value::String(_)), None) => vec![Value::Object(Map::from_iter([("text".to_owned(), text)]))],
        (Some(_), None) => return Err(bad("reply", "expected a string")),
        (None, Some(Value::Array(items))) if items.len() <= MAX_REPLIES => items,
        (None, Some(Value::Array(_))) => return Err(bad("replies", format!("at most {MAX_REPLIES} are sent"))),
        (None, Some(_)) => return Err(bad("replies", "expected an array")),
        (None, None) => return Err(bad("top level", "expected `reply` or `replies`")),
    };
    let mut jobs = Vec::with_capacity(items.len());
    for (n, item) in items.into_iter().enumerate() {
        let field = format!("replies[{n}]");
        let Value::Object(item) = item else { return Err(bad(field, "expected an object")) };
        if item.get("text").and_then(Value::as_str) == Some("") {
            continue;
        }
        jobs.push(job(event, n, item, now).map_err(|problem| bad(field, problem))?);
    }
    Ok(jobs)
}

/// One reply as a job. It is put together as a producer would and read by the same parser, so that what an agent may say
/// is what a job may hold.
fn job(event: &Event, n: usize, mut item: Map<String, Value>, now: Timestamp) -> Result<Job, String> {
    let place = Place::of(event).ok_or("the event belongs to no conversation that could be answered in")?;
    let kinds = ["text", "media", "location", "reaction"].map(|kind| item.contains_key(kind));
    let (name, mut data) = match kinds {
        [true, false, false, false] => ("send", item),
        [false, true, false, false] => ("send_media", inner(&mut item, "media")?),
        [false, false, true, false] => ("send_location", inner(&mut item, "location")?),
        [false, false, false, true] => ("send_reaction", inner(&mut item, "reaction")?),
        _ => return Err("expected exactly one of `text`, `media`, `location` and `reaction`".into()),
    };
    if data.contains_key("chat_id") {
        return Err("`chat_id`: a reply goes to the conversation of its event".into());
    }
    data.insert("chat_id".into(), place.chat.into());
    match (name, place.thread, place.message) {
        ("send_reaction", _, Some(message)) => {
            data.entry("message_id").or_insert_with(|| message.into());
        }
        ("send_reaction", _, None) | (_, None, _) => {}
        (_, Some(thread), _) => {
            data.entry("thread_id").or_insert_with(|| thread.into());
        }
    }
    let id = reply_id(event, n).ok_or("no id could be made")?;
    let job = serde_json::json!({
        "name": name, "id": id, "channel_id": event.channel_id, "data": data, "enqueued_at": now.to_string(),
    });
    Job::parse(job.to_string().as_bytes()).map_err(|error| match error {
        NotAJob::Field { field, problem } => format!("{field}: {}", without_content(&problem)),
        other => without_content(&other.to_string()),
    })
}

fn inner(item: &mut Map<String, Value>, kind: &str) -> Result<Map<String, Value>, String> {
    match item.remove(kind) {
        Some(Value::Object(data)) if item.is_empty() => Ok(data),
        Some(Value::Object(_)) => Err(format!("unknown field beside `{kind}`")),
        _ => Err(format!("`{kind}`: expected an object")),
    }
}

/// An error of the deserialiser without the value it quotes: what it found stands before `, expected`, in quotes.
fn without_content(problem: &str) -> String {
    match problem.rsplit_once(", expected ") {
        Some((found, expected)) => {
            format!("{}, expected {expected}", found.split([':', '`', '"']).next().unwrap_or_default().trim_end())
        }
        None => problem.to_owned(),
    }
}

/// Where an answer goes.
struct Place<'a> {
    chat: &'a str,
    thread: Option<&'a str>,
    message: Option<&'a str>,
}

impl<'a> Place<'a> {
    fn of(event: &'a Event) -> Option<Self> {
        match &event.kind {
            EventKind::MessageReceived(message) => Some(Self {
                chat: &message.chat_id,
                thread: message.thread_id.as_deref(),
                message: Some(&message.message_id),
            }),
            EventKind::Interaction(interaction) => Some(Self {
                chat: interaction.chat_id.as_deref().or(event.conversation.as_deref())?,
                thread: None,
                message: interaction.message_id.as_deref(),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
