//! One connection: handshake, then stanzas both ways until either side ends it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::mpsc;
use wacore_binary::Node;
use wacore_noise::NoiseCipher;

use super::{
    Server,
    address::Address,
    fault::{End, Fault, Happening},
    frames::{self, Reader, Socket, Writer},
    handshake, login, message,
    node::{attr, el},
    query, receipt,
    record::Way,
};
use crate::line::Cutter;

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("the socket failed: {0}")]
    Socket(String),
    #[error("the greeting is another protocol's")]
    Greeting,
    #[error("the handshake failed: {0}")]
    Handshake(&'static str),
    #[error("the handshake's cipher failed: {0}")]
    Noise(String),
    #[error("a stanza can't be read")]
    Stanza,
}

#[derive(Debug)]
enum Out {
    Node(Box<Node>),
    Close,
}

/// The server's end of a connection, held by whoever writes to it.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    pub(super) id: u64,
    out: mpsc::UnboundedSender<Out>,
    cutter: Cutter,
    ended: Arc<AtomicBool>,
}

impl Wire {
    /// Sends without asking for faults.
    pub(super) fn send(&self, node: Node) {
        // A connection that is gone takes nothing more.
        let _ = self.out.send(Out::Node(Box::new(node)));
    }

    /// Ends the connection, with what there is to say first.
    pub(super) fn end(&self, end: End) {
        let conflict = |kind: &'static str| el("conflict").attr("type", kind).build();
        match end {
            End::Failure(reason) => self.send(el("failure").attr("reason", reason.to_string()).build()),
            End::Banned(time) => {
                let failure = el("failure").attr("reason", "402").attr("code", "101");
                self.send(failure.attr("expire", time.as_secs().to_string()).build());
            }
            End::Error(code) => self.send(el("stream:error").attr("code", code.to_string()).build()),
            End::Unnamed => self.send(el("stream:error").build()),
            End::Replaced => self.send(el("stream:error").children([conflict("replaced")]).build()),
            End::Removed => {
                self.send(el("stream:error").attr("code", "401").children([conflict("device_removed")]).build());
            }
            End::Closed => {}
            End::Cut => self.cutter.cut(),
        }
        let _ = self.out.send(Out::Close);
        self.ended.store(true, Ordering::Release);
    }

    /// Whether the client was told to leave. It may not have left yet.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn end_later(&self, end: End, after: Duration) {
        let wire = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            wire.end(end);
        });
    }
}

/// A connection while it lasts.
pub(super) struct Session {
    pub(super) server: Arc<Server>,
    pub(super) wire: Wire,
    pub(super) me: Option<Address>,
}

/// Serves one client until it leaves.
pub(super) async fn serve(server: Arc<Server>, socket: Socket, cutter: Cutter) -> Result<(), Broken> {
    let (mut reader, mut writer) = frames::split(socket);
    let secured = handshake::shake(&server.identity, &mut reader, &mut writer).await?;
    let (out, outbox) = mpsc::unbounded_channel();
    let wire = Wire { id: server.next.fetch_add(1, Ordering::Relaxed), out, cutter, ended: Arc::default() };
    let writing = tokio::spawn(write(outbox, writer, secured.to_client));
    let me = login::admit(&server, &wire, secured.pattern, &secured.payload);
    let mut session = Session { server, wire, me };
    let read = session.read(&mut reader, &secured.from_client).await;
    session.leave();
    drop(session);
    // What was queued before the end still goes out.
    let _ = tokio::time::timeout(Duration::from_secs(1), writing).await;
    read
}

/// How long a client may take to leave after it was told why it has to.
const LINGER: Duration = Duration::from_millis(500);

async fn write(mut outbox: mpsc::UnboundedReceiver<Out>, mut writer: Writer, cipher: NoiseCipher) {
    let mut counter = 0;
    while let Some(Out::Node(node)) = outbox.recv().await {
        tracing::trace!(tag = %node.tag, id = attr(&node, "id"), "to the device");
        let Ok(plain) = wacore_binary::marshal::marshal(&node) else {
            tracing::error!(tag = %node.tag, "a stanza can't be written");
            continue;
        };
        let Ok(sealed) = cipher.encrypt_with_counter(counter, &plain) else { break };
        counter += 1;
        if writer.send(&sealed).await.is_err() {
            break;
        }
    }
    // A client that was told to leave closes by itself; what it still waits for never comes.
    let _ = tokio::time::timeout(LINGER, async { while outbox.recv().await.is_some() {} }).await;
    writer.close().await;
}

impl Session {
    async fn read(&mut self, reader: &mut Reader, cipher: &NoiseCipher) -> Result<(), Broken> {
        let mut counter = 0;
        while let Some(mut frame) = reader.next().await? {
            cipher
                .decrypt_in_place_with_counter(counter, &mut frame)
                .map_err(|error| Broken::Noise(error.to_string()))?;
            counter += 1;
            let plain = wacore_binary::util::unpack(&frame).map_err(|_| Broken::Stanza)?;
            let node = wacore_binary::marshal::unmarshal_ref(&plain).map_err(|_| Broken::Stanza)?.to_owned();
            self.take(node);
        }
        Ok(())
    }

    /// A stanza came in: a fault may strike before it is acted upon, or after.
    fn take(&mut self, node: Node) {
        tracing::trace!(tag = %node.tag, id = attr(&node, "id"), "from a device");
        self.server.note(Way::FromDevice, self.me.as_ref(), self.wire.id, &node);
        let fault = self.server.faults.strike(self.me.as_ref(), Happening::Stanza(Way::FromDevice, &node));
        match fault {
            None => self.act(&node, true),
            Some(Fault::Lost) => {}
            Some(Fault::Unanswered) => self.act(&node, false),
            Some(Fault::Twice) => {
                self.act(&node, true);
                self.act(&node, true);
            }
            Some(Fault::Late(after)) => {
                let mut later = Self { server: Arc::clone(&self.server), wire: self.wire.clone(), me: self.me.clone() };
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    later.act(&node, true);
                });
            }
            Some(Fault::Refuse(code)) => self.refuse(&node, code),
            Some(Fault::EndBefore(end)) => self.wire.end(end),
            Some(Fault::EndAfter(end)) => {
                self.act(&node, false);
                self.wire.end(end);
            }
            Some(Fault::EndLater(end, after)) => {
                self.act(&node, true);
                self.wire.end_later(end, after);
            }
        }
        self.server.changed();
    }

    fn act(&mut self, node: &Node, answered: bool) {
        match (node.tag.as_ref(), &self.me) {
            ("iq", _) => {
                if let Some(answer) = query::answer(self, node).filter(|_| answered) {
                    self.wire.send(answer);
                }
            }
            ("message", Some(me)) => {
                let ack = message::relay(&self.server, me, node);
                if answered {
                    self.wire.send(ack);
                }
            }
            ("receipt", Some(me)) => {
                let ack = receipt::relay(&self.server, me, node);
                if answered {
                    self.wire.send(ack);
                }
            }
            ("ack", Some(me)) => receipt::acknowledged(&self.server, me, node),
            ("presence" | "chatstate", Some(me)) => message::relay_presence(&self.server, me, node),
            // What else a client tells needs no answer.
            _ => {}
        }
    }

    fn refuse(&self, node: &Node, code: u16) {
        let id = attr(node, "id").unwrap_or_default();
        let refused = if node.tag == "iq" {
            query::refused(&id, code, "refused by a fault")
        } else {
            message::ack(node).attr("error", code.to_string()).build()
        };
        self.wire.send(refused);
    }

    fn leave(&self) {
        let mut state = self.server.state();
        state.pairings.retain(|_, pairing| pairing.wire.id != self.wire.id);
        let device = self.me.as_ref().and_then(|me| state.device_mut(me));
        if let Some(device) = device.filter(|device| device.wire.as_ref().is_some_and(|wire| wire.id == self.wire.id)) {
            device.wire = None;
            device.active = false;
        }
        drop(state);
        self.server.changed();
    }
}
