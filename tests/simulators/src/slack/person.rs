//! A person in one conversation with an app's bot: what they do, and what they see.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    AppHandle, Entry,
    app::AppState,
    files, methods,
    record::{By, What},
};
use crate::{TimedOut, lock};

/// A person in one conversation.
#[derive(Debug, Clone)]
pub struct Person {
    pub(super) app: AppHandle,
    pub(super) channel: String,
    pub(super) user: String,
}

impl Person {
    /// The conversation.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// The person's id.
    pub fn id(&self) -> &str {
        &self.user
    }

    /// Says something. The message's `ts`.
    pub fn say(&self, text: &str) -> String {
        self.message(text, json!({}))
    }

    /// Says something in a thread.
    pub fn say_in_thread(&self, thread: &str, text: &str) -> String {
        self.message(text, json!({"thread_ts": thread}))
    }

    /// Mentions the bot: the app is told of the message, and of the mention by an event of its own.
    pub fn mention(&self, text: &str) -> String {
        self.act(|state| {
            let app = &self.app.app;
            let text = format!("<@{}> {text}", app.bot_user);
            let ts = self.show(state, &text, json!({}));
            let mut event = state.channel(&self.channel).messages[&ts].clone();
            event["type"] = "app_mention".into();
            event["channel"] = self.channel.as_str().into();
            event["event_ts"] = ts.as_str().into();
            state.push(self.app.server(), "events_api", app.around(event));
            ts
        })
    }

    /// Sends a file with a comment.
    pub fn send_file(&self, name: &str, bytes: impl Into<axum::body::Bytes>, comment: &str) -> String {
        let bytes = bytes.into();
        self.act(|state| {
            let id = files::store(state, name, files::mime_of(name), bytes.len(), Some(bytes));
            let file = files::describe(self.app.server(), state, &id);
            self.show(state, comment, json!({"subtype": "file_share", "files": [file], "upload": false}))
        })
    }

    /// Changes an own message.
    pub fn edit(&self, ts: &str, text: &str) {
        self.act(|state| {
            let before = state.channel(&self.channel).messages.get(ts).cloned().unwrap_or_default();
            let mut message = before.clone();
            message["text"] = text.into();
            message["edited"] = json!({"user": self.user, "ts": ts});
            state.channel(&self.channel).messages.insert(ts.to_owned(), message.clone());
            self.note(state, What::Edit, Some(ts), text, message.clone());
            self.tell_of_change(state, "message_changed", json!({"message": message, "previous_message": before}));
        });
    }

    /// The platform shows a preview of a link in a message: nothing was edited.
    pub fn unfurl(&self, ts: &str) {
        self.act(|state| {
            let before = state.channel(&self.channel).messages.get(ts).cloned().unwrap_or_default();
            let mut message = before.clone();
            message["attachments"] = json!([{"title": "a preview"}]);
            self.tell_of_change(state, "message_changed", json!({"message": message, "previous_message": before}));
        });
    }

    /// Deletes an own message.
    pub fn delete(&self, ts: &str) {
        self.act(|state| {
            let before = state.channel(&self.channel).messages.remove(ts);
            self.note(state, What::Delete, Some(ts), "", json!({}));
            self.tell_of_change(state, "message_deleted", json!({"deleted_ts": ts, "previous_message": before}));
        });
    }

    /// Puts a reaction to a message.
    pub fn react(&self, ts: &str, name: &str) {
        self.reaction(ts, name, true);
    }

    /// Takes a reaction back.
    pub fn unreact(&self, ts: &str, name: &str) {
        self.reaction(ts, name, false);
    }

    fn reaction(&self, ts: &str, name: &str, add: bool) {
        self.act(|state| {
            let (server, app) = (self.app.server(), &self.app.app);
            // A reaction that is there already changes nothing.
            let _ = methods::set_reaction(server, app, state, (&self.channel, ts), &self.user, name, add);
        });
    }

    /// Presses a button of a message.
    pub fn press(&self, ts: &str, action: &str, value: &str) {
        self.act(|state| {
            let app = &self.app.app;
            let message = state.channel(&self.channel).messages.get(ts).cloned();
            let payload = json!({
                "type": "block_actions", "token": "verification-token-of-old", "api_app_id": app.id.as_ref(),
                "trigger_id": trigger(), "team": {"id": app.team}, "user": {"id": self.user, "username": self.user.to_lowercase()},
                "container": {"type": "message", "message_ts": ts, "channel_id": self.channel},
                "channel": {"id": self.channel, "name": "somewhere"}, "message": message,
                "response_url": format!("{}/response", self.app.server().url),
                "actions": [{"type": "button", "action_id": action, "block_id": "b", "value": value, "action_ts": state.next_ts()}],
            });
            self.note(state, What::Press, Some(ts), value, payload.clone());
            state.push(self.app.server(), "interactive", payload);
        });
    }

    /// Uses a slash command.
    pub fn command(&self, command: &str, text: &str) {
        self.act(|state| {
            let app = &self.app.app;
            let payload = json!({
                "token": "verification-token-of-old", "team_id": app.team, "channel_id": self.channel,
                "channel_name": "somewhere", "user_id": self.user, "user_name": self.user.to_lowercase(), "command": command,
                "text": text, "api_app_id": app.id.as_ref(), "is_enterprise_install": "false", "trigger_id": trigger(),
                "response_url": format!("{}/response", self.app.server().url),
            });
            self.note(state, What::Command, None, &format!("{command} {text}"), payload.clone());
            state.push(self.app.server(), "slash_commands", payload);
        });
    }

    /// What happened in this conversation so far.
    pub fn conversation(&self) -> Vec<Arc<Entry>> {
        let mut state = lock(&self.app.app.state);
        state.channel(&self.channel).entries.iter().cloned().collect()
    }

    /// The bot's messages so far.
    pub fn answers(&self) -> Vec<Arc<Entry>> {
        self.conversation().into_iter().filter(|entry| entry.is_answer()).collect()
    }

    /// The bot's messages, once there are `count` of them.
    pub async fn wait_for_answers(&self, count: usize, within: Duration) -> Result<Vec<Arc<Entry>>, TimedOut> {
        let what = format!("{count} answers in {}", self.channel);
        self.app.slack.wait_for(&what, within, || Some(self.answers()).filter(|answers| answers.len() >= count)).await
    }

    /// The message as it is now.
    pub fn message_at(&self, ts: &str) -> Option<Value> {
        lock(&self.app.app.state).channel(&self.channel).messages.get(ts).cloned()
    }

    /// What the bot is refused with in this conversation, from now on.
    pub fn refuse(&self, error: Option<&str>) {
        self.act(|state| state.channel(&self.channel).refused_with = error.map(str::to_owned));
    }

    fn message(&self, text: &str, fields: Value) -> String {
        self.act(|state| self.show(state, text, fields))
    }

    fn show(&self, state: &mut AppState, text: &str, fields: Value) -> String {
        let (server, app, ts) = (self.app.server(), &self.app.app, state.next_ts());
        let mut message = json!({
            "type": "message", "user": self.user, "client_msg_id": format!("{:032x}", rand::random::<u128>()),
            "text": text, "team": app.team, "ts": ts,
            "blocks": [{"type": "rich_text", "block_id": "b", "elements": [{"type": "rich_text_section",
                "elements": [{"type": "text", "text": text}]}]}],
        });
        if let (Some(message), Some(fields)) = (message.as_object_mut(), fields.as_object()) {
            message.extend(fields.clone());
        }
        state.channel(&self.channel).messages.insert(ts.clone(), message.clone());
        self.note(state, What::Message, Some(&ts), text, message.clone());
        state.push(server, "events_api", app.around(methods::message_event(&self.channel, message)));
        ts
    }

    fn tell_of_change(&self, state: &mut AppState, subtype: &str, fields: Value) {
        let at = state.next_ts();
        let event = methods::subtype_event(&self.channel, subtype, &at, fields);
        state.push(self.app.server(), "events_api", self.app.app.around(event));
    }

    fn note(&self, state: &mut AppState, what: What, ts: Option<&str>, text: &str, content: Value) {
        let by = By::User(self.user.clone());
        state.note(self.app.server(), &self.app.app, (&self.channel, by, what), ts, text, content);
    }

    fn act<T>(&self, act: impl FnOnce(&mut AppState) -> T) -> T {
        let done = act(&mut lock(&self.app.app.state));
        self.app.server().changed();
        done
    }
}

fn trigger() -> String {
    format!("{}.{}.{:032x}", rand::random::<u32>(), rand::random::<u32>(), rand::random::<u128>())
}
