//! What a request asks for, whichever way its client writes it: JSON, a form, or the query. Forms carry everything as text
//! and nested values as JSON in text, so every reader here takes both.

use axum::{
    body::Bytes,
    http::{HeaderMap, Uri, header},
};
use serde_json::{Map, Value};
use url::form_urlencoded;

/// The parameters of one request.
#[derive(Debug, Default)]
pub(super) struct Params(Map<String, Value>);

impl Params {
    /// `None` when the body is no JSON object although it says so.
    pub(super) fn read(uri: &Uri, headers: &HeaderMap, body: &Bytes) -> Option<Self> {
        let mut params = Self::default();
        params.form(uri.query().unwrap_or_default().as_bytes());
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        if kind.starts_with("application/json") {
            params.0.extend(serde_json::from_slice::<Map<String, Value>>(body).ok()?);
        } else {
            params.form(body);
        }
        Some(params)
    }

    fn form(&mut self, text: &[u8]) {
        for (name, value) in form_urlencoded::parse(text) {
            self.0.insert(name.into_owned(), Value::String(value.into_owned()));
        }
    }

    /// A parameter as text; an empty text is an absent one.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        }
    }

    /// A parameter that is a list or object.
    pub(super) fn nested(&self, name: &str) -> Option<Value> {
        match self.0.get(name)? {
            Value::String(text) => serde_json::from_str(text).ok(),
            value => Some(value.clone()),
        }
    }
}
