//! Methods about what is already in a chat: edit, delete, react, answer a pressed button.

use serde_json::{Value, json};

use super::super::{
    answer::{Answer, Refused},
    bot::Bot,
    chat::now,
    params::Params,
    record::{By, What},
    server::Server,
};
use super::send;
use crate::lock;

/// The emoji that may be reacted with.
const REACTIONS: &str = "❤ 👍 👎 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤‍🔥 🌚 🌭 💯 🤣 ⚡ 🍌 🏆 💔 🤨 😐 🍓 🍾 💋 🖕 😈 😴 😭 🤓 👻 👨‍💻 👀 🎃 🙈 😇 😨 🤝 ✍ 🤗 🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 👾 🤷‍♂ 🤷 🤷‍♀ 😡";

fn message_id(params: &Params, missing: &str) -> Result<i64, Refused> {
    params.integer("message_id").filter(|id| *id > 0).ok_or_else(|| Refused::bad_request(missing))
}

fn is_from(message: &Value, bot: &Bot) -> bool {
    message.pointer("/from/id").and_then(Value::as_i64) == Some(bot.id)
}

pub(super) fn edit(server: &Server, bot: &Bot, params: &Params) -> Answer {
    let text = send::checked_text(params)?;
    let markup = params.nested("reply_markup")?.filter(|markup| markup.get("inline_keyboard").is_some());
    let mut state = lock(&bot.state);
    let chat = send::open_chat(&state, params)?;
    let id = message_id(params, "message identifier is not specified")?;
    let Some(message) = state.chat(chat).messages.get(&id).cloned() else {
        return Err(Refused::bad_request("message to edit not found"));
    };
    if !is_from(&message, bot) {
        return Err(Refused::bad_request("message can't be edited"));
    }
    if message.get("text").is_none() {
        return Err(Refused::bad_request("there is no text in the message to edit"));
    }
    let mut edited = Value::clone(&message);
    edited["text"] = text.clone().into();
    if let Some(fields) = edited.as_object_mut() {
        fields.remove("reply_markup");
        if let Some(markup) = markup {
            fields.insert("reply_markup".into(), markup);
        }
    }
    if edited == *message {
        return Err(Refused::bad_request(
            "message is not modified: specified new message content and reply markup are exactly the same \
             as a current content and reply markup of the message",
        ));
    }
    edited["edit_date"] = now().into();
    let edited = state.chat(chat).replace(id, edited);
    state.note(server, bot, (chat, By::Bot, What::Edit), Some(id), Some(text), edited.clone());
    Ok(Value::clone(&edited))
}

pub(super) fn delete(server: &Server, bot: &Bot, params: &Params) -> Answer {
    let mut state = lock(&bot.state);
    let chat = send::open_chat(&state, params)?;
    let id = message_id(params, "message identifier is not specified")?;
    let Some(message) = state.chat(chat).messages.remove(&id) else {
        return Err(Refused::bad_request("message to delete not found"));
    };
    state.note(server, bot, (chat, By::Bot, What::Delete), Some(id), None, message);
    Ok(true.into())
}

pub(super) fn react(server: &Server, bot: &Bot, params: &Params) -> Answer {
    let reactions = match params.nested("reaction")? {
        None => Vec::new(),
        Some(Value::Array(reactions)) => reactions,
        Some(_) => return Err(Refused::bad_request("can't parse reaction: expected an Array")),
    };
    let emoji: Vec<&str> = reactions.iter().filter_map(|one| one.get("emoji").and_then(Value::as_str)).collect();
    let known = |emoji: &&str| REACTIONS.split(' ').any(|known| known == emoji.trim_end_matches('\u{fe0f}'));
    if emoji.len() != reactions.len() || !emoji.iter().all(known) {
        return Err(Refused::bad_request("REACTION_INVALID"));
    }
    if emoji.len() > 1 {
        return Err(Refused::bad_request("REACTIONS_TOO_MANY"));
    }
    let mut state = lock(&bot.state);
    let chat = send::open_chat(&state, params)?;
    let id = message_id(params, "message identifier is not specified")?;
    if !state.chat(chat).messages.contains_key(&id) {
        return Err(Refused::bad_request("message to react not found"));
    }
    let text = Some(emoji.join(" "));
    state.note(server, bot, (chat, By::Bot, What::Reaction), Some(id), text, json!(reactions).into());
    Ok(true.into())
}

pub(super) fn answer_press(server: &Server, bot: &Bot, params: &Params) -> Answer {
    let mut state = lock(&bot.state);
    let id = params.text("callback_query_id").unwrap_or_default();
    let Some(chat) = state.presses.get(&id).copied() else {
        return Err(Refused::bad_request("query is too old and response timeout expired or query ID is invalid"));
    };
    state.note(server, bot, (chat, By::Bot, What::PressAnswer), None, params.text("text"), json!(id).into());
    Ok(true.into())
}
