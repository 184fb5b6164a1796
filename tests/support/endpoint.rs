//! An endpoint for the daemon's events, which keeps them all.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, extract::State, routing::post};
use serde_json::Value;

pub(crate) type Events = Arc<Mutex<Vec<Value>>>;

/// An endpoint that keeps every event.
pub(crate) async fn endpoint() -> (String, Events) {
    let events = Events::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listening");
    let address = listener.local_addr().expect("an address");
    let take = async |State(events): State<Events>, Json(event): Json<Value>| {
        let mut all = events.lock().expect("events");
        match event {
            Value::Array(several) => all.extend(several),
            one => all.push(one),
        }
    };
    let routes = Router::new().route("/", post(take)).with_state(events.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (format!("http://{address}/"), events)
}
