//! The media host: it takes what clients have encrypted already and gives it back to whoever knows where it lies.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json,
    body::{self, Body},
    extract::{ConnectInfo, Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde_json::json;

use super::{
    Server,
    address::Address,
    fault::{Fault, Happening},
};
use crate::{line::Cutter, lock};

/// The largest upload that is taken.
const LARGEST: usize = 256 << 20;

/// What was uploaded.
#[derive(Debug)]
pub(super) struct Media {
    host: String,
    next: AtomicU64,
    stored: Mutex<HashMap<String, Bytes>>,
    /// What the platform has forgotten; the phones that sent or opened it still have it.
    expired: Mutex<HashMap<String, Bytes>>,
}

impl Media {
    pub(super) fn new(host: String) -> Self {
        Self { host, next: AtomicU64::new(1), stored: Mutex::default(), expired: Mutex::default() }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Keeps bytes of this kind. Their path.
    pub(super) fn put(&self, kind: &str, bytes: impl Into<Bytes>) -> String {
        let path = format!("/v/{kind}/{}.enc", self.next.fetch_add(1, Ordering::Relaxed));
        lock(&self.stored).insert(path.clone(), bytes.into());
        path
    }

    /// Forgets what lies there, as the platform does after some weeks. Whether anything did.
    pub(super) fn expire(&self, path: &str) -> bool {
        let forgotten = lock(&self.stored).remove_entry(path);
        forgotten.map(|(path, bytes)| lock(&self.expired).insert(path, bytes)).is_some()
    }

    /// Forgets everything.
    pub(super) fn expire_all(&self) {
        let forgotten = std::mem::take(&mut *lock(&self.stored));
        lock(&self.expired).extend(forgotten);
    }

    /// Uploads again what was forgotten. Its new path.
    pub(super) fn renew(&self, kind: &str, path: &str) -> Option<String> {
        let bytes = lock(&self.expired).get(path).cloned().or_else(|| self.get(path))?;
        Some(self.put(kind, bytes))
    }

    pub(super) fn get(&self, path: &str) -> Option<Bytes> {
        lock(&self.stored).get(path).cloned()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        lock(&self.stored).keys().cloned().collect()
    }
}

/// Serves one request to the media host.
pub(super) async fn serve(
    State(server): State<Arc<Server>>,
    ConnectInfo(line): ConnectInfo<Cutter>,
    request: Request,
) -> Response {
    let uploads = matches!(*request.method(), Method::POST | Method::PUT);
    let device = device_of(&request);
    let fault = server.faults.strike(device.as_ref(), if uploads { Happening::Upload } else { Happening::Download });
    match fault {
        Some(Fault::Refuse(status)) => {
            return StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).into_response();
        }
        Some(Fault::Late(after)) => tokio::time::sleep(after).await,
        Some(Fault::EndBefore(_)) => line.cut(),
        Some(Fault::Lost) => std::future::pending().await,
        _ => {}
    }
    let answer = if uploads { upload(&server, request).await } else { download(&server, &request) };
    match fault {
        Some(Fault::EndAfter(_) | Fault::EndLater(..)) => line.cut(),
        Some(Fault::Unanswered) => tokio::time::sleep(Duration::MAX).await,
        _ => {}
    }
    answer
}

/// Whose request it is: devices upload with what they were told with the host's name.
fn device_of(request: &Request) -> Option<Address> {
    let mut pairs = request.uri().query()?.split('&');
    let auth = pairs.find_map(|pair| pair.strip_prefix("auth="))?;
    let (number, device) = auth.strip_prefix("sim-")?.split_once('-')?;
    Some(Address::new(number, device.parse().ok()?))
}

/// What a device is told to upload with.
pub(super) fn authorization(device: &Address) -> String {
    format!("sim-{}-{}", device.number, device.device)
}

/// `POST /mms/<kind>/<hash>`; asked whether an upload was begun before, the host says that it wasn't.
async fn upload(server: &Server, request: Request) -> Response {
    let resumes = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "resume=1"));
    if resumes {
        return (StatusCode::NOT_FOUND, Json(json!({}))).into_response();
    }
    let mut parts = request.uri().path().split('/').skip(1);
    let kind = match (parts.next(), parts.next()) {
        (Some("mms"), Some(kind)) => kind.to_owned(),
        (Some(kind), _) => kind.to_owned(),
        _ => "mms".to_owned(),
    };
    let Ok(bytes) = body::to_bytes(request.into_body(), LARGEST).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let path = server.media.put(&kind, bytes);
    server.changed();
    Json(json!({ "url": format!("https://{}{path}", server.media.host()), "direct_path": path })).into_response()
}

fn download(server: &Server, request: &Request<Body>) -> Response {
    match server.media.get(request.uri().path()) {
        Some(bytes) => bytes.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
