//! Phones that scan by themselves: an endpoint that hears a daemon's events, and has the code that a channel shows scanned by
//! the phone that the channel is meant for. For demonstrations and measurements of many devices.

use std::{collections::HashMap, io, net::Ipv4Addr, sync::Arc};

use axum::{Json, Router, extract::State, routing::post};
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};

use super::Phone;

/// The endpoint. It lives until it is dropped.
#[derive(Debug)]
pub struct Scanner {
    url: String,
    task: JoinHandle<()>,
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scanner {
    /// Listens on a free port of 127.0.0.1, with the phone for each channel's id.
    pub async fn start(phones: HashMap<String, Phone>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/", listener.local_addr()?);
        let routes = Router::new().route("/", post(heard)).with_state(Arc::new(phones));
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::warn!(%error, "the scanner's endpoint ended");
            }
        });
        Ok(Self { url, task })
    }

    /// Where the daemon sends its events.
    pub fn url(&self) -> &str {
        &self.url
    }
}

async fn heard(State(phones): State<Arc<HashMap<String, Phone>>>, Json(events): Json<Value>) {
    let events = match events {
        Value::Array(several) => several,
        one => vec![one],
    };
    for event in events {
        let channel = event["channel_id"].as_str().unwrap_or_default();
        let code = event["data"]["code"].as_str().filter(|_| event["type"] == "channel.pairing_code");
        if let (Some(code), Some(phone)) = (code, phones.get(channel))
            && phone.devices().is_empty()
            && let Err(refused) = phone.scan(code)
        {
            // The next code comes by itself.
            tracing::debug!(%refused, "a code was not taken");
        }
    }
}
