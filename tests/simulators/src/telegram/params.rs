//! What a request asks for, whichever way its client writes it: JSON, a form, multipart, or the query.
//!
//! Forms carry everything as text and nested values as JSON in text, so every reader here takes both forms.

use std::collections::HashMap;

use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, FromRequest, Multipart, Request},
    http::header,
};
use serde_json::Value;
use url::form_urlencoded;

use super::answer::Refused;

/// The greatest body that is read; the cloud takes files of up to 50 MB from bots.
pub(super) const BODY_LIMIT: usize = 55 * 1024 * 1024;

/// A file in a multipart body.
#[derive(Debug, Clone)]
pub(super) struct Upload {
    pub(super) name: Option<String>,
    pub(super) mime: Option<String>,
    pub(super) bytes: Bytes,
}

/// Where a method's file comes from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Upload(Upload),
    Url(String),
    Id(String),
}

/// The parameters of one request.
#[derive(Debug, Default)]
pub(super) struct Params {
    values: HashMap<String, Value>,
    files: HashMap<String, Upload>,
}

impl Params {
    /// Reads the query and the body. The body is read to its last byte before anything is judged: an answer that
    /// overtakes its request closes the connection under a client that is still writing.
    pub(super) async fn read(request: Request) -> Result<Self, Refused> {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, BODY_LIMIT).await;
        let body = body.map_err(|_| Refused::new(413, "Request Entity Too Large"))?;
        let mut params = Self::default();
        if let Some(query) = head.uri.query() {
            params.form(query.as_bytes());
        }
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        let kind = kind.to_ascii_lowercase();
        if body.is_empty() {
            return Ok(params);
        }
        if kind.starts_with("multipart/form-data") {
            params.multipart(Request::from_parts(head, body.into())).await?;
        } else if kind.starts_with("application/json") {
            match serde_json::from_slice(&body) {
                Ok(Value::Object(fields)) => params.values.extend(fields),
                _ => return Err(Refused::bad_request("can't parse JSON object")),
            }
        } else {
            params.form(&body);
        }
        Ok(params)
    }

    fn form(&mut self, text: &[u8]) {
        for (name, value) in form_urlencoded::parse(text) {
            self.values.insert(name.into_owned(), Value::String(value.into_owned()));
        }
    }

    async fn multipart(&mut self, mut request: Request) -> Result<(), Refused> {
        let broken = |_| Refused::bad_request("can't parse multipart body");
        DefaultBodyLimit::max(BODY_LIMIT).apply(&mut request);
        let mut parts = Multipart::from_request(request, &()).await.map_err(|_| Refused::bad_request("no boundary"))?;
        while let Some(part) = parts.next_field().await.map_err(broken)? {
            let Some(name) = part.name().map(str::to_owned) else { continue };
            let file = part.file_name().map(str::to_owned);
            let mime = part.content_type().map(str::to_owned);
            let bytes = part.bytes().await.map_err(broken)?;
            if file.is_some() {
                self.files.insert(name, Upload { name: file, mime, bytes });
            } else {
                // A part without a file name may still be what an `attach://` points to.
                let text = String::from_utf8_lossy(&bytes).into_owned();
                self.files.insert(name.clone(), Upload { name: None, mime, bytes });
                self.values.insert(name, Value::String(text));
            }
        }
        Ok(())
    }

    /// A parameter as text; an empty text is an absent one.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.values.get(name)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        }
    }

    /// A parameter as a whole number.
    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        match self.values.get(name)? {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// A parameter as a number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.values.get(name)? {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// A parameter as a flag; absent is false.
    pub(super) fn flag(&self, name: &str) -> bool {
        match self.values.get(name) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => matches!(text.to_ascii_lowercase().as_str(), "true" | "1" | "yes"),
            Some(Value::Number(number)) => number.as_i64() == Some(1),
            _ => false,
        }
    }

    /// A nested parameter, which forms carry as JSON in text.
    pub(super) fn nested(&self, name: &str) -> Result<Option<Value>, Refused> {
        match self.values.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => match serde_json::from_str(text) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(Refused::bad_request(&format!("can't parse {name} JSON object"))),
            },
            Some(value) => Ok(Some(value.clone())),
        }
    }

    /// A file: uploaded under the parameter's own name, attached by `attach://`, at an URL, or known by its id.
    pub(super) fn file(&self, name: &str) -> Option<Source> {
        if let Some(upload) = self.files.get(name).filter(|upload| upload.name.is_some()) {
            return Some(Source::Upload(upload.clone()));
        }
        let text = self.text(name)?;
        if let Some(part) = text.strip_prefix("attach://") {
            return self.files.get(part).cloned().map(Source::Upload);
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return Some(Source::Url(text));
        }
        Some(Source::Id(text))
    }
}
