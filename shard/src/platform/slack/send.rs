//! What an app's bot does with its token alone: jobs become calls of the Web API.
//!
//! The platform has no idempotency key, so that a call whose outcome can't be told is reported as such, unless doing it
//! again shows nothing new.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use super::{
    api::{Api, CallError},
    event::{Me, text},
    limits::Limits,
    outcome::failed,
    tokens::Tokens,
};
use crate::{
    clock::Clock,
    job::{Job, Revoke, Send, SendReaction, Task},
    media::Media,
    platform::{Done, Failed, Sender, rate::Turn},
    secret::Secret,
};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends for one app.
pub(super) struct SlackSender {
    pub(super) api: Arc<Api>,
    pub(super) media: Arc<Media>,
    token: Option<Secret>,
    limits: Arc<Limits>,
    clock: Arc<dyn Clock>,
    /// The bot, once somebody needed to know.
    me: OnceCell<Me>,
}

/// Why a job was not done: a call failed, or there was none to make.
#[derive(Debug)]
pub(super) enum Failure {
    Call(CallError),
    Own(Failed),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Failure {
    /// Nothing was shown so far, whatever became of the call.
    pub(super) fn before_anything_was_shown(self) -> Self {
        let failed = match self {
            Self::Call(error) => failed(&error),
            Self::Own(failed) => failed,
        };
        Self::Own(failed.repeatable())
    }
}

pub(super) fn refused(reason: &'static str, error: &str) -> Failure {
    Failure::Own(Failed::Permanent { reason, error: error.to_owned() })
}

impl SlackSender {
    pub(super) fn new(
        api: Arc<Api>,
        media: Arc<Media>,
        secret: Option<&Secret>,
        limits: Arc<Limits>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let token = secret.and_then(|secret| Tokens::read(secret).ok()).map(|tokens| tokens.bot);
        Self { api, media, token, limits, clock, me: OnceCell::new() }
    }

    pub(super) fn token(&self) -> Result<&Secret, Failure> {
        self.token.as_ref().ok_or_else(|| refused("logged_out", "the channel has no bot token (xoxb-…)"))
    }

    /// Waits for the turn of a method, and with `chat` of a message there; or says when it is.
    pub(super) async fn turn(&self, method: &'static str, chat: Option<&str>) -> Result<(), Failure> {
        match self.limits.ask(method, chat, self.clock.boottime()) {
            Turn::In(wait) if wait.is_zero() => Ok(()),
            Turn::In(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Turn::NotBefore(after) => {
                let error = format!("the rate limit of {method} is reached");
                Err(Failure::Own(Failed::Retry { error, after: Some(after) }))
            }
        }
    }

    /// A call of which a 429 is remembered. `chat` is given when it shows a message there.
    pub(super) async fn call(&self, method: &'static str, chat: Option<&str>, params: Value) -> Result<Value, Failure> {
        let token = self.token()?;
        self.turn(method, chat).await?;
        self.noted(method, self.api.call(token, method, &params, PATIENCE).await)
    }

    /// The same for a method that doesn't read JSON.
    pub(super) async fn call_form(&self, method: &'static str, params: &[(&str, &str)]) -> Result<Value, Failure> {
        let token = self.token()?;
        self.turn(method, None).await?;
        self.noted(method, self.api.call_form(token, method, params, PATIENCE).await)
    }

    fn noted(&self, method: &'static str, answer: Result<Value, CallError>) -> Result<Value, Failure> {
        if let Err(CallError::Limited { after }) = &answer {
            self.limits.block(method, *after, self.clock.boottime());
        }
        Ok(answer?)
    }

    async fn send(&self, data: &Send) -> Result<Done, Failure> {
        if data.parse_mode.is_some() {
            return Err(refused("rejected", "parse_mode: Slack's texts have one form, mrkdwn"));
        }
        let mut params = Map::new();
        params.insert("channel".into(), data.chat_id.as_str().into());
        params.insert("text".into(), data.text.as_str().into());
        if !data.blocks.is_empty() {
            params.insert("blocks".into(), json!(data.blocks));
        }
        let answer = match &data.edit_message_id {
            Some(message) => {
                params.insert("ts".into(), message.as_str().into());
                self.call("chat.update", None, params.into()).await?
            }
            None => {
                if let Some(thread) = data.thread_id.as_ref().or(data.reply_to.as_ref()) {
                    params.insert("thread_ts".into(), thread.as_str().into());
                }
                self.call("chat.postMessage", Some(&data.chat_id), params.into()).await?
            }
        };
        Ok(Done { provider_id: text(&answer, "/ts"), result: moved(&answer, &data.chat_id) })
    }

    async fn send_reaction(&self, data: &SendReaction) -> Result<Done, Failure> {
        let name = data.emoji.trim_matches(':');
        if name.is_empty() {
            return self.take_reactions_back(data).await;
        }
        let params = json!({"channel": data.chat_id, "timestamp": data.message_id, "name": name});
        match self.call("reactions.add", None, params).await {
            Err(Failure::Call(error)) if error.word() == Some("already_reacted") => Ok(Done::default()),
            answer => answer.map(|_| Done::default()),
        }
    }

    /// The platform wants a name to take back: it is asked which ones are the bot's.
    async fn take_reactions_back(&self, data: &SendReaction) -> Result<Done, Failure> {
        let params = json!({"channel": data.chat_id, "timestamp": data.message_id, "full": true});
        let answer = self.call("reactions.get", None, params).await?;
        let me = self.me().await?;
        let mine = |reaction: &&Value| {
            let users = reaction["users"].as_array().map(Vec::as_slice).unwrap_or_default();
            me.user().is_some_and(|me| users.iter().any(|user| user == me))
        };
        let all = answer["message"]["reactions"].as_array().map(Vec::as_slice).unwrap_or_default();
        for name in all.iter().filter(mine).filter_map(|reaction| reaction["name"].as_str()) {
            let params = json!({"channel": data.chat_id, "timestamp": data.message_id, "name": name});
            match self.call("reactions.remove", None, params).await {
                Err(Failure::Call(error)) if error.word() == Some("no_reaction") => {}
                answer => drop(answer?),
            }
        }
        Ok(Done::default())
    }

    async fn me(&self) -> Result<&Me, Failure> {
        self.me.get_or_try_init(async || Ok(Me::of(&self.call("auth.test", None, json!({})).await?))).await
    }

    async fn revoke(&self, data: &Revoke) -> Result<Done, Failure> {
        let params = json!({"channel": data.chat_id, "ts": data.message_id});
        match self.call("chat.delete", None, params).await {
            // A repeated deletion finds its work done.
            Err(Failure::Call(error)) if error.word() == Some("message_not_found") => Ok(Done::default()),
            answer => answer.map(|_| Done::default()),
        }
    }
}

#[async_trait]
impl Sender for SlackSender {
    async fn perform(&self, job: &Job, _: Option<&str>) -> Result<Done, Failed> {
        let done = match &job.task {
            Task::Send(data) => self.send(data).await,
            Task::SendMedia(data) => self.send_media(job.channel, data).await,
            Task::DownloadMedia(data) => self.download(job.channel, data).await,
            Task::SendReaction(data) => self.send_reaction(data).await,
            Task::Revoke(data) => self.revoke(data).await,
            _ => Err(refused("unsupported", "Slack can't do this job")),
        };
        done.map_err(|failure| match failure {
            Failure::Own(failed) => failed,
            Failure::Call(error) if job.task.is_send() => failed(&error),
            // Doing it again shows nothing new.
            Failure::Call(error) => failed(&error).repeatable(),
        })
    }
}

/// Where a message went that was sent to a person: the conversation has an id of its own.
fn moved(answer: &Value, chat: &str) -> Option<Value> {
    text(answer, "/channel").filter(|channel| channel != chat).map(|channel| json!({ "chat_id": channel }))
}
