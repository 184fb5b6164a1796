//! The answers of the Bot API: `{ok, result}`, or `{ok: false, error_code, description, parameters}`.

use axum::{
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};

/// A method's result, or why it was refused.
pub(super) type Answer = Result<Value, Refused>;

/// A refusal, as the Bot API words it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The status of the HTTP answer, repeated in its body.
    pub code: u16,
    /// The text in the body.
    pub description: String,
    /// Seconds to wait (429).
    pub retry_after: Option<u64>,
    /// Where the group went (400).
    pub migrate_to_chat_id: Option<i64>,
}

impl Refused {
    /// A refusal without parameters.
    pub fn new(code: u16, description: impl Into<String>) -> Self {
        Self { code, description: description.into(), retry_after: None, migrate_to_chat_id: None }
    }

    /// `400 Bad Request: …`
    pub fn bad_request(what: &str) -> Self {
        Self::new(400, format!("Bad Request: {what}"))
    }

    /// `401 Unauthorized`
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized")
    }

    /// `404 Not Found`
    pub fn not_found() -> Self {
        Self::new(404, "Not Found")
    }

    /// `409 Conflict: …`
    pub fn conflict(what: &str) -> Self {
        Self::new(409, format!("Conflict: {what}"))
    }

    /// `429 Too Many Requests: retry after …`
    pub fn too_many(retry_after: u64) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..Self::new(429, format!("Too Many Requests: retry after {retry_after}"))
        }
    }

    /// `400` for a group that became a supergroup.
    pub fn migrated(to: i64) -> Self {
        Self { migrate_to_chat_id: Some(to), ..Self::bad_request("group chat was upgraded to a supergroup chat") }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut body = json!({"ok": false, "error_code": self.code, "description": self.description});
        let mut parameters = serde_json::Map::new();
        if let Some(seconds) = self.retry_after {
            parameters.insert("retry_after".into(), seconds.into());
        }
        if let Some(chat) = self.migrate_to_chat_id {
            parameters.insert("migrate_to_chat_id".into(), chat.into());
        }
        if !parameters.is_empty() {
            body["parameters"] = parameters.into();
        }
        let status = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = raw(status, "application/json", body.to_string());
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// `{ok: true, result}` in an HTTP answer.
pub(super) fn accepted(result: &impl Serialize) -> Response {
    #[derive(Serialize)]
    struct Accepted<'a, T> {
        ok: bool,
        result: &'a T,
    }
    json_response(StatusCode::OK, &Accepted { ok: true, result })
}

/// JSON in an HTTP answer.
pub(super) fn json_response(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_string(body) {
        Ok(text) => raw(status, "application/json", text),
        Err(error) => Refused::new(500, format!("Internal Server Error: {error}")).into_response(),
    }
}

/// Any body in an HTTP answer.
pub(super) fn raw(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, content_type)], body.into()).into_response()
}
