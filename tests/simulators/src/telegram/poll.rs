//! `getUpdates`: the long poll, its offset, and the conflicts of two polls or a poll and a webhook.

use std::time::Duration;

use axum::{http::StatusCode, response::Response};
use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    answer::{Refused, raw},
    bot::{Bot, BotState, Waiter, Woken},
    params::Params,
    server::Server,
};
use crate::lock;

/// What the older of two polls hears.
pub(super) const TERMINATED: &str =
    "terminated by other getUpdates request; make sure that only one bot instance is running";
/// What a poll hears while a webhook is set.
const WEBHOOK: &str =
    "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first";
/// The longest poll that the platform holds.
const LONGEST: i64 = 50;

/// Answers at once when there is something to tell, else as soon as there is, else empty after `timeout`.
pub(super) async fn get_updates(server: &Server, bot: &Bot, params: &Params) -> Result<Response, Refused> {
    let limit = usize::try_from(params.integer("limit").filter(|limit| (1..=100).contains(limit)).unwrap_or(100))
        .unwrap_or(100);
    let timeout = params.integer("timeout").unwrap_or(0).clamp(0, LONGEST);
    let allowed = allowed_updates(params)?;
    let (number, woken) = {
        let mut state = lock(&bot.state);
        if state.webhook.is_some() {
            return Err(Refused::conflict(WEBHOOK));
        }
        state.counts.polls += 1;
        let number = state.counts.polls;
        if state.waiter.is_some() {
            state.counts.conflicts += 1;
            state.wake(server, Woken::Refused(Refused::conflict(TERMINATED)));
        }
        if let Some(allowed) = allowed {
            state.allowed = allowed;
        }
        confirm(&mut state, params.integer("offset").unwrap_or(0));
        if timeout == 0 || !state.pending.is_empty() {
            let body = batch(&mut state, limit);
            drop(state);
            server.changed();
            return Ok(body);
        }
        let (wake, woken) = oneshot::channel();
        state.waiter = Some(Waiter { number, wake });
        server.poll_opened();
        (number, woken)
    };
    server.changed();
    let _hang_up = HangUp { server, bot, number };
    let wait = Duration::from_secs(timeout.unsigned_abs());
    match tokio::time::timeout(wait, woken).await {
        Ok(Ok(Woken::Refused(refused))) => Err(refused),
        _ => {
            let mut state = lock(&bot.state);
            Ok(batch(&mut state, limit))
        }
    }
}

/// Takes the poll back when it ends, the client's hanging up included: hyper drops the handler then.
struct HangUp<'a> {
    server: &'a Server,
    bot: &'a Bot,
    number: u64,
}

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.bot.state);
        if state.waiter.as_ref().is_some_and(|waiter| waiter.number == self.number) {
            state.waiter = None;
            self.server.poll_closed();
        }
        drop(state);
        self.server.changed();
    }
}

/// What the request says about the kinds it wants: nothing, all but the special ones (an empty list), or a list.
pub(super) fn allowed_updates(params: &Params) -> Result<Option<Option<Vec<String>>>, Refused> {
    match params.nested("allowed_updates")? {
        None => Ok(None),
        Some(Value::Array(kinds)) if kinds.is_empty() => Ok(Some(None)),
        Some(Value::Array(kinds)) => {
            Ok(Some(Some(kinds.iter().filter_map(Value::as_str).map(str::to_ascii_lowercase).collect())))
        }
        Some(_) => Err(Refused::bad_request("can't parse allowed_updates: expected an Array")),
    }
}

/// A positive offset forgets everything below it; a negative one keeps that many from the end.
fn confirm(state: &mut BotState, offset: i64) {
    if offset > 0 {
        while state.pending.front().is_some_and(|update| update.id < offset) {
            state.pending.pop_front();
        }
    } else if offset < 0 {
        let keep = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
        while state.pending.len() > keep {
            state.pending.pop_front();
        }
    }
}

fn batch(state: &mut BotState, limit: usize) -> Response {
    let mut body = String::from("{\"ok\":true,\"result\":[");
    let (mut given, mut again) = (0, 0);
    for (index, update) in state.pending.iter_mut().take(limit).enumerate() {
        if index > 0 {
            body.push(',');
        }
        body.push_str(&update.json);
        given += 1;
        again += u64::from(update.given > 0);
        update.given += 1;
    }
    state.counts.given += given;
    state.counts.given_again += again;
    body.push_str("]}");
    raw(StatusCode::OK, "application/json", body)
}
