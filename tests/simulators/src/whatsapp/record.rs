//! What was on the wire: the judge of "the same id after a crash" and "shown once".

use std::{collections::VecDeque, time::Instant};

use serde::Serialize;
use wacore_binary::Node;

use super::{
    account::Login,
    address::Address,
    node::{attr, children},
};

/// Which way a stanza went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From a device to the server.
    FromDevice,
    /// From the server to a device.
    ToDevice,
}

/// One stanza.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stanza {
    /// Which way.
    pub way: Way,
    /// The device, where it is known; one that pairs has no address yet.
    pub device: Option<Address>,
    /// On which connection.
    pub connection: u64,
    /// Milliseconds since the simulator started.
    pub at_ms: u64,
    /// `message`, `receipt`, `iq`, ….
    pub tag: String,
    /// Its `type`.
    pub kind: Option<String>,
    /// Its namespace, or the tag of its first child.
    pub about: Option<String>,
    /// Its id.
    pub id: Option<String>,
    /// Whom it is for, or whom it is from, as the device sees it.
    pub peer: Option<String>,
}

/// All that was seen, bounded.
#[derive(Debug)]
pub(super) struct Record {
    started: Instant,
    stanzas: VecDeque<Stanza>,
    keep: usize,
    pub(super) logins: Vec<Login>,
}

impl Record {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), stanzas: VecDeque::new(), keep: 100_000, logins: Vec::new() }
    }

    pub(super) fn keep(&mut self, stanzas: usize) {
        self.keep = stanzas;
        self.trim();
    }

    fn trim(&mut self) {
        while self.stanzas.len() > self.keep {
            self.stanzas.pop_front();
        }
    }

    pub(super) fn note(&mut self, way: Way, device: Option<&Address>, connection: u64, node: &Node) {
        let peer = if way == Way::FromDevice { attr(node, "to") } else { attr(node, "from") };
        self.stanzas.push_back(Stanza {
            way,
            device: device.cloned(),
            connection,
            at_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            tag: node.tag.to_string(),
            kind: attr(node, "type"),
            about: attr(node, "xmlns").or_else(|| children(node).first().map(|child| child.tag.to_string())),
            id: attr(node, "id"),
            peer,
        });
        self.trim();
    }

    pub(super) fn stanzas(&self) -> Vec<Stanza> {
        self.stanzas.iter().cloned().collect()
    }
}
