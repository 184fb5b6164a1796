//! The frames of a socket. Pure. Only what every frame needs is read here; a payload is left as it came.

use serde::Deserialize;
use serde_json::{Value, json};

use super::link::Reason;

/// What a text frame says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Frame {
    /// The socket is good.
    Hello,
    /// The socket shall go, for this reason, in the platform's word.
    Disconnect(Reason, String),
    /// Something to be acknowledged.
    Envelope(Envelope),
    /// Nothing that is known, and nothing to acknowledge.
    Strange,
}

/// What an envelope holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Envelope {
    /// By which it is acknowledged, once; a retry has another one.
    pub(super) id: String,
    /// `events_api`, `interactive`, `slash_commands`, or what comes after them.
    pub(super) kind: String,
    /// The payload.
    pub(super) payload: Value,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "type", default)]
    kind: String,
    envelope_id: Option<String>,
    #[serde(default)]
    payload: Value,
    reason: Option<String>,
}

/// Reads a text frame.
pub(super) fn read(text: &str) -> Frame {
    let Ok(raw) = serde_json::from_str::<Raw>(text) else { return Frame::Strange };
    match (raw.kind.as_str(), raw.envelope_id) {
        ("hello", None) => Frame::Hello,
        ("disconnect", None) => {
            let word = raw.reason.unwrap_or_default();
            let reason = match word.as_str() {
                "warning" | "refresh_requested" => Reason::Refresh,
                "link_disabled" => Reason::LinkDisabled,
                "too_many_websockets" => Reason::TooMany,
                _ => Reason::Unknown,
            };
            Frame::Disconnect(reason, super::api::word_of_the_list(&word))
        }
        (_, Some(id)) => Frame::Envelope(Envelope { id, kind: raw.kind, payload: raw.payload }),
        _ => Frame::Strange,
    }
}

/// The acknowledgement of an envelope.
pub(super) fn acknowledgement(envelope_id: &str) -> String {
    json!({ "envelope_id": envelope_id }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_is_told_apart() {
        assert_eq!(read(r#"{"type":"hello","num_connections":1,"connection_info":{"app_id":"A1"}}"#), Frame::Hello);
        for (word, reason) in [
            ("warning", Reason::Refresh),
            ("refresh_requested", Reason::Refresh),
            ("link_disabled", Reason::LinkDisabled),
            ("too_many_websockets", Reason::TooMany),
            ("maintenance", Reason::Unknown),
        ] {
            let told = read(&format!(r#"{{"type":"disconnect","reason":"{word}"}}"#));
            assert_eq!(told, Frame::Disconnect(reason, word.to_owned()));
        }
        let frame = read(r#"{"envelope_id":"e1","type":"future_kind","payload":{"a":1},"retry_attempt":2}"#);
        let Frame::Envelope(envelope) = frame else { panic!("{frame:?}") };
        assert_eq!(
            (envelope.id.as_str(), envelope.kind.as_str(), &envelope.payload["a"]),
            ("e1", "future_kind", &json!(1))
        );
        assert_eq!(acknowledgement("e\"1"), r#"{"envelope_id":"e\"1"}"#);
    }

    #[test]
    fn what_is_no_frame_is_strange_and_harms_nothing() {
        for text in ["", "null", "[]", "{", r#"{"type":7}"#, r#"{"type":"news"}"#, "\u{0}", &"[".repeat(10_000)] {
            assert_eq!(read(text), Frame::Strange);
        }
    }
}
