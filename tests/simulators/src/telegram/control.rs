//! The control side over HTTP, for test drivers that are not written in Rust.
//!
//! `POST /control/bots` `{token?}` · `GET /control/bots/{token}` · `POST /control/bots/{token}/revoke` ·
//! `POST /control/bots/{token}/chats/{chat}` an act · `GET /control/bots/{token}/chats/{chat}` the conversation ·
//! `POST /control/faults` `{token?, chat?, method?, times?, fault}` · `DELETE /control/faults` · `GET /control/stats` ·
//! `POST /control/wait` `{polls}` or `{token, chat, answers}`, with `within_ms`.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::json;

use super::{BotHandle, Fault, Listening, On, Refused, Telegram, User, answer::json_response, server::Server};

/// The server, which the control side must not keep alive.
#[derive(Clone)]
pub(super) struct Control {
    server: Arc<Server>,
    listening: Weak<Listening>,
}

impl Control {
    pub(super) fn new(server: &Arc<Server>, listening: &Weak<Listening>) -> Self {
        Self { server: Arc::clone(server), listening: Weak::clone(listening) }
    }

    fn telegram(&self) -> Result<Telegram, Mistaken> {
        let gone = || Mistaken(StatusCode::SERVICE_UNAVAILABLE, "the simulator is being closed".into());
        Ok(Telegram { server: Arc::clone(&self.server), listening: self.listening.upgrade().ok_or_else(gone)? })
    }
}

/// A test driver's request that can't be done.
struct Mistaken(StatusCode, String);

impl IntoResponse for Mistaken {
    fn into_response(self) -> Response {
        json_response(self.0, &json!({"error": self.1}))
    }
}

type Done = Result<Response, Mistaken>;

fn done(body: &impl serde::Serialize) -> Done {
    Ok(json_response(StatusCode::OK, body))
}

#[derive(Deserialize)]
struct NewBot {
    token: Option<String>,
}

/// What a person does.
#[derive(Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
enum Act {
    Say { text: String },
    Reply { to: i64, text: String },
    Photo { caption: Option<String> },
    Location { latitude: f64, longitude: f64 },
    Edit { message_id: i64, text: String },
    React { message_id: i64, emoji: Vec<String> },
    Press { message_id: i64, data: String },
    Block,
    Unblock,
}

#[derive(Deserialize)]
struct FaultRequest {
    token: Option<String>,
    chat: Option<i64>,
    method: Option<String>,
    #[serde(default = "once")]
    times: u32,
    fault: FaultKind,
}

fn once() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FaultKind {
    Refuse { code: u16, description: String, retry_after: Option<u64>, migrate_to_chat_id: Option<i64> },
    Page(u16),
    ResetBefore,
    ResetAfter,
    LateMs(u64),
    SlowAnswerMs(u64),
    BlackHole,
    Unanswered,
    Malformed,
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Self {
        match kind {
            FaultKind::Refuse { code, description, retry_after, migrate_to_chat_id } => {
                Self::Refuse(Refused { code, description, retry_after, migrate_to_chat_id })
            }
            FaultKind::Page(code) => Self::Page(code),
            FaultKind::ResetBefore => Self::ResetBefore,
            FaultKind::ResetAfter => Self::ResetAfter,
            FaultKind::LateMs(ms) => Self::Late(Duration::from_millis(ms)),
            FaultKind::SlowAnswerMs(ms) => Self::SlowAnswer(Duration::from_millis(ms)),
            FaultKind::BlackHole => Self::BlackHole,
            FaultKind::Unanswered => Self::Unanswered,
            FaultKind::Malformed => Self::Malformed,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Wait {
    Polls { polls: usize, within_ms: u64 },
    Answers { token: String, chat: i64, answers: usize, within_ms: u64 },
}

/// The routes under `/control`.
pub(super) fn routes(control: Control) -> Router {
    Router::new()
        .route("/control/bots", post(add_bot))
        .route("/control/bots/{token}", get(bot_stats))
        .route("/control/bots/{token}/revoke", post(revoke))
        .route("/control/bots/{token}/chats/{chat}", get(conversation).post(act))
        .route("/control/faults", post(add_fault).delete(heal))
        .route("/control/stats", get(stats))
        .route("/control/wait", post(wait))
        .with_state(control)
}

fn find(control: &Control, token: &str) -> Result<BotHandle, Mistaken> {
    let telegram = control.telegram()?;
    let bot = telegram.server.bot(token).ok_or_else(|| Mistaken(StatusCode::NOT_FOUND, "no such bot".into()))?;
    Ok(telegram.handle(bot))
}

async fn add_bot(State(control): State<Control>, Json(new): Json<NewBot>) -> Done {
    let telegram = control.telegram()?;
    let bot = match new.token {
        None => telegram.add_bot(),
        Some(token) if super::server::is_token(&token) => telegram.add_bot_with_token(&token),
        Some(_) => return Err(Mistaken(StatusCode::BAD_REQUEST, "a token is <id>:<secret>".into())),
    };
    done(&json!({"token": bot.token(), "id": bot.id(), "username": bot.bot.username()}))
}

async fn bot_stats(State(control): State<Control>, Path(token): Path<String>) -> Done {
    done(&find(&control, &token)?.stats())
}

async fn revoke(State(control): State<Control>, Path(token): Path<String>) -> Done {
    find(&control, &token)?.revoke();
    done(&true)
}

async fn conversation(State(control): State<Control>, Path((token, chat)): Path<(String, i64)>) -> Done {
    let bot = find(&control, &token)?;
    let entries = bot.telegram().conversation(&bot, chat);
    done(&entries.iter().map(Arc::as_ref).collect::<Vec<_>>())
}

async fn act(State(control): State<Control>, Path((token, chat)): Path<(String, i64)>, Json(act): Json<Act>) -> Done {
    let user = find(&control, &token)?.member(chat, chat.abs());
    if let Act::Edit { message_id, .. } | Act::Press { message_id, .. } = &act {
        known(&user, *message_id)?;
    }
    let sent = match act {
        Act::Say { text } => user.say(&text),
        Act::Reply { to, text } => user.reply(to, &text),
        Act::Photo { caption } => user.photo("a photo", caption.as_deref()),
        Act::Location { latitude, longitude } => user.location(latitude, longitude),
        Act::Edit { message_id, text } => user.edit(message_id, &text),
        Act::React { message_id, emoji } => {
            user.react(message_id, &emoji.iter().map(String::as_str).collect::<Vec<_>>())
        }
        Act::Press { message_id, data } => user.press(message_id, &data),
        Act::Block => {
            user.block();
            return done(&true);
        }
        Act::Unblock => {
            user.unblock();
            return done(&true);
        }
    };
    done(&json!({"message_id": sent.message_id, "update_id": sent.update_id}))
}

fn known(user: &User, message: i64) -> Result<(), Mistaken> {
    let known = user.has_message(message);
    known.then_some(()).ok_or_else(|| Mistaken(StatusCode::NOT_FOUND, format!("no message {message} in this chat")))
}

async fn add_fault(State(control): State<Control>, Json(request): Json<FaultRequest>) -> Done {
    let mut on = request.token.as_deref().map_or_else(On::any, On::token);
    if let Some(chat) = request.chat {
        on = on.and_chat(chat);
    }
    if let Some(method) = &request.method {
        on = on.and_method(method);
    }
    control.telegram()?.fault(on, request.fault.into(), request.times);
    done(&true)
}

async fn heal(State(control): State<Control>) -> Done {
    control.telegram()?.heal_all();
    done(&true)
}

async fn stats(State(control): State<Control>) -> Done {
    done(&control.telegram()?.stats())
}

async fn wait(State(control): State<Control>, Json(wait): Json<Wait>) -> Done {
    let waited = match wait {
        Wait::Polls { polls, within_ms } => {
            control.telegram()?.wait_for_polls(polls, Duration::from_millis(within_ms)).await
        }
        Wait::Answers { token, chat, answers, within_ms } => {
            let user = find(&control, &token)?.member(chat, chat.abs());
            user.wait_for_answers(answers, Duration::from_millis(within_ms)).await.map(drop)
        }
    };
    waited.map_err(|late| Mistaken(StatusCode::REQUEST_TIMEOUT, late.to_string()))?;
    done(&true)
}
