//! Sockets at work: the ticket, the handshake, frames in and out. What follows from them is decided in
//! [`link`](super::link).
//!
//! The handshake is an upgrade by the HTTP client that everything else uses, so that proxies, roots and time limits are the
//! same. A socket reads into a buffer of 8 KiB, which grows for a large frame and is not kept at that size.

use std::{future::poll_fn, task::Poll, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::{SinkExt, Stream};
use reqwest::{StatusCode, Upgraded, header};
use serde_json::json;
use sha1::{Digest, Sha1};
use tokio_websockets::{ClientBuilder, Limits, Message, WebSocketStream};
use url::Url;

use super::{
    api::{Api, CallError, unanswered},
    link::SocketId,
    outcome::closed,
};
use crate::{platform::Closed, secret::Secret};

/// What a frame may hold. An event is a small part of it.
const LARGEST_FRAME: usize = 4 << 20;
/// How long a write may take. A peer that reads nothing for so long is as good as gone.
const WRITE: Duration = Duration::from_secs(3);
/// How long the call for a ticket may take.
const TICKET: Duration = Duration::from_secs(10);

/// One socket.
pub(super) type Socket = WebSocketStream<Upgraded>;

/// Asks for a ticket and connects with it.
pub(super) async fn dial(api: &Api, app_token: &Secret) -> Result<Socket, Closed> {
    let answer = api.call(app_token, "apps.connections.open", &json!({}), TICKET).await;
    let answer = answer.map_err(|error| closed(&error, "apps.connections.open"))?;
    let address = answer["url"].as_str().and_then(|url| Url::parse(url).ok());
    let transient = |reason: &str| Closed::Transient { reason: reason.to_owned(), after: None };
    let mut address = address.ok_or_else(|| transient("apps.connections.open gave no address"))?;
    let scheme = match address.scheme() {
        "wss" => "https",
        "ws" => "http",
        _ => return Err(transient("apps.connections.open gave an address that is no socket's")),
    };
    address.set_scheme(scheme).map_err(|()| transient("apps.connections.open gave an address of no use"))?;
    connect(api, address).await.map_err(|error| closed(&error, "the socket"))
}

async fn connect(api: &Api, address: Url) -> Result<Socket, CallError> {
    let key = STANDARD.encode(rand::random::<[u8; 16]>());
    let request = api.client().get(address).header(header::CONNECTION, "Upgrade").header(header::UPGRADE, "websocket");
    let request = request.header(header::SEC_WEBSOCKET_VERSION, "13").header(header::SEC_WEBSOCKET_KEY, &key);
    let response = request.send().await.map_err(unanswered)?;
    let accept = Sha1::new().chain_update(&key).chain_update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11").finalize();
    let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT).map(|value| value.as_bytes());
    let fits =
        response.status() == StatusCode::SWITCHING_PROTOCOLS && accepted == Some(STANDARD.encode(accept).as_bytes());
    if !fits {
        return Err(CallError::Foreign { status: response.status().as_u16() });
    }
    let upgraded = response.upgrade().await.map_err(unanswered)?;
    let limits = Limits::default().max_payload_len(Some(LARGEST_FRAME));
    Ok(ClientBuilder::new().limits(limits).take_over(upgraded))
}

/// What came in on a socket.
#[derive(Debug)]
pub(super) enum Heard {
    /// A text frame.
    Text(Message),
    /// Any other frame: a ping, which is answered by itself, a pong, or the start of a close.
    Other,
    /// Nothing more will come.
    End,
}

/// The sockets of one app that are connected.
#[derive(Default)]
pub(super) struct Sockets(Vec<(SocketId, Socket)>);

impl Sockets {
    pub(super) fn add(&mut self, id: SocketId, socket: Socket) {
        self.0.push((id, socket));
    }

    pub(super) fn remove(&mut self, id: SocketId) {
        self.0.retain(|(other, _)| *other != id);
    }

    /// The next that comes in on any of them; a socket that ended is removed. Cancel-safe; never ready without sockets.
    pub(super) async fn next(&mut self) -> (SocketId, Heard) {
        poll_fn(|cx| {
            for at in 0..self.0.len() {
                let (id, socket) = &mut self.0[at];
                let id = *id;
                match std::pin::Pin::new(socket).poll_next(cx) {
                    Poll::Pending => {}
                    Poll::Ready(Some(Ok(message))) => {
                        // The one that was heard last is asked last.
                        self.0[at..].rotate_left(1);
                        let heard = if message.is_text() { Heard::Text(message) } else { Heard::Other };
                        return Poll::Ready((id, heard));
                    }
                    Poll::Ready(Some(Err(_)) | None) => {
                        self.0.remove(at);
                        return Poll::Ready((id, Heard::End));
                    }
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Sends texts to a socket in as few writes as may be. `false` when it has just ended by that.
    pub(super) async fn send(&mut self, id: SocketId, texts: impl IntoIterator<Item = String>) -> bool {
        let Some((_, socket)) = self.0.iter_mut().find(|(other, _)| *other == id) else { return true };
        let sending = async {
            for text in texts {
                socket.feed(Message::text(text)).await?;
            }
            socket.flush().await
        };
        let sent = matches!(tokio::time::timeout(WRITE, sending).await, Ok(Ok(())));
        if !sent {
            self.remove(id);
        }
        sent
    }

    /// Asks whether a socket lives.
    pub(super) async fn ping(&mut self, id: SocketId) {
        self.control(id, Message::ping("shardvisor")).await;
    }

    /// Sends a close frame.
    pub(super) async fn close(&mut self, id: SocketId) {
        self.control(id, Message::close(None, "")).await;
    }

    /// Queues a frame and tries to write it; a connection that is stuck is left to its silence.
    async fn control(&mut self, id: SocketId, message: Message) {
        if let Some((_, socket)) = self.0.iter_mut().find(|(other, _)| *other == id) {
            let _ = tokio::time::timeout(Duration::from_millis(100), socket.send(message)).await;
        }
    }
}
