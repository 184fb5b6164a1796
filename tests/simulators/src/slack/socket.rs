//! One socket: the upgrade, the greeting, envelopes out, acknowledgements in, pings both ways.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_websockets::{Message, ServerBuilder, WebSocketStream};

use super::{
    app::{App, Greeting, Order, Socket},
    server::Server,
};
use crate::{line::Cutter, lock};

/// More connections of an app than this are turned away.
const MOST: usize = 10;
/// How long a connection stays after the close handshake, unless its client ends it.
const LINGER: Duration = Duration::from_secs(30);

type Stream = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Takes the upgrade of `/link?ticket=…`. A ticket is good once.
pub(super) fn upgrade(server: Arc<Server>, cutter: Cutter, mut request: Request) -> Response {
    let ticket = request.uri().query().unwrap_or_default();
    let ticket = ticket.split('&').find_map(|pair| pair.strip_prefix("ticket=")).unwrap_or_default().to_owned();
    let key = request.headers().get("sec-websocket-key").cloned();
    let app = server.apps().into_iter().find(|app| lock(&app.state).tickets.remove(&ticket));
    let (Some(app), Some(key)) = (app, key) else {
        return (StatusCode::UNAUTHORIZED, "unknown ticket").into_response();
    };
    let accept = Sha1::new().chain_update(key).chain_update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11").finalize();
    let upgrading = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrading.await {
            Ok(upgraded) => serve(&server, &app, cutter, ServerBuilder::new().serve(TokioIo::new(upgraded))).await,
            Err(error) => tracing::debug!(%error, "a client went away while it was upgraded"),
        }
    });
    let headers = [
        (header::CONNECTION, "upgrade".to_owned()),
        (header::UPGRADE, "websocket".to_owned()),
        (header::SEC_WEBSOCKET_ACCEPT, STANDARD.encode(accept)),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

/// The socket's place among those of its app; it is given up on drop, however the socket ends.
struct Place<'a> {
    server: &'a Server,
    app: &'a App,
    id: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.app.state);
        state.sockets.retain(|socket| socket.id != self.id);
        state.stats.closed();
        state.socket_is_gone(self.server, self.id);
        drop(state);
        self.server.changed();
    }
}

fn hello(app: &App, connections: usize) -> String {
    json!({
        "type": "hello", "num_connections": connections, "connection_info": {"app_id": app.id.as_ref()},
        "debug_info": {"host": "applink-simulator", "build_number": 1, "approximate_connection_time": 18060},
    })
    .to_string()
}

/// `disconnect`, as the platform words it.
pub(super) fn disconnect(reason: &str) -> String {
    json!({"type": "disconnect", "reason": reason, "debug_info": {"host": "applink-simulator"}}).to_string()
}

async fn serve(server: &Arc<Server>, app: &Arc<App>, cutter: Cutter, mut stream: Stream) {
    let (greeting, before) = {
        let state = lock(&app.state);
        (state.greeting.clone(), state.sockets.len())
    };
    if greeting == Greeting::Slam {
        return;
    }
    if greeting == Greeting::Silence {
        while let Some(Ok(_)) = stream.next().await {}
        return;
    }
    if stream.send(Message::text(hello(app, before + 1))).await.is_err() {
        return;
    }
    let gone = match greeting {
        Greeting::HelloAndGone(reason) => Some(reason),
        _ if before >= MOST => Some("too_many_websockets".to_owned()),
        _ => None,
    };
    let (orders, ordered) = unbounded_channel();
    let id = rand::random();
    let _place = Place { server, app, id };
    {
        let mut state = lock(&app.state);
        state.stats.opened();
        if gone.is_none() {
            state.sockets.push(Socket { id, orders, cutter, leaving: false });
            state.socket_is_there(server);
        }
    }
    server.changed();
    if let Some(reason) = gone {
        let _ = stream.send(Message::text(disconnect(&reason))).await;
        return close(stream).await;
    }
    talk(server, app, stream, ordered).await;
}

async fn talk(server: &Server, app: &App, mut stream: Stream, mut ordered: UnboundedReceiver<Order>) {
    let mut pings = tokio::time::interval(server.ping_every());
    pings.reset();
    loop {
        tokio::select! {
            order = ordered.recv() => match order {
                Some(Order::Send(text)) => if stream.send(Message::text(text)).await.is_err() {
                    return;
                },
                Some(Order::Close) => {
                    let _ = stream.send(Message::close(None, "")).await;
                }
                // The client's end is noticed by nobody.
                Some(Order::Freeze) => std::future::pending().await,
                None => return,
            },
            _ = pings.tick() => if stream.send(Message::ping("Ping from applink-simulator")).await.is_err() {
                return;
            },
            heard = stream.next() => match heard {
                Some(Ok(message)) if message.is_close() => {
                    lock(&app.state).stats.closes += 1;
                    server.changed();
                    return close(stream).await;
                }
                Some(Ok(message)) => hear(server, app, &message),
                _ => return,
            },
        }
    }
}

/// The platform answers a close frame and then leaves the connection open.
async fn close(mut stream: Stream) {
    let left = async { while let Some(Ok(_)) = stream.next().await {} };
    let _ = tokio::time::timeout(LINGER, left).await;
    // `next` ends with the handshake; the client's end of file is what is waited for.
    let mut rest = stream.into_inner();
    let ended = async {
        let mut nothing = [0; 64];
        while tokio::io::AsyncReadExt::read(&mut rest, &mut nothing).await.is_ok_and(|read| read > 0) {}
    };
    let _ = tokio::time::timeout(LINGER, ended).await;
}

fn hear(server: &Server, app: &App, message: &Message) {
    let mut state = lock(&app.state);
    if message.is_ping() {
        state.stats.pings += 1;
    }
    let said = message.as_text().and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let Some(envelope_id) = said.as_ref().and_then(|said| said["envelope_id"].as_str()) {
        state.acknowledge(envelope_id);
    }
    drop(state);
    server.changed();
}
