//! Files: what people and bots send, and what `getFile` and the download path give back.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::{
    answer::{Answer, Refused, raw},
    bot::{Bot, BotState},
    params::{Params, Source},
};
use crate::lock;

/// What the cloud gives out by `getFile`.
const DOWNLOAD_LIMIT: usize = 20 * 1024 * 1024;

/// A file that a chat holds.
#[derive(Debug, Clone)]
pub(super) struct StoredFile {
    pub(super) bytes: Bytes,
    pub(super) path: String,
    pub(super) name: Option<String>,
    pub(super) mime: Option<String>,
}

/// A kind of message that carries a file: its field, the folder of its path, its MIME type unless it says better.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileKind {
    pub(super) field: &'static str,
    folder: &'static str,
    mime: &'static str,
    extension: &'static str,
}

/// All kinds of files.
pub(super) const KINDS: [FileKind; 7] = [
    FileKind { field: "photo", folder: "photos", mime: "image/jpeg", extension: "jpg" },
    FileKind { field: "video", folder: "videos", mime: "video/mp4", extension: "mp4" },
    FileKind { field: "audio", folder: "music", mime: "audio/mpeg", extension: "mp3" },
    FileKind { field: "voice", folder: "voice", mime: "audio/ogg", extension: "oga" },
    FileKind { field: "document", folder: "documents", mime: "application/octet-stream", extension: "bin" },
    FileKind { field: "sticker", folder: "stickers", mime: "image/webp", extension: "webp" },
    FileKind { field: "animation", folder: "animations", mime: "video/mp4", extension: "mp4" },
];

/// The kind whose field has this name.
pub(super) fn kind(field: &str) -> Option<FileKind> {
    KINDS.into_iter().find(|kind| kind.field == field)
}

/// Keeps a file and gives it an id.
pub(super) fn store(
    state: &mut BotState,
    kind: FileKind,
    bytes: Bytes,
    name: Option<String>,
    mime: Option<String>,
) -> String {
    let number = state.files.len();
    let id = format!("AgACAgIAAx{:02x}{number:08x}{:016x}", kind.field.len(), rand::random::<u64>());
    let path = format!("{}/file_{number}.{}", kind.folder, kind.extension);
    state.files.insert(id.clone(), StoredFile { bytes, path, name, mime });
    id
}

/// The id of the file that a send method names. Nothing is downloaded: a file at an URL is empty here.
pub(super) fn take(state: &mut BotState, params: &Params, kind: FileKind) -> Result<String, Refused> {
    match params.file(kind.field) {
        None => Err(Refused::bad_request(&format!("there is no {} in the request", kind.field))),
        Some(Source::Upload(upload)) if upload.bytes.is_empty() => Err(Refused::bad_request("file must be non-empty")),
        Some(Source::Upload(upload)) => Ok(store(state, kind, upload.bytes, upload.name, upload.mime)),
        Some(Source::Url(url)) => {
            let name = url.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned);
            Ok(store(state, kind, Bytes::new(), name, None))
        }
        Some(Source::Id(id)) if state.files.contains_key(&id) => Ok(id),
        Some(Source::Id(_)) => Err(Refused::bad_request("wrong remote file identifier specified: Wrong string length")),
    }
}

/// The field of a message that carries the file.
pub(super) fn describe(state: &BotState, kind: FileKind, id: &str) -> Map<String, Value> {
    let file = state.files.get(id);
    let size = file.map_or(0, |file| file.bytes.len());
    let mut body = json!({"file_id": id, "file_unique_id": unique(id), "file_size": size});
    match kind.field {
        "photo" | "sticker" | "video" | "animation" => {
            body["width"] = 512.into();
            body["height"] = 512.into();
        }
        _ => {}
    }
    if matches!(kind.field, "video" | "animation" | "audio" | "voice") {
        body["duration"] = 1.into();
    }
    if kind.field == "sticker" {
        body["type"] = "regular".into();
        body["is_animated"] = false.into();
        body["is_video"] = false.into();
    } else if kind.field != "photo" {
        let mime = file.and_then(|file| file.mime.as_deref()).unwrap_or(kind.mime);
        body["mime_type"] = mime.into();
        if let Some(name) = file.and_then(|file| file.name.as_deref()).filter(|_| kind.field != "voice") {
            body["file_name"] = name.into();
        }
    }
    let mut fields = Map::new();
    // An animation also fills the field of documents, for clients older than it.
    if kind.field == "animation" {
        fields.insert("document".into(), body.clone());
    }
    let body = if kind.field == "photo" { json!([body]) } else { body };
    fields.insert(kind.field.into(), body);
    fields
}

fn unique(id: &str) -> &str {
    &id[id.len().saturating_sub(12)..]
}

/// `getFile`
pub(super) fn get_file(bot: &Bot, params: &Params) -> Answer {
    let state = lock(&bot.state);
    let Some(id) = params.text("file_id") else {
        return Err(Refused::bad_request("file_id not specified"));
    };
    let Some(file) = state.files.get(&id) else {
        return Err(Refused::bad_request("wrong file_id or the file is temporarily unavailable"));
    };
    if file.bytes.len() > DOWNLOAD_LIMIT {
        return Err(Refused::bad_request("file is too big"));
    }
    Ok(json!({"file_id": id, "file_unique_id": unique(&id), "file_size": file.bytes.len(), "file_path": file.path}))
}

/// `/file/bot<token>/<path>`
pub(super) fn download(bot: &Arc<Bot>, path: &str) -> Response {
    let state = lock(&bot.state);
    match state.files.values().find(|file| file.path == path) {
        Some(file) => raw(StatusCode::OK, "application/octet-stream", file.bytes.clone()),
        None => Refused::not_found().into_response(),
    }
}
