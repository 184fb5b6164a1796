//! Texts and places as messages: replies, mentions, edits.

use tokio::time::timeout;
use whatsapp_rust::{
    Jid,
    wacore::proto_helpers::MessageBuilderExt,
    wacore_binary::JidExt,
    waproto::{
        buffa::MessageField,
        whatsapp::{self as wa, message::LocationMessage},
    },
};

use super::super::line::Link;
use super::{WRITING, WhatsappSender, late, outcome::send_error, recipient};
use crate::{
    job::{Send, SendLocation},
    platform::{Done, Failed},
};

/// What a message answers and whom it names; `None` when neither.
pub(super) fn context(
    chat: &Jid,
    reply_to: Option<&str>,
    mentions: &[String],
    link: &Link,
) -> Result<Option<wa::ContextInfo>, Failed> {
    if reply_to.is_none() && mentions.is_empty() {
        return Ok(None);
    }
    let mentioned = mentions.iter().map(|person| Ok(recipient(person)?.to_non_ad_string()));
    let mut context =
        wa::ContextInfo { mentioned_jid: mentioned.collect::<Result<_, Failed>>()?, ..Default::default() };
    if let Some(id) = reply_to {
        context.stanza_id = Some(id.to_owned());
        // Ours begin as we make them; in a private chat all others are the peer's. Who wrote in a group isn't known here.
        let own = link.client.pn().map(|jid| jid.to_non_ad_string());
        let is_own = id.len() == 22 && id.starts_with("3EB0");
        context.participant = if is_own { own } else { (!chat.is_group()).then(|| chat.to_non_ad_string()) };
        context.quoted_message = MessageField::some(wa::Message::text(""));
    }
    Ok(Some(context))
}

pub(super) fn text(data: &Send, link: &Link) -> Result<wa::Message, Failed> {
    let chat = recipient(&data.chat_id)?;
    Ok(match context(&chat, data.reply_to.as_deref(), &data.mentions, link)? {
        Some(context) => wa::Message::text_with_context(data.text.clone(), context),
        None => wa::Message::text(data.text.clone()),
    })
}

pub(super) fn location(data: &SendLocation, link: &Link) -> Result<wa::Message, Failed> {
    let chat = recipient(&data.chat_id)?;
    let context = context(&chat, data.reply_to.as_deref(), &[], link)?;
    let place = LocationMessage {
        degrees_latitude: Some(data.latitude),
        degrees_longitude: Some(data.longitude),
        name: data.title.clone(),
        address: data.address.clone(),
        context_info: context.map(MessageField::some).unwrap_or_default(),
        ..Default::default()
    };
    Ok(wa::Message { location_message: MessageField::some(place), ..Default::default() })
}

impl WhatsappSender {
    /// Gives an own message another text. Done again it shows nothing new.
    pub(super) async fn edit(&self, link: &Link, data: &Send, original: &str) -> Result<Done, Failed> {
        let chat = recipient(&data.chat_id)?;
        let content = text(data, link)?;
        link.held()?;
        let sent = timeout(WRITING, link.client.edit_message(chat, original, content)).await;
        let id = sent.map_err(|_| late())?.map_err(|error| send_error(&error).repeatable())?;
        Ok(Done { provider_id: Some(id), result: None })
    }
}
