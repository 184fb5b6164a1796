//! The server behind all connections: its state, its record, and the one place where stanzas are handed to devices.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use wacore_binary::Node;

use super::{
    account::Waiting,
    address::Address,
    certificate::Identity,
    connection::Wire,
    fault::{Fault, Faults, Happening},
    media::Media,
    node::{attr, children, el},
    phone::Order,
    picture::Picture,
    record::{Record, Way},
    state::State,
};
use crate::lock;

/// Stanzas that stay with the server until the device has them in safety.
const KEPT: [&str; 3] = ["message", "notification", "receipt"];

/// The server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) identity: Identity,
    pub(super) faults: Faults,
    pub(super) next: AtomicU64,
    pub(super) media: Media,
    state: Mutex<State>,
    record: Mutex<Record>,
    changes: Notify,
    hides: AtomicBool,
    unknown: Mutex<Vec<String>>,
}

impl Server {
    pub(super) fn new(host: String) -> Self {
        Self {
            identity: Identity::new(),
            faults: Faults::default(),
            next: AtomicU64::new(1),
            media: Media::new(host),
            state: Mutex::default(),
            record: Mutex::new(Record::new()),
            changes: Notify::new(),
            hides: AtomicBool::new(false),
            unknown: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }

    pub(super) fn changes(&self) -> &Notify {
        &self.changes
    }

    /// Wakes whoever waits for a condition.
    pub(super) fn changed(&self) {
        self.changes.notify_waiters();
    }

    /// An id for a stanza of the server's own.
    pub(super) fn next_id(&self) -> String {
        format!("S{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn media_host(&self) -> &str {
        self.media.host()
    }

    pub(super) fn hides_members(&self) -> bool {
        self.hides.load(Ordering::Relaxed)
    }

    pub(super) fn hide_members(&self, hide: bool) {
        self.hides.store(hide, Ordering::Relaxed);
    }

    /// Puts a picture on the media host.
    pub(super) fn show(&self, bytes: Vec<u8>) -> Picture {
        let id = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        Picture::Shown { path: self.media.put("pps", bytes), id }
    }

    pub(super) fn note(&self, way: Way, device: Option<&Address>, connection: u64, node: &Node) {
        self.record().note(way, device, connection, node);
    }

    /// A client asked for something that this server has no answer to.
    pub(super) fn note_unknown(&self, what: &str, iq: &Node) {
        let tags: Vec<&str> = children(iq).iter().map(|child| child.tag.as_ref()).collect();
        tracing::warn!(query = what, children = ?tags, "a query that the simulator doesn't know");
        lock(&self.unknown).push(format!("{what}: {}", tags.join(", ")));
    }

    pub(super) fn unknown(&self) -> Vec<String> {
        lock(&self.unknown).clone()
    }

    /// Hands a stanza to a device, now or when it comes back; the phone is always there.
    pub(super) fn deliver(&self, state: &mut State, to: &Address, node: Node) {
        if to.is_phone() {
            if let Some(account) = state.account(&to.number) {
                let _ = account.phone.send(Order::Stanza(node));
            }
            return;
        }
        let Some(device) = state.device_mut(to) else { return };
        let wire = device.wire.clone().filter(|_| device.active);
        if let Some(class) = KEPT.into_iter().find(|class| *class == node.tag) {
            let id = attr(&node, "id").unwrap_or_default();
            let sent_on = wire.as_ref().map(|wire| wire.id);
            device.mailbox.push_back(Waiting { class, id, node: node.clone(), sent_on });
        }
        if let Some(wire) = wire {
            self.send(to, &wire, node);
        }
    }

    /// Sends on a connection, unless a fault strikes.
    pub(super) fn send(&self, to: &Address, wire: &Wire, node: Node) {
        let fault = self.faults.strike(Some(to), Happening::Stanza(Way::ToDevice, &node));
        let note = |node: &Node| self.note(Way::ToDevice, Some(to), wire.id, node);
        match fault {
            Some(Fault::Lost | Fault::Refuse(_) | Fault::Unanswered) => {}
            Some(Fault::EndBefore(end)) => wire.end(end),
            Some(Fault::Late(after)) => {
                note(&node);
                let wire = wire.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    wire.send(node);
                });
            }
            Some(Fault::Twice) => {
                note(&node);
                note(&node);
                wire.send(node.clone());
                wire.send(node);
            }
            Some(Fault::EndAfter(end)) => {
                note(&node);
                wire.send(node);
                wire.end(end);
            }
            Some(Fault::EndLater(end, after)) => {
                note(&node);
                wire.send(node);
                let wire = wire.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    wire.end(end);
                });
            }
            None => {
                note(&node);
                wire.send(node);
            }
        }
    }

    /// The device is ready: what waits for it goes out, announced beforehand and rounded off with a count.
    pub(super) fn activate(&self, me: &Address, connection: u64) {
        let mut state = self.state();
        let Some(device) = state.device_mut(me) else { return };
        let Some(wire) = device.wire.clone().filter(|wire| wire.id == connection) else { return };
        device.active = true;
        let mut backlog = Vec::new();
        for waiting in device.mailbox.iter_mut().filter(|waiting| waiting.sent_on != Some(connection)) {
            waiting.sent_on = Some(connection);
            backlog.push((waiting.class, waiting.node.clone()));
        }
        let count = |class: &str| backlog.iter().filter(|(other, _)| *other == class).count().to_string();
        let preview = el("offline_preview")
            .attr("count", backlog.len().to_string())
            .attr("message", count("message"))
            .attr("notification", count("notification"))
            .attr("receipt", count("receipt"))
            .attr("appdata", "0");
        self.send(me, &wire, el("ib").attr("from", super::node::SERVER).children([preview.build()]).build());
        let total = backlog.len().to_string();
        for (place, (_, mut node)) in backlog.into_iter().enumerate() {
            node.attrs.insert("offline", place.to_string());
            self.send(me, &wire, node);
        }
        let offline = el("offline").attr("count", total).build();
        self.send(me, &wire, el("ib").attr("from", super::node::SERVER).children([offline]).build());
    }

    /// Waits until `seen` finds what it looks for; it is asked again at each change.
    pub(super) async fn wait_for<T>(
        self: &Arc<Self>,
        what: &str,
        within: Duration,
        mut seen: impl FnMut() -> Option<T>,
    ) -> Result<T, crate::TimedOut> {
        let wait = async {
            loop {
                let changed = self.changes().notified();
                tokio::pin!(changed);
                // Listening starts before looking, or a change between the two would be missed.
                changed.as_mut().enable();
                if let Some(found) = seen() {
                    return found;
                }
                changed.await;
            }
        };
        let timed_out = |_| crate::TimedOut { what: what.to_owned(), waited: within };
        tokio::time::timeout(within, wait).await.map_err(timed_out)
    }
}
