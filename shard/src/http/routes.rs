//! The endpoints.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;

use super::{
    coalesce::Coalesced,
    view::{Part, View},
};

const NO_VIEW: &str = "no answer from the primary";

pub(super) fn router(views: Coalesced) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .with_state(views)
}

async fn readyz(State(views): State<Coalesced>) -> Response {
    let view = views.view(Part::Ready).await;
    let (ready, reasons) = match &view {
        Some(view) => (view.ready, view.reasons.clone()),
        None => (false, vec![NO_VIEW.to_owned()]),
    };
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, axum::Json(json!({"ready": ready, "reasons": reasons}))).into_response()
}

async fn metrics(State(views): State<Coalesced>) -> Response {
    answer(views.view(Part::Metrics).await, |view| {
        ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], view.metrics.clone()).into_response()
    })
}

async fn status(State(views): State<Coalesced>) -> Response {
    answer(views.view(Part::Status).await, |view| axum::Json(&view.status).into_response())
}

fn answer(view: Option<Arc<View>>, show: impl Fn(&View) -> Response) -> Response {
    match view {
        Some(view) => show(&view),
        None => (StatusCode::SERVICE_UNAVAILABLE, format!("{NO_VIEW}\n")).into_response(),
    }
}
