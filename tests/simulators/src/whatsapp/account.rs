//! An account: its phone, the devices linked to it, and what the server keeps for each of them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::SystemTime,
};

use buffa::Message as _;
use tokio::sync::mpsc;
use wacore::{crypto::generate_curve_key_pair, libsignal::protocol::KeyPair};
use wacore_binary::{Jid, Node};
use waproto::whatsapp::{ADVKeyIndexList, ADVSignedKeyIndexList};

use super::{
    address::Address,
    certificate::sign,
    connection::Wire,
    node::{el, now},
    phone::{History, Inbox, Order},
    picture::Picture,
};

/// What is signed before a list of devices.
const KEY_INDEX_PREFIX: [u8; 2] = [6, 2];

/// The keys that others need to write to a device first.
#[derive(Debug, Default, Clone)]
pub(super) struct Bundle {
    pub(super) registration: Vec<u8>,
    pub(super) identity: Vec<u8>,
    pub(super) signed: Option<Node>,
    pub(super) one_time: VecDeque<Node>,
    pub(super) device_identity: Vec<u8>,
}

/// A stanza that waits for the device to acknowledge it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) class: &'static str,
    pub(super) id: String,
    pub(super) node: Node,
    /// The connection that it went out on, if it did.
    pub(super) sent_on: Option<u64>,
}

/// A linked device.
#[derive(Debug, Default)]
pub(super) struct Device {
    pub(super) bundle: Bundle,
    pub(super) key_index: u32,
    pub(super) wire: Option<Wire>,
    /// It said that it is ready for what waits for it.
    pub(super) active: bool,
    pub(super) mailbox: VecDeque<Waiting>,
    /// It left its keys after it was linked; before that nobody is told of it.
    pub(super) announced: bool,
    /// The phone was told that few one-time keys are left, and no new ones came since.
    pub(super) told_low: bool,
}

impl Device {
    /// Drops what the device has acknowledged.
    pub(super) fn acknowledge(&mut self, class: &str, ids: &[String]) {
        self.mailbox.retain(|waiting| waiting.class != class || !ids.contains(&waiting.id));
    }
}

/// An account.
pub(super) struct Account {
    pub(super) number: String,
    pub(super) lid: String,
    pub(super) name: String,
    /// The phone's identity; it signs the devices too.
    pub(super) identity: KeyPair,
    pub(super) devices: BTreeMap<u16, Device>,
    pub(super) phone: mpsc::UnboundedSender<Order>,
    pub(super) inbox: Arc<Inbox>,
    /// What the phone hands to devices that are linked later.
    pub(super) history: Vec<History>,
    /// The phone has not kept the media that it was sent.
    pub(super) lost_media: bool,
    pub(super) picture: Picture,
    /// What clients sync among themselves, by name: each entry is a patch as it was uploaded, numbered.
    pub(super) collections: BTreeMap<String, Vec<Vec<u8>>>,
    next_device: u16,
    raw_id: u32,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Account").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Account {
    pub(super) fn new(
        number: &str,
        lid: String,
        raw_id: u32,
        phone: mpsc::UnboundedSender<Order>,
        inbox: Arc<Inbox>,
    ) -> Self {
        Self {
            number: number.to_owned(),
            lid,
            name: number.to_owned(),
            identity: generate_curve_key_pair(),
            devices: BTreeMap::new(),
            phone,
            inbox,
            history: Vec::new(),
            lost_media: false,
            picture: Picture::None,
            collections: BTreeMap::new(),
            next_device: 1,
            raw_id,
        }
    }

    /// A place for another device: its number, which is its key index too. Numbers are never used again.
    pub(super) fn next_device(&mut self) -> u16 {
        let device = self.next_device;
        self.next_device += 1;
        device
    }

    pub(super) fn raw_id(&self) -> u32 {
        self.raw_id
    }

    pub(super) fn address(&self, device: u16) -> Address {
        Address::new(self.number.as_str(), device)
    }

    /// The devices that others write to, the phone first.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        let linked = self.devices.iter().filter(|(id, device)| **id == 0 || device.announced);
        linked.map(|(id, _)| self.address(*id))
    }

    /// The list of devices as the account signs it.
    pub(super) fn key_index_list(&self) -> Node {
        let linked = self.devices.iter().filter(|(id, device)| **id == 0 || device.announced);
        let valid: Vec<u32> = linked.map(|(_, device)| device.key_index).collect();
        let details = ADVKeyIndexList {
            raw_id: Some(self.raw_id),
            timestamp: Some(now()),
            current_index: Some(u32::from(self.next_device - 1)),
            valid_indexes: valid,
            ..Default::default()
        };
        let details = details.encode_to_vec();
        let signature = sign(&self.identity, &[&KEY_INDEX_PREFIX[..], &details].concat());
        let signed =
            ADVSignedKeyIndexList { details: Some(details), account_signature: Some(signature), ..Default::default() };
        let bytes = waproto::codec::adv_signed_key_index_list_to_vec(&signed);
        el("key-index-list").attr("ts", now().to_string()).bytes(bytes).build()
    }

    /// One device in a notification about it.
    pub(super) fn device_node(&self, device: u16) -> Node {
        let index = self.devices.get(&device).map(|device| device.key_index).unwrap_or_default();
        el("device")
            .attr("jid", self.address(device).jid())
            .attr("lid", Jid::lid_device(self.lid.as_str(), device))
            .attr("key-index", index.to_string())
            .build()
    }
}

/// A login of a device, for those who count them.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Login {
    /// Who logged in.
    pub device: Address,
    /// On which connection.
    pub connection: u64,
    /// Which handshake it chose.
    pub pattern: super::handshake::Pattern,
    /// Whether it was let in.
    pub accepted: bool,
    /// When.
    #[serde(skip)]
    pub at: SystemTime,
}
