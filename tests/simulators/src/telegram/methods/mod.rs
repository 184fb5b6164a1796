//! The methods, by name. Each is done whole under the bot's lock, so that a client that hangs up leaves no half.

mod account;
mod change;
mod send;

use super::{
    answer::{Answer, Refused},
    bot::Bot,
    files,
    params::Params,
    server::Server,
};

/// Does the method, whose name is in lower case.
pub(super) fn call(server: &Server, bot: &Bot, method: &str, params: &Params) -> Answer {
    match method {
        "getme" => Ok(account::me(bot)),
        "logout" => Ok(account::log_out(server, bot)),
        "close" => Ok(account::close(server, bot)),
        "setmycommands" => account::set_commands(bot, params),
        "getmycommands" => Ok(account::commands(bot)),
        "deletemycommands" => Ok(account::delete_commands(bot)),
        "getchat" => account::chat(bot, params),
        "setwebhook" => account::set_webhook(server, bot, params),
        "deletewebhook" => Ok(account::delete_webhook(bot, params)),
        "getwebhookinfo" => Ok(account::webhook_info(bot)),
        "sendmessage" => send::message(server, bot, params),
        "sendlocation" => send::location(server, bot, params),
        "sendvenue" => send::venue(server, bot, params),
        "sendchataction" => send::action(server, bot, params),
        "editmessagetext" => change::edit(server, bot, params),
        "deletemessage" => change::delete(server, bot, params),
        "setmessagereaction" => change::react(server, bot, params),
        "answercallbackquery" => change::answer_press(server, bot, params),
        "getfile" => files::get_file(bot, params),
        _ => match method.strip_prefix("send").and_then(files::kind) {
            Some(kind) => send::file(server, bot, params, kind),
            None => Err(Refused::new(404, "Not Found: method not found")),
        },
    }
}
