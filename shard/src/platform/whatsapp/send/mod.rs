//! Jobs, done by the channel's connection.
//!
//! A message is done when the server has acknowledged it; until then it may or may not have gone out, and the next try
//! carries the same id. Everything asks the lease before it writes.

mod group;
mod media;
mod outcome;
mod text;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::json;
use tokio::time::timeout;
use whatsapp_rust::{Jid, RevokeType, SendOptions, waproto::whatsapp as wa};

use self::outcome::{nack, send_error};
use super::{
    Shared,
    line::{Line, Link},
};
use crate::{
    job::{Job, MarkRead, ResyncHistory, Revoke, SendReaction, Task},
    platform::{Done, Failed, Sender},
};

/// How long a job waits for the connection before it is put off.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the client may take to write a message: it may have to fetch keys of devices first.
const WRITING: Duration = Duration::from_secs(45);
/// Messages of history asked for at once.
const HISTORY: u32 = 50;
/// Chats whose history is asked for by one job.
const CHATS: usize = 200;

/// What sends for one channel.
pub(super) struct WhatsappSender {
    shared: Arc<Shared>,
    line: Arc<Line>,
}

impl WhatsappSender {
    pub(super) fn new(shared: Arc<Shared>, line: Arc<Line>) -> Self {
        Self { shared, line }
    }

    /// Sends a message under its id and waits for the server's word.
    async fn message(&self, link: &Link, to: Jid, message: wa::Message, id: &str) -> Result<Done, Failed> {
        link.held()?;
        let acked = link.expect(id);
        let options = SendOptions::default().with_message_id(id);
        let written = timeout(WRITING, link.client.send_message_with_options(to, message, options)).await;
        let result = match written {
            Err(_) => Err(Failed::Ambiguous { error: "the message could not be written in time".to_owned() }),
            Ok(Err(error)) => Err(send_error(&error)),
            Ok(Ok(_)) => match timeout(self.shared.config.ack_timeout, acked).await {
                Ok(Ok(None)) => Ok(Done { provider_id: Some(id.to_owned()), result: None }),
                Ok(Ok(Some(code))) => Err(nack(&code)),
                Ok(Err(_)) => {
                    Err(Failed::Ambiguous { error: "the connection ended before the server's word".to_owned() })
                }
                Err(_) => Err(Failed::Ambiguous { error: "the server did not acknowledge the message".to_owned() }),
            },
        };
        link.forget(id);
        result
    }

    async fn reaction(&self, link: &Link, data: &SendReaction) -> Result<Done, Failed> {
        let chat = recipient(&data.chat_id)?;
        let participant = data.participant.as_deref().map(recipient).transpose()?;
        let key = wa::MessageKey {
            remote_jid: Some(chat.to_string()),
            from_me: Some(data.from_me),
            id: Some(data.message_id.clone()),
            participant: participant.map(|jid| jid.to_string()),
        };
        link.held()?;
        let sent = timeout(WRITING, link.client.send_reaction(chat, key, &data.emoji)).await;
        // Done again it shows nothing new.
        let sent = sent.map_err(|_| late())?.map_err(|error| send_error(&error).repeatable())?;
        Ok(Done { provider_id: Some(sent.message_id), result: None })
    }

    async fn revoke(&self, link: &Link, data: &Revoke) -> Result<Done, Failed> {
        let chat = recipient(&data.chat_id)?;
        let kind = match &data.participant {
            Some(sender) => RevokeType::Admin { original_sender: recipient(sender)? },
            None => RevokeType::Sender,
        };
        link.held()?;
        let sent = timeout(WRITING, link.client.revoke_message(chat, data.message_id.clone(), kind)).await;
        sent.map_err(|_| late())?.map_err(|error| send_error(&error).repeatable())?;
        Ok(Done::default())
    }

    async fn mark_read(&self, link: &Link, data: &MarkRead) -> Result<Done, Failed> {
        let chat = recipient(&data.chat_id)?;
        let sender = data.participant.as_deref().map(recipient).transpose()?;
        let ids: Vec<&str> = data.message_ids.iter().map(String::as_str).collect();
        link.held()?;
        let marked = timeout(WRITING, link.client.mark_as_read(&chat, sender.as_ref(), &ids)).await;
        marked.map_err(|_| late())?.map_err(|error| retry(&error))?;
        Ok(Done::default())
    }

    /// Asks the phone for what is older than the oldest message known of a chat, or of all chats.
    async fn resync(&self, link: &Link, data: &ResyncHistory) -> Result<Done, Failed> {
        let anchors = match &data.chat_id {
            Some(chat) => {
                let chat = recipient(chat)?.to_non_ad_string();
                let anchor = link.session.anchor(&chat).await.map_err(|error| retry(&error))?;
                let anchor = anchor.ok_or_else(|| {
                    refused("rejected", "no message of this chat is known yet, from which history could be asked for")
                })?;
                vec![(chat, anchor)]
            }
            None => link.session.anchors().await.map_err(|error| retry(&error))?,
        };
        let count = i32::try_from(data.count.unwrap_or(HISTORY).min(500)).unwrap_or(50);
        let mut asked = 0;
        for (chat, anchor) in anchors.into_iter().take(CHATS) {
            let Ok(chat) = recipient(&chat) else { continue };
            link.held()?;
            let request = link.client.fetch_message_history(
                &chat,
                &anchor.message_id,
                anchor.from_me,
                anchor.timestamp_ms,
                count,
            );
            timeout(WRITING, request).await.map_err(|_| late())?.map_err(|error| retry(&error))?;
            asked += 1;
        }
        Ok(Done { provider_id: None, result: Some(json!({ "chats": asked })) })
    }
}

#[async_trait]
impl Sender for WhatsappSender {
    async fn perform(&self, job: &Job, provider_id: Option<&str>) -> Result<Done, Failed> {
        let id = provider_id.map_or_else(|| super::message_id(job), str::to_owned);
        let link = self.line.wait(PATIENCE).await?;
        match &job.task {
            Task::Send(data) => match &data.edit_message_id {
                Some(original) => self.edit(&link, data, original).await,
                None => self.message(&link, recipient(&data.chat_id)?, text::text(data, &link)?, &id).await,
            },
            Task::SendLocation(data) => {
                self.message(&link, recipient(&data.chat_id)?, text::location(data, &link)?, &id).await
            }
            Task::SendMedia(data) => {
                let message = self.uploaded(&link, job.channel, data).await?;
                self.message(&link, recipient(&data.chat_id)?, message, &id).await
            }
            Task::SendReaction(data) => self.reaction(&link, data).await,
            Task::Revoke(data) => self.revoke(&link, data).await,
            Task::MarkRead(data) => self.mark_read(&link, data).await,
            Task::ResyncHistory(data) => self.resync(&link, data).await,
            Task::DownloadMedia(data) => self.download(&link, job, data).await,
            Task::FetchAvatar(data) => self.avatar(&link, job, data).await,
            Task::GroupCreate(_)
            | Task::GroupUpdateSubject(_)
            | Task::GroupUpdateDescription(_)
            | Task::GroupAddParticipants(_)
            | Task::GroupRemoveParticipants(_)
            | Task::GroupPromote(_)
            | Task::GroupDemote(_)
            | Task::GroupLeave(_)
            | Task::GroupInviteLink(_)
            | Task::GroupFetch(_) => self.group(&link, &job.task).await,
            Task::Connect(_) | Task::Disconnect(_) => {
                Err(refused("unsupported", "connecting and disconnecting is not a sender's work"))
            }
        }
    }
}

/// A person, group or channel: `4915…`, `4915…@s.whatsapp.net`, `…@lid`, `…@g.us`.
fn recipient(chat: &str) -> Result<Jid, Failed> {
    let digits = |text: &str| (5..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let chat = chat.strip_prefix('+').filter(|rest| digits(rest)).unwrap_or(chat);
    let whole = if digits(chat) {
        format!("{chat}@s.whatsapp.net")
    } else {
        chat.strip_suffix("@c.us").map_or_else(|| chat.to_owned(), |user| format!("{user}@s.whatsapp.net"))
    };
    let jid: Option<Jid> = whole.parse().ok();
    let known = jid.filter(|jid: &Jid| whole.contains('@') && !jid.user.is_empty());
    known.ok_or_else(|| refused("bad_recipient", "the chat is no phone number, person or group of WhatsApp's"))
}

fn refused(reason: &'static str, error: &str) -> Failed {
    Failed::Permanent { reason, error: error.to_owned() }
}

fn late() -> Failed {
    Failed::Retry { error: "it could not be written in time".to_owned(), after: None }
}

/// The text of the library's errors may name people: what kind it is must do.
fn retry<E: std::fmt::Debug>(error: &E) -> Failed {
    Failed::Retry { error: format!("the client failed: {}", outcome::kind(error)), after: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipient_is_a_number_or_an_address_of_the_platform() {
        for (chat, expected) in [
            ("4915112345678", Some("4915112345678@s.whatsapp.net")),
            ("+4915112345678", Some("4915112345678@s.whatsapp.net")),
            ("4915112345678@c.us", Some("4915112345678@s.whatsapp.net")),
            ("120363000000000001@g.us", Some("120363000000000001@g.us")),
            ("100000012345678@lid", Some("100000012345678@lid")),
            ("@s.whatsapp.net", None),
            ("somebody", None),
            ("", None),
            ("12", None),
        ] {
            let found = recipient(chat).ok().map(|jid| jid.to_string());
            assert_eq!(found.as_deref(), expected, "{chat}");
        }
    }
}
