//! From bytes to a job, or to one line that says which field is wrong.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{Job, JobId, Task};
use crate::identity::{ChannelId, QueueBase};

/// The largest message that can be a job.
pub const MAX_JOB_BYTES: usize = 1 << 20;

/// Why a message is no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAJob {
    /// Over [`MAX_JOB_BYTES`].
    #[error("{0} bytes are over the limit of {MAX_JOB_BYTES}")]
    TooLarge(usize),
    /// Not UTF-8.
    #[error("not UTF-8 at byte {0}")]
    NotUtf8(usize),
    /// Not JSON.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// JSON, but not an object.
    #[error("expected a JSON object, found {0}")]
    NotAnObject(&'static str),
    /// A field is absent.
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    /// A field holds something else than it should.
    #[error("field `{field}`: {problem}")]
    Field {
        /// The field's path.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

fn field(field: impl Into<String>, problem: impl Into<String>) -> NotAJob {
    NotAJob::Field { field: field.into(), problem: problem.into() }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &'static str) -> Result<&'a str, NotAJob> {
    match map.get(key) {
        None => Err(NotAJob::Missing(key)),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(field(key, format!("expected a string, found {}", kind(other)))),
    }
}

fn instant(map: &Map<String, Value>, key: &'static str) -> Result<Option<Timestamp>, NotAJob> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => {
            text.parse().map(Some).map_err(|_| field(key, "expected an RFC 3339 time such as 2030-01-31T12:00:00Z"))
        }
        Some(other) => Err(field(key, format!("expected an RFC 3339 time, found {}", kind(other)))),
    }
}

impl Job {
    /// Reads a job; the error names the field at fault and never repeats the message's content.
    pub fn parse(body: &[u8]) -> Result<Self, NotAJob> {
        if body.len() > MAX_JOB_BYTES {
            return Err(NotAJob::TooLarge(body.len()));
        }
        let body = std::str::from_utf8(body).map_err(|error| NotAJob::NotUtf8(error.valid_up_to()))?;
        match Self::parse_good(body) {
            Some(job) => Ok(job),
            None => Self::parse_slowly(body),
        }
    }

    /// Reads what is a job in every respect, as nearly every message is, without building a tree of it first.
    fn parse_good(body: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Envelope<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow)]
            id: Cow<'a, str>,
            #[serde(borrow)]
            channel_id: Cow<'a, str>,
            #[serde(borrow)]
            data: &'a RawValue,
            enqueued_at: Option<String>,
            expires_at: Option<String>,
        }
        let read: Envelope<'_> = serde_json::from_str(body).ok()?;
        let instant = |text: Option<String>| text.map(|text| text.parse()).transpose().ok();
        let data = read.data.get();
        // An array would be read as an object's values in their order.
        let task = data.starts_with('{').then(|| Task::from_parts(&read.name, Data::Text(data)).ok())??;
        task.check().ok()?;
        Some(Self {
            id: JobId::new(read.id)?,
            channel: read.channel_id.parse().ok()?,
            task,
            enqueued_at: instant(read.enqueued_at)?,
            expires_at: instant(read.expires_at)?,
        })
    }

    /// Reads anything, and says what is wrong with it.
    fn parse_slowly(body: &str) -> Result<Self, NotAJob> {
        let value: Value = serde_json::from_str(body).map_err(|error| NotAJob::NotJson(error.to_string()))?;
        let Value::Object(mut map) = value else { return Err(NotAJob::NotAnObject(kind(&value))) };

        let name = text(&map, "name")?.to_owned();
        let id = JobId::new(text(&map, "id")?).ok_or_else(|| field("id", "expected 1 to 128 characters"))?;
        let channel: ChannelId = text(&map, "channel_id")?
            .parse()
            .map_err(|error: crate::identity::ChannelIdError| field("channel_id", error.to_string()))?;
        let enqueued_at = instant(&map, "enqueued_at")?;
        let expires_at = instant(&map, "expires_at")?;
        let data = match map.remove("data") {
            None => return Err(NotAJob::Missing("data")),
            Some(data @ Value::Object(_)) => data,
            Some(other) => return Err(field("data", format!("expected an object, found {}", kind(&other)))),
        };
        let task = Task::from_parts(&name, Data::Tree(data))?;
        task.check()?;
        Ok(Self { id, channel, task, enqueued_at, expires_at })
    }

    /// The job as it is published.
    pub fn to_json(&self) -> Vec<u8> {
        let mut value = serde_json::to_value(&self.task).unwrap_or_default();
        if let Value::Object(map) = &mut value {
            map.insert("id".into(), self.id.as_str().into());
            map.insert("channel_id".into(), self.channel.to_string().into());
            if let Some(at) = self.enqueued_at {
                map.insert("enqueued_at".into(), at.to_string().into());
            }
            if let Some(at) = self.expires_at {
                map.insert("expires_at".into(), at.to_string().into());
            }
        }
        value.to_string().into_bytes()
    }

    /// The queue base this job belongs on.
    pub fn base(&self) -> QueueBase {
        self.task.base()
    }
}

/// The `data` of a job: as it came, or taken apart.
enum Data<'a> {
    Text(&'a str),
    Tree(Value),
}

impl Task {
    fn from_parts(name: &str, data: Data<'_>) -> Result<Self, NotAJob> {
        fn of<T: serde::de::DeserializeOwned>(data: Data<'_>) -> Result<T, NotAJob> {
            let read = match data {
                Data::Text(text) => serde_json::from_str(text),
                Data::Tree(value) => serde_json::from_value(value),
            };
            read.map_err(|error| field("data", error.to_string()))
        }
        Ok(match name {
            "connect" => Self::Connect(of(data)?),
            "disconnect" => Self::Disconnect(of(data)?),
            "send" => Self::Send(of(data)?),
            "send_media" => Self::SendMedia(of(data)?),
            "send_location" => Self::SendLocation(of(data)?),
            "send_reaction" => Self::SendReaction(of(data)?),
            "mark_read" => Self::MarkRead(of(data)?),
            "revoke" => Self::Revoke(of(data)?),
            "resync_history" => Self::ResyncHistory(of(data)?),
            "group_create" => Self::GroupCreate(of(data)?),
            "group_update_subject" => Self::GroupUpdateSubject(of(data)?),
            "group_update_description" => Self::GroupUpdateDescription(of(data)?),
            "group_add_participants" => Self::GroupAddParticipants(of(data)?),
            "group_remove_participants" => Self::GroupRemoveParticipants(of(data)?),
            "group_promote" => Self::GroupPromote(of(data)?),
            "group_demote" => Self::GroupDemote(of(data)?),
            "group_leave" => Self::GroupLeave(of(data)?),
            "group_invite_link" => Self::GroupInviteLink(of(data)?),
            "group_fetch" => Self::GroupFetch(of(data)?),
            "download_media" => Self::DownloadMedia(of(data)?),
            "fetch_avatar" => Self::FetchAvatar(of(data)?),
            unknown => {
                let shown: String = unknown.chars().take(64).collect();
                return Err(field("name", format!("{shown:?} is no job that shardvisor knows")));
            }
        })
    }

    fn check(&self) -> Result<(), NotAJob> {
        if self.chat() == Some("") {
            return Err(field("data.chat_id", "must not be empty"));
        }
        match self {
            Self::Send(data) if data.text.is_empty() => Err(field("data.text", "must not be empty")),
            Self::SendMedia(data)
                if !["http://", "https://", "file:///"].iter().any(|scheme| data.url.starts_with(scheme)) =>
            {
                Err(field("data.url", "expected an http: or https: URL, or file:// and the path of a stored file"))
            }
            Self::SendLocation(data) if !(-90.0..=90.0).contains(&data.latitude) => {
                Err(field("data.latitude", "expected -90 to 90"))
            }
            Self::SendLocation(data) if !(-180.0..=180.0).contains(&data.longitude) => {
                Err(field("data.longitude", "expected -180 to 180"))
            }
            Self::SendReaction(data) if data.message_id.is_empty() => {
                Err(field("data.message_id", "must not be empty"))
            }
            Self::Revoke(data) if data.message_id.is_empty() => Err(field("data.message_id", "must not be empty")),
            Self::MarkRead(data) if data.message_ids.is_empty() => Err(field("data.message_ids", "must not be empty")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: &str = "6f9619ff-8b86-4011-b42d-00c04fc964ff";

    fn send(extra: &str) -> String {
        format!(r#"{{"name":"send","id":"j1","channel_id":"{CHANNEL}","data":{{"chat_id":"7","text":"hi"{extra}}}}}"#)
    }

    /// Contract: Q1.
    #[test]
    fn a_job_is_read_and_written_back() {
        let job = Job::parse(send("").as_bytes()).expect("a job");
        assert_eq!(job.task.name(), "send");
        assert_eq!(job.task.chat(), Some("7"));
        assert_eq!(Job::parse(&job.to_json()), Ok(job));
    }

    /// Contract: Q1. A message in any spelling is the same job whichever way it is read.
    #[test]
    fn both_ways_of_reading_find_the_same_job() {
        let plain = send(r#","mentions":["1","2"],"on_uncertain":"dead_letter""#);
        let escaped = plain.replace("send", r"s\u0065nd").replace("hi", r#"\"h\n\u00e9\""#);
        let timed =
            plain.replacen('{', r#"{"enqueued_at":"2030-01-31T12:00:00Z","expires_at":null,"more":[1,{"a":2}],"#, 1);
        let group = format!(r#"{{"data":{{}},"id":"g","name":"connect","channel_id":"{CHANNEL}"}}"#);
        for body in [plain, escaped, timed, group] {
            let good = Job::parse_good(&body).unwrap_or_else(|| panic!("{body}"));
            assert_eq!(Job::parse_slowly(&body), Ok(good));
        }
        // A field that is there twice counts as it stands last, and an array is no object.
        let twice = send(r#","text":"ho""#);
        assert_eq!(Job::parse_good(&twice), None);
        assert_eq!(Job::parse(twice.as_bytes()), Job::parse_slowly(&twice));
        let array = format!(r#"{{"name":"connect","id":"j1","channel_id":"{CHANNEL}","data":[]}}"#);
        assert_eq!(Job::parse_good(&array), None);
    }

    /// Contract: Q5. Field report R28.
    #[test]
    fn what_is_no_job_is_refused_with_the_field() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let cases: &[(&[u8], &str)] = &[
            (br#"{"type":"send""#, "not JSON"),
            (b"", "not JSON"),
            (b"null", "found null"),
            (b"[]", "found an array"),
            (&[0xff, 0xfe], "not UTF-8"),
            (deep.as_bytes(), "not JSON"),
            (br#"{}"#, "`name` is missing"),
            (br#"{"name":"send"}"#, "`id` is missing"),
            (br#"{"name":"send","id":7}"#, "`id`"),
            (br#"{"name":"send","id":""}"#, "`id`"),
            (br#"{"name":"send","id":"a","channel_id":"urn:uuid:x"}"#, "`channel_id`"),
            (br#"{"name":"send","id":"a","channel_id":"6f9619ff8b864011b42d00c04fc964ff"}"#, "`data` is missing"),
            (br#"{"name":"send","id":"a","channel_id":"6f9619ff8b864011b42d00c04fc964ff","data":[]}"#, "`data`"),
            (br#"{"name":"sned","id":"a","channel_id":"6f9619ff8b864011b42d00c04fc964ff","data":{}}"#, "`name`"),
            (
                br#"{"name":"send","id":"a","channel_id":"6f9619ff8b864011b42d00c04fc964ff","data":{"chat_id":"1"}}"#,
                "text",
            ),
        ];
        for (body, expected) in cases {
            let error = Job::parse(body).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error} should say {expected}");
        }
        assert_eq!(Job::parse(&vec![b' '; 40 << 20]), Err(NotAJob::TooLarge(40 << 20)));
        assert!(Job::parse(send(r#","txet":"x""#).as_bytes()).expect_err("unknown key").to_string().contains("txet"));
    }
}
