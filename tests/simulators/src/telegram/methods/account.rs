//! Methods about the bot itself: who it is, its webhook, its commands, its end.

use serde_json::{Value, json};

use super::super::{
    answer::{Answer, Refused},
    bot::{Bot, Standing, Woken},
    params::Params,
    poll,
    server::Server,
};
use super::send;
use crate::lock;

pub(super) fn me(bot: &Bot) -> Value {
    let mut me = bot.user();
    for (flag, set) in [
        ("can_join_groups", true),
        ("can_read_all_group_messages", true),
        ("supports_inline_queries", false),
        ("can_connect_to_business", false),
        ("has_main_web_app", false),
    ] {
        me[flag] = set.into();
    }
    me
}

pub(super) fn log_out(server: &Server, bot: &Bot) -> Value {
    let mut state = lock(&bot.state);
    state.standing = Standing::LoggedOut;
    state.wake(server, Woken::Refused(Refused::new(400, "Logged out")));
    true.into()
}

/// The instance is closed and opened again by the next request; only the poll that waits notices.
pub(super) fn close(server: &Server, bot: &Bot) -> Value {
    lock(&bot.state).wake(server, Woken::Refused(Refused::new(500, "Internal Server Error: restart")));
    true.into()
}

pub(super) fn set_commands(bot: &Bot, params: &Params) -> Answer {
    let Some(Value::Array(commands)) = params.nested("commands")? else {
        return Err(Refused::bad_request("can't parse commands: expected an Array"));
    };
    let named = |command: &Value| {
        let name = command.get("command").and_then(Value::as_str).unwrap_or("");
        (1..=32).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    if !commands.iter().all(named) {
        return Err(Refused::bad_request("BOT_COMMAND_INVALID"));
    }
    lock(&bot.state).commands = commands.into();
    Ok(true.into())
}

pub(super) fn commands(bot: &Bot) -> Value {
    lock(&bot.state).commands.clone()
}

pub(super) fn delete_commands(bot: &Bot) -> Value {
    lock(&bot.state).commands = json!([]);
    true.into()
}

pub(super) fn chat(bot: &Bot, params: &Params) -> Answer {
    let mut state = lock(&bot.state);
    let id = send::chat_id(&state, params)?;
    let mut info = state.chat(id).info.clone();
    info["accent_color_id"] = 0.into();
    info["max_reaction_count"] = 11.into();
    info["accepted_gift_types"] = json!({
        "unlimited_gifts": false, "limited_gifts": false, "unique_gifts": false,
        "premium_subscription": false, "gifts_from_channels": false,
    });
    Ok(info)
}

/// The webhook is remembered and shuts polling out; nothing is delivered to it.
pub(super) fn set_webhook(server: &Server, bot: &Bot, params: &Params) -> Answer {
    let url = params.text("url");
    if url.as_ref().is_some_and(|url| !url.starts_with("https://")) {
        return Err(Refused::bad_request("bad webhook: An HTTPS URL must be provided for webhook"));
    }
    let allowed = poll::allowed_updates(params)?;
    let mut state = lock(&bot.state);
    if let Some(allowed) = allowed {
        state.allowed = allowed;
    }
    if params.flag("drop_pending_updates") {
        state.pending.clear();
    }
    if url.is_some() {
        state.wake(server, Woken::Refused(Refused::conflict("terminated by setWebhook request")));
    }
    state.webhook = url;
    Ok(true.into())
}

pub(super) fn delete_webhook(bot: &Bot, params: &Params) -> Value {
    let mut state = lock(&bot.state);
    state.webhook = None;
    if params.flag("drop_pending_updates") {
        state.pending.clear();
    }
    true.into()
}

pub(super) fn webhook_info(bot: &Bot) -> Value {
    let state = lock(&bot.state);
    let mut info = json!({
        "url": state.webhook.as_deref().unwrap_or(""),
        "has_custom_certificate": false,
        "pending_update_count": state.pending.len(),
    });
    if let Some(kinds) = &state.allowed {
        info["allowed_updates"] = json!(kinds);
    }
    info
}
