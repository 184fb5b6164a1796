//! Methods that put a message into a chat.

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::super::{
    answer::{Answer, Refused},
    bot::{Bot, BotState},
    chat::text_of,
    files::{self, FileKind},
    params::Params,
    record::{By, What},
    server::Server,
};
use crate::lock;

/// The longest text and the longest caption.
const LONGEST_TEXT: usize = 4096;
const LONGEST_CAPTION: usize = 1024;

/// The chat that a request names, by number or by `@name`; one that the bot never met is not found.
pub(super) fn chat_id(state: &BotState, params: &Params) -> Result<i64, Refused> {
    let not_found = || Refused::bad_request("chat not found");
    let id = match params.integer("chat_id") {
        Some(id) => id,
        None => {
            let name = params.text("chat_id").ok_or_else(|| Refused::bad_request("chat_id is empty"))?;
            let name = name.strip_prefix('@').ok_or_else(not_found)?;
            let named = |info: &Value| info.get("username").and_then(Value::as_str) == Some(name);
            state.chats.values().find(|chat| named(&chat.info)).map(|chat| chat.id).ok_or_else(not_found)?
        }
    };
    state.chats.contains_key(&id).then_some(id).ok_or_else(not_found)
}

/// The same, for a request that wants to write there.
pub(super) fn open_chat(state: &BotState, params: &Params) -> Result<i64, Refused> {
    let id = chat_id(state, params)?;
    match state.chats.get(&id) {
        Some(chat) if chat.migrated_to.is_some() => Err(Refused::migrated(chat.migrated_to.unwrap_or_default())),
        Some(chat) if chat.blocked && id > 0 => Err(Refused::new(403, "Forbidden: bot was blocked by the user")),
        Some(chat) if chat.blocked => Err(Refused::new(403, "Forbidden: bot was kicked from the group chat")),
        _ => Ok(id),
    }
}

/// The text without blanks around it, as the platform shows it. Marks of a `parse_mode` stay: they aren't interpreted.
pub(super) fn checked_text(params: &Params) -> Result<String, Refused> {
    check_parse_mode(params)?;
    let text = params.text("text").map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| Refused::bad_request("message text is empty"))?;
    if text.encode_utf16().count() > LONGEST_TEXT {
        return Err(Refused::bad_request("message is too long"));
    }
    Ok(text)
}

fn check_parse_mode(params: &Params) -> Result<(), Refused> {
    match params.text("parse_mode").map(|mode| mode.to_ascii_lowercase()).as_deref() {
        None | Some("html" | "markdown" | "markdownv2") => Ok(()),
        Some(_) => Err(Refused::bad_request("unsupported parse_mode")),
    }
}

pub(super) fn message(server: &Server, bot: &Bot, params: &Params) -> Answer {
    let text = checked_text(params)?;
    let mut fields = Map::new();
    fields.insert("text".into(), text.into());
    if let Some(entities) = params.nested("entities")? {
        fields.insert("entities".into(), entities);
    }
    deliver(server, bot, params, |_| Ok(fields))
}

pub(super) fn file(server: &Server, bot: &Bot, params: &Params, kind: FileKind) -> Answer {
    check_parse_mode(params)?;
    let caption = params.text("caption").filter(|_| kind.field != "sticker");
    if caption.as_ref().is_some_and(|caption| caption.encode_utf16().count() > LONGEST_CAPTION) {
        return Err(Refused::bad_request("message caption is too long"));
    }
    deliver(server, bot, params, |state| {
        let id = files::take(state, params, kind)?;
        let mut fields = files::describe(state, kind, &id);
        if let Some(caption) = caption {
            fields.insert("caption".into(), caption.into());
        }
        Ok(fields)
    })
}

fn place(params: &Params) -> Result<Value, Refused> {
    let (latitude, longitude) = (params.number("latitude"), params.number("longitude"));
    match (latitude, longitude) {
        (Some(latitude), Some(longitude)) if latitude.abs() <= 90.0 && longitude.abs() <= 180.0 => {
            Ok(json!({"latitude": latitude, "longitude": longitude}))
        }
        _ => Err(Refused::bad_request("wrong latitude or longitude specified")),
    }
}

pub(super) fn location(server: &Server, bot: &Bot, params: &Params) -> Answer {
    let place = place(params)?;
    deliver(server, bot, params, |_| Ok(Map::from_iter([("location".to_owned(), place)])))
}

pub(super) fn venue(server: &Server, bot: &Bot, params: &Params) -> Answer {
    let place = place(params)?;
    let title = params.text("title").ok_or_else(|| Refused::bad_request("title must be non-empty"))?;
    let address = params.text("address").ok_or_else(|| Refused::bad_request("address must be non-empty"))?;
    deliver(server, bot, params, |_| {
        let venue = json!({"location": place.clone(), "title": title, "address": address});
        Ok(Map::from_iter([("location".to_owned(), place), ("venue".to_owned(), venue)]))
    })
}

/// Puts the message into the chat, in the bot's name.
fn deliver(
    server: &Server,
    bot: &Bot,
    params: &Params,
    fields: impl FnOnce(&mut BotState) -> Result<Map<String, Value>, Refused>,
) -> Answer {
    let reply = reply_to(params)?;
    let markup = params.nested("reply_markup")?;
    let mut state = lock(&bot.state);
    let chat = open_chat(&state, params)?;
    if let Some(limits) = *lock(&server.limits) {
        state.limiter.take(&limits, chat, Instant::now()).map_err(Refused::too_many)?;
    }
    let mut fields = fields(&mut state)?;
    if let Some((message, may_be_gone)) = reply {
        match state.chat(chat).quoted(message) {
            Some(quoted) => _ = fields.insert("reply_to_message".into(), quoted),
            None if may_be_gone => {}
            None => return Err(Refused::bad_request("message to be replied not found")),
        }
    }
    // Only buttons inside the message stay with it; keyboards are the chat's.
    if let Some(markup) = markup.filter(|markup| markup.get("inline_keyboard").is_some()) {
        fields.insert("reply_markup".into(), markup);
    }
    let message = state.chat(chat).post(bot.user(), fields, server.keep());
    let id = message.get("message_id").and_then(Value::as_i64);
    state.note(server, bot, (chat, By::Bot, What::Message), id, text_of(&message), message.clone());
    Ok(Value::clone(&message))
}

/// The message that is answered, in the form of today or the one before it, and whether it may be gone.
fn reply_to(params: &Params) -> Result<Option<(i64, bool)>, Refused> {
    let lenient = params.flag("allow_sending_without_reply");
    let Some(reply) = params.nested("reply_parameters")? else {
        return Ok(params.integer("reply_to_message_id").map(|id| (id, lenient)));
    };
    let lenient = lenient || reply.get("allow_sending_without_reply").and_then(Value::as_bool).unwrap_or(false);
    match reply.get("message_id").and_then(Value::as_i64) {
        Some(id) => Ok(Some((id, lenient))),
        None => Err(Refused::bad_request("can't parse reply parameters: Can't find field \"message_id\"")),
    }
}

pub(super) fn action(server: &Server, bot: &Bot, params: &Params) -> Answer {
    let mut state = lock(&bot.state);
    let chat = open_chat(&state, params)?;
    let action = params.text("action").ok_or_else(|| Refused::bad_request("wrong parameter action in request"))?;
    state.note(server, bot, (chat, By::Bot, What::Action), None, Some(action), Value::Null.into());
    Ok(true.into())
}
