//! Files: the upload in three steps, what people send, and the download with the bot's token.

use axum::{
    body::Bytes,
    extract::{FromRequest, Multipart, Request},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{
    app::{App, AppState},
    methods::{self, Done, Refused},
    params::Params,
    server::Server,
};
use crate::lock;

/// A file that the workspace holds, or expects.
#[derive(Debug, Clone)]
pub(super) struct StoredFile {
    pub(super) name: String,
    pub(super) mime: String,
    pub(super) length: usize,
    /// None until it is uploaded.
    pub(super) bytes: Option<Bytes>,
    /// By which it is uploaded.
    ticket: String,
}

pub(super) fn mime_of(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "mp4" => "video/mp4",
        "mp3" => "audio/mpeg",
        "txt" => "text/plain",
        _ => "application/octet-stream",
    }
}

/// Keeps a file and gives it an id.
pub(super) fn store(state: &mut AppState, name: &str, mime: &str, length: usize, bytes: Option<Bytes>) -> String {
    let id = format!("F{:09X}", rand::random::<u64>() & 0xf_ffff_ffff);
    let ticket = format!("{:032x}", rand::random::<u128>());
    let file = StoredFile { name: name.to_owned(), mime: mime.to_owned(), length, bytes, ticket };
    state.files.insert(id.clone(), file);
    id
}

/// A file as messages show it.
pub(super) fn describe(server: &Server, state: &AppState, id: &str) -> Value {
    let Some(file) = state.files.get(id) else { return json!({"id": id, "mode": "tombstone"}) };
    let url = format!("{}/files-pri/{id}/{}", server.url, file.name);
    json!({
        "id": id, "name": file.name, "title": file.name, "mimetype": file.mime, "size": file.length, "mode": "hosted",
        "filetype": file.name.rsplit('.').next(), "url_private": url, "url_private_download": url,
    })
}

/// `files.getUploadURLExternal`
pub(super) fn begin(server: &Server, state: &mut AppState, params: &Params) -> Done {
    let name = params.text("filename").ok_or("missing_argument")?;
    let length: usize = params.text("length").and_then(|length| length.parse().ok()).ok_or("missing_argument")?;
    if length == 0 {
        return Err("invalid_arguments".into());
    }
    let id = store(state, &name, mime_of(&name), length, None);
    let ticket = state.files.get(&id).map(|file| file.ticket.clone()).unwrap_or_default();
    Ok(json!({"upload_url": format!("{}/upload/{ticket}", server.url), "file_id": id}))
}

/// Whose upload it is.
pub(super) fn owner(server: &Server, ticket: &str) -> Option<std::sync::Arc<App>> {
    server.apps().into_iter().find(|app| lock(&app.state).files.values().any(|file| file.ticket == ticket))
}

/// The bytes, raw or as the part of a form. They must be as many as was said.
pub(super) async fn upload(server: &Server, ticket: &str, headers: &HeaderMap, body: Bytes) -> Response {
    let kind = headers.get(header::CONTENT_TYPE).cloned();
    let is_form = kind.as_ref().and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.starts_with("multipart/"));
    let bytes = match (is_form, kind) {
        (true, Some(kind)) => first_part(kind, body).await,
        _ => Some(body),
    };
    let (Some(bytes), Some(app)) = (bytes, owner(server, ticket)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut state = lock(&app.state);
    let Some(file) = state.files.values_mut().find(|file| file.ticket == ticket) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if bytes.len() != file.length {
        return (StatusCode::BAD_REQUEST, "wrong length").into_response();
    }
    file.bytes = Some(bytes);
    format!("OK - {}", file.length).into_response()
}

async fn first_part(kind: axum::http::HeaderValue, body: Bytes) -> Option<Bytes> {
    let request = Request::builder().method("POST").header(header::CONTENT_TYPE, kind).body(body.into()).ok()?;
    let mut parts = Multipart::from_request(request, &()).await.ok()?;
    parts.next_field().await.ok()??.bytes().await.ok()
}

/// `files.completeUploadExternal`: the files appear as one message.
pub(super) fn complete(server: &Server, app: &App, state: &mut AppState, params: &Params) -> Done {
    let files = params.nested("files").ok_or("missing_argument")?;
    let ids: Vec<String> =
        files.as_array().into_iter().flatten().filter_map(|file| file["id"].as_str()).map(str::to_owned).collect();
    let uploaded = |id: &String| state.files.get(id).is_some_and(|file| file.bytes.is_some());
    if ids.is_empty() || !ids.iter().all(uploaded) {
        return Err("file_not_found".into());
    }
    let channel = methods::writable(server, state, params)?;
    let described: Vec<_> = ids.iter().map(|id| describe(server, state, id)).collect();
    let ts = state.next_ts();
    let mut message = json!({
        "type": "message", "subtype": "file_share", "user": app.bot_user, "bot_id": app.bot_id, "app_id": app.id.as_ref(),
        "text": params.text("initial_comment").unwrap_or_default(), "ts": ts, "files": described, "upload": false,
    });
    if let Some(thread) = params.text("thread_ts") {
        message["thread_ts"] = thread.into();
    }
    methods::show(server, app, state, &channel, message);
    Ok(json!({"files": ids.iter().map(|id| json!({"id": id})).collect::<Vec<_>>()}))
}

/// `files.info`
pub(super) fn info(server: &Server, state: &AppState, params: &Params) -> Done {
    let id = params.text("file").ok_or("file_not_found")?;
    if !state.files.contains_key(&id) {
        return Err(Refused::from("file_not_found"));
    }
    Ok(json!({"file": describe(server, state, &id)}))
}

/// `/files-pri/<id>/<name>`
pub(super) fn download(server: &Server, bearer: Option<&str>, path: &str) -> Response {
    let app = bearer.and_then(|token| server.by_token(token));
    let id = path.split('/').next().unwrap_or_default();
    let bytes = app.and_then(|app| lock(&app.state).files.get(id).and_then(|file| file.bytes.clone()));
    match bytes {
        Some(bytes) => bytes.into_response(),
        // The platform shows a login page.
        None => ([(header::CONTENT_TYPE, "text/html")], "<html>Sign in</html>").into_response(),
    }
}
