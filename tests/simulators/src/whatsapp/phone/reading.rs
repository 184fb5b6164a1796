//! A phone reads: messages are decrypted and shown, its own devices are answered, and whoever wrote gets a receipt.

use std::sync::Arc;

use wacore::messages::{decode_plaintext, unwrap_device_sent};
use wacore_binary::{Jid, JidExt as _, Node};
use waproto::whatsapp::{
    Message,
    history_sync::HistorySyncType,
    message::{PeerDataOperationRequestMessage, protocol_message::Type},
};

use super::{History, PhoneError, Receipt, actor::Actor};
use crate::whatsapp::{
    Server,
    address::Address,
    node::{attr, bytes, children, el, jid, now},
    receipt,
};

impl Actor {
    /// Takes a stanza that came for the phone.
    pub(super) async fn take(&mut self, server: &Arc<Server>, node: &Node) {
        match node.tag.as_ref() {
            "message" => self.read(server, node).await,
            "receipt" => self.receipt(server, node).await,
            "notification" if attr(node, "type").as_deref() == Some("w:gp2") => {
                // Whoever left must not read on: a new key is handed out before the next message.
                if let Some(group) =
                    jid(node, "from").filter(|_| children(node).iter().any(|child| child.tag == "remove"))
                {
                    self.key_holders.remove(&group.to_string());
                }
            }
            _ => {}
        }
    }

    async fn read(&mut self, server: &Arc<Server>, node: &Node) {
        let (Some(from), Some(id)) = (jid(node, "from"), attr(node, "id")) else { return };
        let author = if from.is_group() { jid(node, "participant") } else { Some(from.clone()) };
        let Some(author) = author.and_then(|author| server.state().resolve(&author)) else { return };
        for enc in node.get_children_by_tag("enc") {
            match self.decrypt(&from, &author, enc).await {
                Ok(message) => self.understand(server, node, &from, &author, &id, message).await,
                Err(error) => {
                    tracing::debug!(from = %author, %error, "a phone can't read a message");
                    self.inbox.unreadable(id.clone(), error.to_string());
                    self.ask_again(server, node, &from, &author, &id);
                    return;
                }
            }
        }
        let delivered = el("receipt").attr("id", id).attr("to", from.clone());
        let delivered = if from.is_group() { delivered.attr("participant", author.jid()) } else { delivered };
        receipt::relay(server, &self.me, &delivered.build());
    }

    async fn decrypt(&mut self, from: &Jid, author: &Address, enc: &Node) -> Result<Message, PhoneError> {
        let kind = attr(enc, "type").unwrap_or_default();
        let sealed = bytes(enc);
        let plain = if kind == "skmsg" {
            self.signal.decrypt_group(&from.to_string(), author, &sealed).await?
        } else {
            self.signal.decrypt(author, &kind, &sealed).await?
        };
        let version = attr(enc, "v").and_then(|version| version.parse().ok()).unwrap_or(2);
        decode_plaintext(&plain, version).map_err(|error| PhoneError::Signal(error.to_string()))
    }

    async fn understand(
        &mut self,
        server: &Arc<Server>,
        node: &Node,
        from: &Jid,
        author: &Address,
        id: &str,
        message: Message,
    ) {
        if let Some(key) = message.sender_key_distribution_message.as_option() {
            let group = key.group_id.clone().unwrap_or_else(|| from.to_string());
            let learned = key.axolotl_sender_key_distribution_message.as_deref().unwrap_or_default();
            if let Err(error) = self.signal.learn(&group, author, learned).await {
                self.inbox.unreadable(id.to_owned(), error.to_string());
            }
        }
        let destination = message.device_sent_message.as_option().and_then(|sent| sent.destination_jid.clone());
        let mut message = unwrap_device_sent(message);
        if wacore::messages::is_sender_key_distribution_only(&mut message) {
            return;
        }
        if author.number == self.me.number && attr(node, "category").as_deref() == Some("peer") {
            self.answer_device(server, author, id, &message).await;
            return;
        }
        let chat = match destination.and_then(|destination| destination.parse::<Jid>().ok()) {
            Some(chat) => chat,
            None => from.to_non_ad(),
        };
        self.inbox.show(id.to_owned(), self.chat_name(server, &chat), author.clone(), message);
    }

    /// A chat goes by number, however the message was addressed.
    fn chat_name(&self, server: &Server, chat: &Jid) -> String {
        let known = server.state().resolve(chat);
        known.map_or_else(|| chat.to_string(), |address| address.account().to_string())
    }

    /// The author is asked to write again, with keys to do it.
    fn ask_again(&self, server: &Server, node: &Node, from: &Jid, author: &Address, id: &str) {
        let t = attr(node, "t").unwrap_or_else(|| now().to_string());
        let count =
            node.get_children_by_tag("enc").find_map(|enc| attr(enc, "count")).and_then(|count| count.parse().ok());
        let count: u32 = count.unwrap_or(0) + 1;
        if count > 3 {
            return;
        }
        let Ok([identity, signed]) = self.signal.introduction() else { return };
        let retry = el("retry").attr("count", count.to_string()).attr("id", id).attr("t", t).attr("v", "1").build();
        let registration = el("registration").bytes(self.signal.registration().to_be_bytes().to_vec()).build();
        let keys = el("keys").children([el("type").bytes(vec![5]).build(), identity, signed]).build();
        let receipt = el("receipt").attr("id", id).attr("type", "retry").attr("to", from.clone());
        let receipt = if from.is_group() { receipt.attr("participant", author.jid()) } else { receipt };
        receipt::relay(server, &self.me, &receipt.children([retry, registration, keys]).build());
    }

    async fn receipt(&mut self, server: &Arc<Server>, node: &Node) {
        let Some(from) = jid(node, "participant").or_else(|| jid(node, "from")) else { return };
        let Some(from) = server.state().resolve(&from) else { return };
        let kind = attr(node, "type");
        for id in receipt::ids(node) {
            if kind.as_deref() == Some("retry") {
                let count = node.get_optional_child("retry").and_then(|retry| attr(retry, "count"));
                if let Err(error) = self.write_again(server, &from, &id, count.as_deref().unwrap_or("1")).await {
                    tracing::debug!(device = %from, %error, "a message can't be written again");
                }
            }
            self.inbox.receipt(Receipt { id, from: from.clone(), kind: kind.clone() });
        }
    }

    /// A device asks something of its phone.
    async fn answer_device(&mut self, server: &Arc<Server>, device: &Address, id: &str, message: &Message) {
        let Some(asked) = message.protocol_message.as_option() else { return };
        let answered = match asked.r#type {
            Some(Type::APP_STATE_SYNC_KEY_REQUEST) => self.share_key(server, device).await,
            Some(Type::PEER_DATA_OPERATION_REQUEST_MESSAGE) => {
                match asked.peer_data_operation_request_message.as_option() {
                    Some(request) => self.more_history(server, device, id, request).await,
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        };
        if let Err(error) = answered {
            tracing::warn!(%device, %error, "a phone can't answer its device");
        }
    }

    /// More of what was said before, older than what the device has.
    async fn more_history(
        &mut self,
        server: &Arc<Server>,
        device: &Address,
        id: &str,
        request: &PeerDataOperationRequestMessage,
    ) -> Result<(), PhoneError> {
        let history = {
            let state = server.state();
            state.account(&self.me.number).map(|account| account.history.clone()).unwrap_or_default()
        };
        if request.full_history_sync_on_demand_request.is_set() {
            return self.hand_over(server, device, HistorySyncType::FULL, &history, Some(id.to_owned())).await;
        }
        let Some(asked) = request.history_sync_on_demand_request.as_option() else { return Ok(()) };
        let wanted = asked.chat_jid.clone().unwrap_or_default();
        let count = usize::try_from(asked.on_demand_msg_count.unwrap_or(50)).unwrap_or_default();
        let portion: Vec<History> = history
            .into_iter()
            .filter(|chat| chat.chat == wanted)
            .map(|mut chat| {
                let end = chat.messages.iter().position(|old| Some(&old.id) == asked.oldest_msg_id.as_ref());
                chat.messages.truncate(end.unwrap_or(chat.messages.len()));
                chat.messages.drain(..chat.messages.len().saturating_sub(count));
                chat
            })
            .collect();
        self.hand_over(server, device, HistorySyncType::ON_DEMAND, &portion, Some(id.to_owned())).await
    }
}
