//! A phone writes: once for each device of everybody in the chat, its own devices included.

use std::sync::Arc;

use wacore::messages::{MessageUtils, wrap_device_sent};
use wacore_binary::{Jid, JidExt as _, Node};
use waproto::whatsapp::{Message, message::SenderKeyDistributionMessage, message::protocol_message::Type};

use super::{PhoneError, actor::Actor};
use crate::whatsapp::{Server, address::Address, message, node::el, query::keys};

impl Actor {
    /// Writes to a person or a group.
    pub(super) async fn write(
        &mut self,
        server: &Arc<Server>,
        chat: &Jid,
        id: &str,
        message: &Message,
    ) -> Result<(), PhoneError> {
        let children = if chat.is_group() {
            self.for_group(server, chat, message).await?
        } else {
            let to = server.state().resolve(chat).ok_or_else(|| PhoneError::NoChat(chat.to_string()))?;
            vec![self.for_person(server, &to.number, chat, message).await?]
        };
        let mut stanza = el("message").attr("id", id).attr("to", chat.clone()).attr("type", kind_of(message));
        if let Some(edit) = edit_of(message) {
            stanza = stanza.attr("edit", edit);
        }
        message::relay(server, &self.me, &stanza.children(children).build());
        Ok(())
    }

    /// Writes to one of this account's own devices, about the account.
    pub(super) async fn write_peer(
        &mut self,
        server: &Arc<Server>,
        device: &Address,
        message: &Message,
    ) -> Result<(), PhoneError> {
        let plain = MessageUtils::encode_and_pad(message);
        let enc = self.seal(server, device, &plain).await?;
        let stanza = el("message")
            .attr("id", super::new_id())
            .attr("to", device.jid())
            .attr("type", "text")
            .attr("category", "peer")
            .children([enc])
            .build();
        message::relay(server, &self.me, &stanza);
        Ok(())
    }

    async fn for_person(
        &mut self,
        server: &Arc<Server>,
        number: &str,
        chat: &Jid,
        message: &Message,
    ) -> Result<Node, PhoneError> {
        let theirs = server.state().devices_of([&number.to_owned()]);
        let mine = server.state().devices_of([&self.me.number]);
        let plain = MessageUtils::encode_and_pad(message);
        let copy = MessageUtils::encode_and_pad(&wrap_device_sent(message.clone(), chat.to_non_ad().to_string()));
        let mut participants = Vec::new();
        for device in theirs {
            if device != self.me {
                participants.extend(self.seal_to(server, &device, &plain).await);
            }
        }
        let me = self.me.clone();
        for device in mine.into_iter().filter(|device| *device != me && device.number != number) {
            participants.extend(self.seal_to(server, &device, &copy).await);
        }
        Ok(el("participants").children(participants).build())
    }

    async fn for_group(
        &mut self,
        server: &Arc<Server>,
        group: &Jid,
        message: &Message,
    ) -> Result<Vec<Node>, PhoneError> {
        let devices = {
            let state = server.state();
            let members =
                state.groups.get(group.user.as_str()).map(|group| group.members.keys().cloned().collect::<Vec<_>>());
            state.devices_of(&members.ok_or_else(|| PhoneError::NoChat(group.to_string()))?)
        };
        let name = group.to_string();
        let plain = MessageUtils::encode_and_pad(message);
        let (sealed, key) = self.signal.encrypt_group(&name, &self.me, &plain).await?;
        let distribution = SenderKeyDistributionMessage {
            group_id: Some(name.clone()),
            axolotl_sender_key_distribution_message: Some(key),
        };
        let distribution =
            Message { sender_key_distribution_message: buffa::MessageField::some(distribution), ..Default::default() };
        let distribution = MessageUtils::encode_and_pad(&distribution);
        let mut participants = Vec::new();
        let me = self.me.clone();
        for device in devices.into_iter().filter(|device| *device != me) {
            if self.key_holders.get(&name).is_some_and(|holders| holders.contains(&device)) {
                continue;
            }
            if let Some(sealed) = self.seal_to(server, &device, &distribution).await {
                participants.push(sealed);
                self.key_holders.entry(name.clone()).or_default().insert(device);
            }
        }
        let enc = el("enc").attr("v", "2").attr("type", "skmsg").bytes(sealed).build();
        let participants = (!participants.is_empty()).then(|| el("participants").children(participants).build());
        Ok(participants.into_iter().chain([enc]).collect())
    }

    /// For one device among several: one that left no keys is passed over.
    async fn seal_to(&mut self, server: &Arc<Server>, device: &Address, plain: &[u8]) -> Option<Node> {
        match self.seal(server, device, plain).await {
            Ok(enc) => Some(el("to").attr("jid", device.jid()).children([enc]).build()),
            Err(error) => {
                tracing::debug!(%device, %error, "a device is passed over");
                None
            }
        }
    }

    pub(super) async fn seal(
        &mut self,
        server: &Arc<Server>,
        device: &Address,
        plain: &[u8],
    ) -> Result<Node, PhoneError> {
        if !self.signal.has_session(device).await {
            let keys = keys::take(&mut server.state(), server, device).ok_or(PhoneError::NoKeys)?;
            self.signal.begin(device, &keys).await?;
        }
        let (kind, sealed) = self.signal.encrypt(device, plain).await?;
        Ok(el("enc").attr("v", "2").attr("type", kind).bytes(sealed).build())
    }

    /// Sends a message again to the one device that could not read it, in a new session.
    pub(super) async fn write_again(
        &mut self,
        server: &Arc<Server>,
        device: &Address,
        id: &str,
        count: &str,
    ) -> Result<(), PhoneError> {
        let Some(sent) = self.sent.iter().find(|sent| sent.id == id) else { return Ok(()) };
        let (chat, message) = (sent.chat.clone(), sent.message.clone());
        self.signal.forget_session(device);
        let own = device.number == self.me.number;
        let message = if own { wrap_device_sent(message, chat.to_non_ad().to_string()) } else { message };
        let enc = self.seal(server, device, &MessageUtils::encode_and_pad(&message)).await?;
        let mut enc = enc;
        enc.attrs.insert("count", count);
        let stanza = el("message").attr("id", id).attr("type", kind_of(&message));
        let stanza = if chat.is_group() {
            self.key_holders.remove(&chat.to_string());
            stanza.attr("to", chat).attr("participant", device.jid())
        } else if own {
            stanza.attr("to", device.jid()).attr("recipient", chat)
        } else {
            stanza.attr("to", device.jid()).attr("device_fanout", "false")
        };
        message::relay(server, &self.me, &stanza.children([enc]).build());
        Ok(())
    }
}

/// What the platform calls this kind of message.
fn kind_of(message: &Message) -> &'static str {
    if message.reaction_message.is_set() {
        return "reaction";
    }
    if super::attachment::locate(message).is_some() { "media" } else { "text" }
}

/// Whether the message changes another one, and how.
fn edit_of(message: &Message) -> Option<&'static str> {
    match message.protocol_message.as_option()?.r#type? {
        Type::MESSAGE_EDIT => Some("1"),
        Type::REVOKE => Some("7"),
        _ => None,
    }
}
