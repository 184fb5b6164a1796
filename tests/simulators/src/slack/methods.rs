//! The methods of the Web API that bots use, and the words of their refusals.

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    app::{App, AppState, channel_type},
    files,
    params::Params,
    record::{By, What},
    server::Server,
};
use crate::lock;

/// Why a method does nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Word(String),
    TooMany(u64),
}

impl From<&str> for Refused {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

pub(super) type Done = Result<Value, Refused>;

/// The longest text of a message.
const LONGEST: usize = 40_000;

/// Does what `method` asks for.
pub(super) fn call(server: &Server, app: &App, token: &str, method: &str, params: &Params) -> Done {
    let wants_app_token = method == "apps.connections.open";
    if wants_app_token != (token == app.app_token) && method != "api.test" {
        return Err("not_allowed_token_type".into());
    }
    let mut state = lock(&app.state);
    let state = &mut *state;
    match method {
        "api.test" => Ok(json!({})),
        "auth.test" => Ok(json!({
            "url": server.url, "team": "Simulated", "user": "bot", "team_id": app.team, "user_id": app.bot_user,
            "bot_id": app.bot_id, "is_enterprise_install": false,
        })),
        "apps.connections.open" => {
            let ticket = format!("{:032x}", rand::random::<u128>());
            state.stats.opens.push(std::time::Instant::now());
            state.tickets.insert(ticket.clone());
            let url = server.url.replacen("http", "ws", 1);
            Ok(json!({"url": format!("{url}/link?ticket={ticket}&app_id={}", app.id)}))
        }
        "chat.postMessage" => post(server, app, state, params),
        "chat.update" => update(server, app, state, params),
        "chat.delete" => delete(server, app, state, params),
        "reactions.add" => react(server, app, state, params, true),
        "reactions.remove" => react(server, app, state, params, false),
        "reactions.get" => {
            let (channel, ts) = message_of(state, params, "timestamp")?;
            let message = state.channel(&channel).messages.get(&ts).cloned();
            Ok(json!({"type": "message", "channel": channel, "message": message}))
        }
        "conversations.info" => {
            let channel = known(state, params)?;
            let kind = channel_type(&channel);
            Ok(json!({"channel": {"id": channel, "is_im": kind == "im", "is_mpim": kind == "mpim",
                "is_channel": kind == "channel", "is_member": true}}))
        }
        "conversations.open" => {
            let user = params.text("users").ok_or("users_list_not_supplied")?;
            let channel = dm_of(&user);
            if !state.channels.contains_key(&channel) {
                return Err("user_not_found".into());
            }
            Ok(json!({"channel": {"id": channel}}))
        }
        "conversations.history" => {
            let channel = known(state, params)?;
            let messages: Vec<_> = state.channel(&channel).messages.values().rev().take(100).cloned().collect();
            Ok(json!({"messages": messages, "has_more": false}))
        }
        "users.info" => {
            let user = params.text("user").ok_or("user_not_found")?;
            Ok(
                json!({"user": {"id": user, "name": user.to_lowercase(), "team_id": app.team, "is_bot": user == app.bot_user,
                "profile": {"display_name": format!("User {user}")}}}),
            )
        }
        "files.getUploadURLExternal" => files::begin(server, state, params),
        "files.completeUploadExternal" => files::complete(server, app, state, params),
        "files.info" => files::info(server, state, params),
        _ => Err("unknown_method".into()),
    }
}

/// The conversation between the bot and a person.
pub(super) fn dm_of(user: &str) -> String {
    format!("D{}", user.get(1..).unwrap_or_default())
}

/// The conversation that is named; a person's id means the one with them.
fn known(state: &mut AppState, params: &Params) -> Result<String, Refused> {
    let named = params.text("channel").or_else(|| params.text("channel_id")).ok_or("channel_not_found")?;
    let channel = if named.starts_with(['U', 'W']) { dm_of(&named) } else { named };
    match state.channels.get(&channel) {
        None => Err("channel_not_found".into()),
        Some(place) => match &place.refused_with {
            Some(word) => Err(Refused::Word(word.clone())),
            None => Ok(channel),
        },
    }
}

/// The conversation as it is to be written to, within the limits.
pub(super) fn writable(server: &Server, state: &mut AppState, params: &Params) -> Result<String, Refused> {
    let channel = known(state, params)?;
    let Some(limits) = *lock(&server.limits) else { return Ok(channel) };
    let now = Instant::now();
    let (tokens, at) = state.places.entry(channel.clone()).or_insert((limits.burst, now));
    *tokens = (*tokens + now.duration_since(*at).as_secs_f64() * limits.per_second).min(limits.burst);
    *at = now;
    if *tokens < 1.0 {
        return Err(Refused::TooMany((((1.0 - *tokens) / limits.per_second).ceil() as u64).max(1)));
    }
    *tokens -= 1.0;
    Ok(channel)
}

fn message_of(state: &mut AppState, params: &Params, key: &str) -> Result<(String, String), Refused> {
    let channel = known(state, params)?;
    let ts = params.text(key).ok_or("message_not_found")?;
    if state.channel(&channel).messages.contains_key(&ts) { Ok((channel, ts)) } else { Err("message_not_found".into()) }
}

/// A message of the bot, as the platform shows it.
fn of_bot(app: &App, ts: &str, text: &str) -> Map<String, Value> {
    let message = json!({
        "type": "message", "user": app.bot_user, "bot_id": app.bot_id, "app_id": app.id.as_ref(), "team": app.team,
        "text": text, "ts": ts, "bot_profile": {"id": app.bot_id, "app_id": app.id.as_ref(), "name": "bot"},
    });
    message.as_object().cloned().unwrap_or_default()
}

/// The message as an event; an app hears of its own ones too.
pub(super) fn message_event(channel: &str, mut message: Value) -> Value {
    message["channel"] = channel.into();
    message["channel_type"] = channel_type(channel).into();
    message["event_ts"] = message["ts"].clone();
    message
}

/// The event of a changed or deleted message.
pub(super) fn subtype_event(channel: &str, subtype: &str, ts: &str, fields: Value) -> Value {
    let mut event = json!({
        "type": "message", "subtype": subtype, "channel": channel, "channel_type": channel_type(channel),
        "hidden": true, "ts": ts, "event_ts": ts,
    });
    if let (Some(event), Some(fields)) = (event.as_object_mut(), fields.as_object()) {
        event.extend(fields.clone());
    }
    event
}

/// Shows a message of the bot in a conversation.
pub(super) fn show(server: &Server, app: &App, state: &mut AppState, channel: &str, message: Value) {
    let (ts, text) = (message["ts"].as_str().unwrap_or_default(), message["text"].as_str().unwrap_or_default());
    state.channel(channel).messages.insert(ts.to_owned(), message.clone());
    state.note(server, app, (channel, By::Bot, What::Message), Some(ts), text, message.clone());
    state.push(server, "events_api", app.around(message_event(channel, message)));
}

fn post(server: &Server, app: &App, state: &mut AppState, params: &Params) -> Done {
    let (text, blocks) = (params.text("text").unwrap_or_default(), params.nested("blocks"));
    if text.is_empty() && blocks.is_none() {
        return Err("no_text".into());
    }
    if text.chars().count() > LONGEST {
        return Err("msg_too_long".into());
    }
    let channel = writable(server, state, params)?;
    let ts = state.next_ts();
    let mut message = of_bot(app, &ts, &text);
    if let Some(thread) = params.text("thread_ts") {
        message.insert("thread_ts".into(), thread.into());
    }
    for key in ["blocks", "metadata"] {
        if let Some(value) = params.nested(key) {
            message.insert(key.into(), value);
        }
    }
    let message = Value::Object(message);
    show(server, app, state, &channel, message.clone());
    Ok(json!({"channel": channel, "ts": ts, "message": message}))
}

fn update(server: &Server, app: &App, state: &mut AppState, params: &Params) -> Done {
    let (channel, ts) = message_of(state, params, "ts")?;
    let text = params.text("text").unwrap_or_default();
    let Some(message) = state.channel(&channel).messages.get_mut(&ts) else { return Err("message_not_found".into()) };
    if message["user"] != app.bot_user.as_str() {
        return Err("cant_update_message".into());
    }
    let before = message.clone();
    message["text"] = text.clone().into();
    if let Some(blocks) = params.nested("blocks") {
        message["blocks"] = blocks;
    }
    message["edited"] = json!({"user": app.bot_user, "ts": ts});
    let message = message.clone();
    state.note(server, app, (&channel, By::Bot, What::Edit), Some(&ts), &text, message.clone());
    let at = state.next_ts();
    let fields = json!({"message": message, "previous_message": before});
    state.push(server, "events_api", app.around(subtype_event(&channel, "message_changed", &at, fields)));
    Ok(json!({"channel": channel, "ts": ts, "text": text}))
}

fn delete(server: &Server, app: &App, state: &mut AppState, params: &Params) -> Done {
    let (channel, ts) = message_of(state, params, "ts")?;
    let messages = &mut state.channel(&channel).messages;
    if messages.get(&ts).is_none_or(|message| message["user"] != app.bot_user.as_str()) {
        return Err("cant_delete_message".into());
    }
    let before = messages.remove(&ts);
    state.note(server, app, (&channel, By::Bot, What::Delete), Some(&ts), "", json!({}));
    let at = state.next_ts();
    let fields = json!({"deleted_ts": ts, "previous_message": before});
    state.push(server, "events_api", app.around(subtype_event(&channel, "message_deleted", &at, fields)));
    Ok(json!({"channel": channel, "ts": ts}))
}

fn react(server: &Server, app: &App, state: &mut AppState, params: &Params, add: bool) -> Done {
    let name = params.text("name").ok_or("no_reaction_name")?;
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-+:".contains(&byte)) {
        return Err("invalid_name".into());
    }
    let (channel, ts) = message_of(state, params, "timestamp")?;
    set_reaction(server, app, state, (&channel, &ts), &app.bot_user, &name, add)?;
    Ok(json!({}))
}

/// Puts a reaction to a message, or takes it back, and tells the app of it.
pub(super) fn set_reaction(
    server: &Server,
    app: &App,
    state: &mut AppState,
    (channel, ts): (&str, &str),
    user: &str,
    name: &str,
    add: bool,
) -> Result<(), Refused> {
    let Some(message) = state.channel(channel).messages.get_mut(ts) else { return Err("message_not_found".into()) };
    let author = message["user"].clone();
    let mut all = message["reactions"].as_array().cloned().unwrap_or_default();
    let users = |one: &Value| one["users"].as_array().cloned().unwrap_or_default();
    let place = all.iter().position(|one| one["name"] == name);
    let has = place.is_some_and(|place| users(&all[place]).contains(&user.into()));
    match (add, has, place) {
        (true, true, _) => return Err("already_reacted".into()),
        (false, false, _) => return Err("no_reaction".into()),
        (true, false, Some(place)) => {
            let mut users = users(&all[place]);
            users.push(user.into());
            all[place] = json!({"name": name, "count": users.len(), "users": users});
        }
        (true, false, None) => all.push(json!({"name": name, "count": 1, "users": [user]})),
        (false, true, place) => {
            let place = place.unwrap_or_default();
            let users: Vec<_> = users(&all[place]).into_iter().filter(|one| *one != user).collect();
            if users.is_empty() {
                all.remove(place);
            } else {
                all[place] = json!({"name": name, "count": users.len(), "users": users});
            }
        }
    }
    message["reactions"] = all.into();
    let by = if user == app.bot_user { By::Bot } else { By::User(user.to_owned()) };
    let (what, kind) = if add { (What::Reaction, "reaction_added") } else { (What::Unreaction, "reaction_removed") };
    let at = state.next_ts();
    let event = json!({
        "type": kind, "user": user, "reaction": name, "item_user": author, "event_ts": at,
        "item": {"type": "message", "channel": channel, "ts": ts},
    });
    state.note(server, app, (channel, by, what), Some(ts), name, event.clone());
    state.push(server, "events_api", app.around(event));
    Ok(())
}
