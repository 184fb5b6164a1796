//! A WhatsApp server on loopback.
//!
//! It keeps what the real one promises (a connection for each device, messages until they are acknowledged, one answer
//! for each query, keys that are handed out once) and lets clients pair, log in and talk that nobody here wrote. People
//! are phones: each has a Signal identity of its own, links devices, writes, reads, and answers for its account. The
//! server never sees what they say. Left out: calls, newsletters, communities, status, payments.

mod account;
mod address;
mod certificate;
mod connection;
mod fault;
mod frames;
mod group;
mod handshake;
mod login;
mod media;
mod message;
mod node;
mod pairing;
mod phone;
mod picture;
mod query;
mod receipt;
mod record;
mod scanner;
mod server;
mod state;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    extract::{ConnectInfo, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use base64::Engine as _;
use hyper_util::rt::TokioIo;
use sha1::{Digest as _, Sha1};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

pub use account::Login;
pub use address::Address;
pub use fault::{ALWAYS, End, Fault, FaultId, On};
pub use handshake::Pattern;
pub use pairing::PairingRefused;
pub use phone::{Attachment, History, Kind, Old, Phone, PhoneError, Receipt, Received};
pub use picture::Picture;
pub use record::{Stanza, Way};
pub use scanner::Scanner;
pub use waproto::whatsapp as proto;

use self::server::Server;
use crate::{
    TimedOut,
    line::{Cutter, Door, Lines},
};

/// Where the WebSocket is.
const SOCKET: &str = "/ws/chat";
/// What the key of a WebSocket is answered with (RFC 6455).
const WEBSOCKET_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The server. It lives until its last clone is dropped.
#[derive(Debug, Clone)]
pub struct WhatsApp {
    server: Arc<Server>,
    listening: Arc<Listening>,
}

#[derive(Debug)]
struct Listening {
    address: SocketAddr,
    open: watch::Sender<bool>,
    lines: Arc<Lines>,
    task: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
        self.lines.cut_all();
    }
}

impl WhatsApp {
    /// Listens on a free port of 127.0.0.1, on the runtime that this is called in.
    pub async fn start() -> io::Result<Self> {
        Self::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// Listens on a given address of loopback.
    pub async fn listen(address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a simulator listens on loopback only"));
        }
        let listener = TcpListener::bind(address).await?;
        let (open, opened) = watch::channel(true);
        let lines = Arc::new(Lines::default());
        let door = Door::new(listener, opened, Arc::clone(&lines))?;
        let address = axum::serve::Listener::local_addr(&door)?;
        let server = Arc::new(Server::new(address.to_string()));
        let routes = Router::new().route(SOCKET, get(socket)).fallback(media::serve).with_state(Arc::clone(&server));
        let task = tokio::spawn(async move {
            let served = axum::serve(door, routes.into_make_service_with_connect_info::<Cutter>()).await;
            if let Err(error) = served {
                tracing::error!(%error, "the simulator stopped serving");
            }
        });
        Ok(Self { server, listening: Arc::new(Listening { address, open, lines, task }) })
    }

    /// Where clients connect to: `ws://127.0.0.1:<port>/ws/chat`.
    pub fn url(&self) -> String {
        format!("ws://{}{SOCKET}", self.listening.address)
    }

    /// Where media lies, in place of the `https://` that clients put before the host they are told: `http://127.0.0.1:<port>`.
    pub fn media_url(&self) -> String {
        format!("http://{}", self.listening.address)
    }

    /// The key that signs this server's certificates, for clients that hold them against one.
    pub fn root_key(&self) -> [u8; 32] {
        self.server.identity.root()
    }

    /// The phone with this number (digits only), new or known.
    pub fn phone(&self, number: &str) -> Phone {
        Phone::of(&self.server, number)
    }

    /// Lets something go wrong `times` times ([`ALWAYS`]: until healed) where `on` matches.
    pub fn fault(&self, on: On, fault: Fault, times: u32) -> FaultId {
        self.server.faults.add(on, fault, times)
    }

    /// How often the fault struck.
    pub fn fired(&self, fault: FaultId) -> u32 {
        self.server.faults.fired(fault)
    }

    /// Ends one fault.
    pub fn heal(&self, fault: FaultId) {
        self.server.faults.heal(Some(fault));
    }

    /// Ends all faults.
    pub fn heal_all(&self) {
        self.server.faults.heal(None);
    }

    /// Ends a device's connection. Whether it had one.
    pub fn end(&self, device: &Address, end: End) -> bool {
        if end == End::Removed {
            let mut state = self.server.state();
            let connected = state.device(device).is_some_and(|device| device.wire.is_some());
            pairing::remove(&self.server, &mut state, device);
            return connected;
        }
        let wire = self.server.state().device(device).and_then(|device| device.wire.clone());
        wire.inspect(|wire| wire.end(end)).is_some()
    }

    /// Refuses connections from now on and resets those that are open. What waits for devices stays.
    pub fn outage(&self) {
        self.listening.open.send_replace(false);
        self.listening.lines.cut_all();
    }

    /// Ends the outage, on the same port.
    pub fn recover(&self) {
        self.listening.open.send_replace(true);
    }

    /// Resets every connection that is open now.
    pub fn reset_connections(&self) {
        self.listening.lines.cut_all();
    }

    /// Groups made from now on name their members by hidden ids, or by numbers.
    pub fn hide_members(&self, hide: bool) {
        self.server.hide_members(hide);
    }

    /// Forgets media as the platform does after some weeks. Whether there was any.
    pub fn expire_media(&self, path: &str) -> bool {
        self.server.media.expire(path)
    }

    /// Forgets all media.
    pub fn expire_all_media(&self) {
        self.server.media.expire_all();
    }

    /// Where media lies that was uploaded.
    pub fn media_paths(&self) -> Vec<String> {
        self.server.media.paths()
    }

    /// All stanzas that devices sent and were sent, oldest first.
    pub fn stanzas(&self) -> Vec<Stanza> {
        self.server.record().stanzas()
    }

    /// The ids of the messages that a device put on the wire, in order, repeats included.
    pub fn sent_by(&self, device: &Address) -> Vec<String> {
        let sent = |stanza: &Stanza| {
            stanza.way == Way::FromDevice && stanza.tag == "message" && stanza.device.as_ref() == Some(device)
        };
        self.stanzas().into_iter().filter(sent).filter_map(|stanza| stanza.id).collect()
    }

    /// All logins, those that were refused included.
    pub fn logins(&self) -> Vec<Login> {
        self.server.record().logins.clone()
    }

    /// Queries that were refused because the simulator doesn't know them.
    pub fn unknown_queries(&self) -> Vec<String> {
        self.server.unknown()
    }

    /// Keeps only so many stanzas in the record, for runs that go on for long.
    pub fn keep(&self, stanzas: usize) {
        self.server.record().keep(stanzas);
    }

    /// The connection that a device has at this moment.
    pub fn connection(&self, device: &Address) -> Option<u64> {
        let state = self.server.state();
        let device = state.device(device).filter(|device| device.active)?;
        device.wire.as_ref().map(|wire| wire.id)
    }

    /// How many devices are logged in and ready.
    pub fn devices_online(&self) -> usize {
        let state = self.server.state();
        let devices = state.accounts().flat_map(|account| account.devices.values());
        devices.filter(|device| device.active && device.wire.is_some()).count()
    }

    /// How many messages wait for a device, sent but not acknowledged ones included.
    pub fn waiting_for(&self, device: &Address) -> usize {
        let state = self.server.state();
        state.device(device).map_or(0, |device| device.mailbox.iter().filter(|kept| kept.class == "message").count())
    }

    /// Waits until a device is logged in and ready.
    pub async fn wait_for_device(&self, device: &Address, within: Duration) -> Result<u64, TimedOut> {
        self.wait_for(&format!("device {device} online"), within, || self.connection(device)).await
    }

    /// Waits until so many devices are logged in and ready.
    pub async fn wait_for_devices(&self, devices: usize, within: Duration) -> Result<(), TimedOut> {
        let what = format!("{devices} devices online");
        self.wait_for(&what, within, || (self.devices_online() >= devices).then_some(())).await
    }

    /// Waits until `seen` finds what it looks for; it is asked again at each change.
    pub async fn wait_for<T>(
        &self,
        what: &str,
        within: Duration,
        seen: impl FnMut() -> Option<T>,
    ) -> Result<T, TimedOut> {
        self.server.wait_for(what, within, seen).await
    }
}

/// Turns a request into a WebSocket.
async fn socket(
    State(server): State<Arc<Server>>,
    ConnectInfo(cutter): ConnectInfo<Cutter>,
    mut request: Request,
) -> Response {
    let Some(key) = request.headers().get(header::SEC_WEBSOCKET_KEY).cloned() else {
        return StatusCode::UPGRADE_REQUIRED.into_response();
    };
    let accept = Sha1::new().chain_update(key.as_bytes()).chain_update(WEBSOCKET_GUID).finalize();
    let accept = base64::engine::general_purpose::STANDARD.encode(accept);
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let socket = tokio_websockets::ServerBuilder::new().serve(TokioIo::new(upgraded));
        if let Err(error) = connection::serve(server, socket, cutter).await {
            tracing::debug!(%error, "a connection ended");
        }
    });
    let upgraded = [
        (header::CONNECTION, "upgrade".to_owned()),
        (header::UPGRADE, "websocket".to_owned()),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, upgraded).into_response()
}
