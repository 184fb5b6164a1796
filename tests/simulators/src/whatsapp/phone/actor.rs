//! A phone at work: orders come in, and are done one after the other.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Weak},
};

use rand::Rng as _;
use tokio::sync::mpsc;
use wacore_binary::Jid;
use waproto::whatsapp::{Message, history_sync::HistorySyncType};

use super::{
    History, Inbox, Order, PhoneError,
    history::{Portion, key_share},
    link::Linking,
    signal::Signal,
};
use crate::whatsapp::{Server, account::Account, address::Address};

/// How many of its messages a phone can send again.
const KEPT: usize = 500;

/// A message that was sent, for those who could not read it.
pub(super) struct Sent {
    pub(super) id: String,
    pub(super) chat: Jid,
    pub(super) message: Message,
}

/// The phone's own side.
pub(super) struct Actor {
    pub(super) server: Weak<Server>,
    pub(super) me: Address,
    pub(super) inbox: Arc<Inbox>,
    pub(super) signal: Signal,
    pub(super) sent: VecDeque<Sent>,
    /// Who has this phone's key of a group.
    pub(super) key_holders: HashMap<String, BTreeSet<Address>>,
    pub(super) linking: Option<Linking>,
    sync_key: [u8; 32],
    raw_id: u32,
}

impl Actor {
    pub(super) fn new(server: &Arc<Server>, account: &Account, signal: Signal) -> Self {
        Self {
            server: Arc::downgrade(server),
            me: account.address(0),
            inbox: Arc::clone(&account.inbox),
            signal,
            sent: VecDeque::new(),
            key_holders: HashMap::new(),
            linking: None,
            sync_key: rand::rng().random(),
            raw_id: account.raw_id(),
        }
    }

    pub(super) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            let Some(server) = self.server.upgrade() else { return };
            self.obey(&server, order).await;
            server.changed();
        }
    }

    async fn obey(&mut self, server: &Arc<Server>, order: Order) {
        match order {
            Order::Stanza(node) => self.take(server, &node).await,
            Order::Linked(device) => {
                if let Err(error) = self.welcome(server, &device).await {
                    tracing::warn!(%device, %error, "a phone can't welcome its device");
                }
            }
            Order::Link { digits, done } => self.link(server, digits, done).await,
            Order::CodeFinished(registration) => self.code_finished(server, &registration),
            Order::Reupload(device, receipt) => self.reupload(server, &device, &receipt),
            Order::Write { chat, id, message, done } => {
                let written = self.write(server, &chat, &id, &message).await;
                self.sent.push_back(Sent { id, chat, message: *message });
                if self.sent.len() > KEPT {
                    self.sent.pop_front();
                }
                let _ = done.send(written);
            }
            Order::HandOver { device, kind, chats, done } => {
                let _ = done.send(self.hand_over(server, &device, kind, &chats, None).await);
            }
        }
    }

    /// What every new device gets: the account's key for what devices sync, and what was said before.
    async fn welcome(&mut self, server: &Arc<Server>, device: &Address) -> Result<(), PhoneError> {
        self.share_key(server, device).await?;
        let history = {
            let state = server.state();
            state.account(&self.me.number).map(|account| account.history.clone()).unwrap_or_default()
        };
        self.hand_over(server, device, HistorySyncType::INITIAL_BOOTSTRAP, &history, None).await?;
        self.hand_over(server, device, HistorySyncType::PUSH_NAME, &[], None).await?;
        // The last portion is the one that says that there is no more.
        self.hand_over(server, device, HistorySyncType::RECENT, &[], None).await
    }

    pub(super) async fn share_key(&mut self, server: &Arc<Server>, device: &Address) -> Result<(), PhoneError> {
        let indexes = {
            let state = server.state();
            let account = state.account(&self.me.number);
            account.map(|account| account.devices.values().map(|device| device.key_index).collect()).unwrap_or_default()
        };
        let share = key_share(&[0, 0, 0, 0, 0, 1], &self.sync_key, self.raw_id, indexes);
        self.write_peer(server, device, &share).await
    }

    /// Hands over chats of old times in one portion.
    pub(super) async fn hand_over(
        &mut self,
        server: &Arc<Server>,
        device: &Address,
        kind: HistorySyncType,
        chats: &[History],
        request: Option<String>,
    ) -> Result<(), PhoneError> {
        let name = {
            let state = server.state();
            state.account(&self.me.number).map(|account| account.name.clone()).unwrap_or_default()
        };
        let portion = Portion { kind, chats, number: &self.me.number, name: &name, chunk: 1, progress: 100, request };
        let notification = portion.notification(server)?;
        self.write_peer(server, device, &notification).await
    }
}
