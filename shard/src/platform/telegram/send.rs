//! What a bot does with its token alone: jobs become calls of the Bot API.
//!
//! The platform has no idempotency key, so that a call whose outcome can't be told is reported as such, unless doing it
//! again shows nothing new.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use teloxide_core::{
    payloads::{
        DeleteMessage, EditMessageText, SendAudio, SendDocument, SendLocation as SendPlace, SendMessage, SendPhoto,
        SendSticker, SendVenue, SendVideo, SendVoice, SetMessageReaction,
    },
    requests::Payload,
    types::{ChatId, InputFile, MessageId, ParseMode as Markup, ReactionType, Recipient, ReplyParameters, ThreadId},
};
use url::Url;

use super::{
    api::{Api, CallError},
    limits::Limits,
    outcome::failed,
};
use crate::{
    clock::Clock,
    identity::ChannelId,
    job::{Job, MediaKind, ParseMode, Revoke, Send, SendLocation, SendMedia, SendReaction, Task},
    media::Media,
    platform::{Done, Failed, Sender, rate::Turn},
    secret::Secret,
};

/// How long a call may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How long one may take in which the platform fetches a file first.
pub(super) const FETCHING: Duration = Duration::from_secs(90);

/// Sends for one bot.
pub(super) struct TelegramSender {
    pub(super) api: Arc<Api>,
    pub(super) media: Arc<Media>,
    pub(super) token: Option<Secret>,
    limits: Arc<Limits>,
    clock: Arc<dyn Clock>,
}

/// What of a sent message matters. Nothing else of the answer is read: a send that happened must not fail for a field.
#[derive(Deserialize)]
struct Shown {
    message_id: i64,
}

impl TelegramSender {
    pub(super) fn new(
        api: Arc<Api>,
        media: Arc<Media>,
        token: Option<Secret>,
        limits: Arc<Limits>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { api, media, token, limits, clock }
    }

    pub(super) async fn call<P: Payload + Serialize>(
        &self,
        payload: P,
        patience: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        self.api.call(self.token.as_ref(), &payload, patience).await
    }

    /// Waits for the chat's turn, or says when it is.
    async fn turn(&self, chat: &str, is_message: bool) -> Result<(), Failed> {
        match self.limits.ask(chat, is_message, self.clock.boottime()) {
            Turn::In(wait) if wait.is_zero() => Ok(()),
            Turn::In(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Turn::NotBefore(after) => {
                Err(Failed::Retry { error: "the chat's rate limit is reached".into(), after: Some(after) })
            }
        }
    }

    async fn once(&self, channel: ChannelId, task: &Task, chat: &Recipient) -> Result<Box<RawValue>, Failure> {
        match task {
            Task::Send(data) => self.send(data, chat).await,
            Task::SendMedia(data) => self.send_media(channel, data, chat).await,
            Task::SendLocation(data) => self.send_location(data, chat).await,
            Task::SendReaction(data) => self.send_reaction(data, chat).await,
            Task::Revoke(data) => self.revoke(data, chat).await,
            _ => Err(Failure::Own(unsupported())),
        }
    }

    async fn send(&self, data: &Send, chat: &Recipient) -> Result<Box<RawValue>, Failure> {
        let parse_mode = data.parse_mode.map(|mode| match mode {
            ParseMode::MarkdownV2 => Markup::MarkdownV2,
            ParseMode::Html => Markup::Html,
        });
        if let Some(message) = &data.edit_message_id {
            let mut edit = EditMessageText::new(chat.clone(), message_id(message)?, data.text.clone());
            edit.parse_mode = parse_mode;
            return Ok(self.call(edit, PATIENCE).await?);
        }
        let mut send = SendMessage::new(chat.clone(), data.text.clone());
        send.parse_mode = parse_mode;
        send.reply_parameters = reply(data.reply_to.as_deref())?;
        send.message_thread_id = thread(data.thread_id.as_deref())?;
        Ok(self.call(send, PATIENCE).await?)
    }

    async fn send_media(
        &self,
        channel: ChannelId,
        data: &SendMedia,
        chat: &Recipient,
    ) -> Result<Box<RawValue>, Failure> {
        let url = Url::parse(&data.url).map_err(|_| refused("rejected", "the file's URL is none"))?;
        let file = InputFile::url(url);
        let (reply, thread) = (reply(data.reply_to.as_deref())?, thread(data.thread_id.as_deref())?);
        // The payloads differ in their type alone.
        macro_rules! send {
            ($payload:ident) => {{
                let mut send = $payload::new(chat.clone(), file);
                send.caption = data.caption.clone();
                send.reply_parameters = reply;
                send.message_thread_id = thread;
                self.show(channel, data, send).await?
            }};
        }
        Ok(match data.kind {
            MediaKind::Image => send!(SendPhoto),
            MediaKind::Video => send!(SendVideo),
            MediaKind::Audio => send!(SendAudio),
            MediaKind::Voice => send!(SendVoice),
            MediaKind::Document => send!(SendDocument),
            MediaKind::Sticker if data.caption.is_some() => {
                return Err(refused("rejected", "a sticker has no caption on Telegram"));
            }
            MediaKind::Sticker => {
                let mut send = SendSticker::new(chat.clone(), file);
                send.reply_parameters = reply;
                send.message_thread_id = thread;
                self.show(channel, data, send).await?
            }
        })
    }

    async fn send_location(&self, data: &SendLocation, chat: &Recipient) -> Result<Box<RawValue>, Failure> {
        let (reply, thread) = (reply(data.reply_to.as_deref())?, thread(data.thread_id.as_deref())?);
        let (latitude, longitude) = (data.latitude, data.longitude);
        if let (Some(title), Some(address)) = (&data.title, &data.address) {
            let mut send = SendVenue::new(chat.clone(), latitude, longitude, title.clone(), address.clone());
            send.reply_parameters = reply;
            send.message_thread_id = thread;
            return Ok(self.call(send, PATIENCE).await?);
        }
        let mut send = SendPlace::new(chat.clone(), latitude, longitude);
        send.reply_parameters = reply;
        send.message_thread_id = thread;
        Ok(self.call(send, PATIENCE).await?)
    }

    async fn send_reaction(&self, data: &SendReaction, chat: &Recipient) -> Result<Box<RawValue>, Failure> {
        let mut set = SetMessageReaction::new(chat.clone(), message_id(&data.message_id)?);
        let emoji = Some(&data.emoji).filter(|emoji| !emoji.is_empty());
        set.reaction = Some(emoji.map(|emoji| ReactionType::Emoji { emoji: emoji.clone() }).into_iter().collect());
        Ok(self.call(set, PATIENCE).await?)
    }

    async fn revoke(&self, data: &Revoke, chat: &Recipient) -> Result<Box<RawValue>, Failure> {
        Ok(self.call(DeleteMessage::new(chat.clone(), message_id(&data.message_id)?), PATIENCE).await?)
    }
}

#[async_trait]
impl Sender for TelegramSender {
    async fn perform(&self, job: &Job, _: Option<&str>) -> Result<Done, Failed> {
        if let Task::DownloadMedia(data) = &job.task {
            return self.download(job.channel, data).await;
        }
        let (chat, is_message) = match &job.task {
            Task::Send(data) => (&data.chat_id, true),
            Task::SendMedia(data) => (&data.chat_id, true),
            Task::SendLocation(data) => (&data.chat_id, true),
            Task::SendReaction(data) => (&data.chat_id, false),
            Task::Revoke(data) => (&data.chat_id, false),
            _ => return Err(unsupported()),
        };
        let to = recipient(chat)?;
        self.turn(chat, is_message).await?;
        let mut migrated = None;
        let mut result = self.once(job.channel, &job.task, &to).await;
        if let Err(Failure::Call(CallError::Refused { migrated_to: Some(new), .. })) = &result {
            // The group has another id since it became a supergroup; nothing was shown under the old one.
            migrated = Some(*new);
            result = self.once(job.channel, &job.task, &Recipient::Id(ChatId(*new))).await;
        }
        match result {
            Ok(answer) => {
                let shown = serde_json::from_str::<Shown>(answer.get()).ok();
                let provider_id = shown.map(|shown| shown.message_id.to_string());
                Ok(Done { provider_id, result: migrated.map(|new| json!({ "chat_id": new.to_string() })) })
            }
            Err(Failure::Own(failed)) => Err(failed),
            Err(Failure::Call(error)) if is_so_already(&job.task, &error) => Ok(Done::default()),
            Err(Failure::Call(error)) => {
                if let CallError::Refused { code: 429, retry_after: Some(after), .. } = &error {
                    self.limits.block(chat, *after, self.clock.boottime());
                }
                let failed = failed(error);
                // Doing anything else again shows nothing new.
                Err(if job.task.is_send() { failed } else { failed.repeatable() })
            }
        }
    }
}

/// Why a job was not done: the call failed, or there was none to make.
pub(super) enum Failure {
    Call(CallError),
    Own(Failed),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

fn unsupported() -> Failed {
    Failed::Permanent { reason: "unsupported", error: "Telegram can't do this job".to_owned() }
}

pub(super) fn refused(reason: &'static str, error: &str) -> Failure {
    Failure::Own(Failed::Permanent { reason, error: error.to_owned() })
}

/// A repeated edit or deletion finds its work done.
fn is_so_already(task: &Task, error: &CallError) -> bool {
    let CallError::Refused { code: 400, description, .. } = error else { return false };
    match task {
        Task::Send(data) if data.edit_message_id.is_some() => description.contains("message is not modified"),
        Task::Revoke(_) => description.contains("message to delete not found"),
        _ => false,
    }
}

fn recipient(chat: &str) -> Result<Recipient, Failed> {
    match chat.parse() {
        Ok(id) => Ok(Recipient::Id(ChatId(id))),
        Err(_) if chat.len() > 1 && chat.starts_with('@') => Ok(Recipient::ChannelUsername(chat.to_owned())),
        Err(_) => {
            let error = "the chat is neither a number nor an @name".to_owned();
            Err(Failed::Permanent { reason: "bad_recipient", error })
        }
    }
}

fn message_id(text: &str) -> Result<MessageId, Failure> {
    text.parse().map(MessageId).map_err(|_| refused("rejected", "a message id is not a number of Telegram's"))
}

/// A reply whose message is gone is still worth saying.
fn reply(to: Option<&str>) -> Result<Option<ReplyParameters>, Failure> {
    to.map(|to| Ok(ReplyParameters::new(message_id(to)?).allow_sending_without_reply())).transpose()
}

fn thread(id: Option<&str>) -> Result<Option<ThreadId>, Failure> {
    id.map(|id| Ok(ThreadId(message_id(id)?))).transpose()
}
