//! The long poll of one bot: ask, store, and only with the next question confirm.
//!
//! The offset is always given and never negative, and follows from what was stored last; gaps mean nothing, since the
//! platform may begin anew at any number. The first question doesn't wait, so that a connection is known to be good at once.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use teloxide_core::types::AllowedUpdate;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{api::Api, outcome::closed, update};
use crate::{
    directory::ChannelSpec,
    platform::{Closed, Inbox},
};

/// Every kind there is. The server remembers a list that was sent once, and by default leaves some of them out.
const ALL_KINDS: [AllowedUpdate; 23] = [
    AllowedUpdate::Message,
    AllowedUpdate::EditedMessage,
    AllowedUpdate::ChannelPost,
    AllowedUpdate::EditedChannelPost,
    AllowedUpdate::BusinessConnection,
    AllowedUpdate::BusinessMessage,
    AllowedUpdate::EditedBusinessMessage,
    AllowedUpdate::DeletedBusinessMessages,
    AllowedUpdate::MessageReaction,
    AllowedUpdate::MessageReactionCount,
    AllowedUpdate::InlineQuery,
    AllowedUpdate::ChosenInlineResult,
    AllowedUpdate::CallbackQuery,
    AllowedUpdate::ShippingQuery,
    AllowedUpdate::PreCheckoutQuery,
    AllowedUpdate::PurchasedPaidMedia,
    AllowedUpdate::Poll,
    AllowedUpdate::PollAnswer,
    AllowedUpdate::MyChatMember,
    AllowedUpdate::ChatMember,
    AllowedUpdate::ChatJoinRequest,
    AllowedUpdate::ChatBoost,
    AllowedUpdate::RemovedChatBoost,
];

/// How many updates are asked for at once: as many as the platform gives.
const BATCH: u8 = 100;
/// What an answer may take beyond the time that the poll waits.
const MARGIN: Duration = Duration::from_secs(10);
/// A long poll that comes back empty sooner than this was not held: the next one is put off by as much.
const HELD_AT_LEAST: Duration = Duration::from_millis(500);

/// teloxide's payload has a 32-bit offset, which an update id may outgrow.
#[derive(Serialize)]
struct GetUpdates {
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    limit: u8,
    timeout: u64,
    allowed_updates: &'static [AllowedUpdate],
}

/// Polls until `stop` is cancelled (`Ok`) or something ends it.
pub(super) async fn poll(
    api: &Api,
    poll_timeout: Duration,
    spec: &ChannelSpec,
    inbox: &dyn Inbox,
    stop: &CancellationToken,
) -> Result<(), Closed> {
    let mut offset = inbox.offset().await?;
    let mut wait = Duration::ZERO;
    let mut is_up = false;
    loop {
        // The question confirms what is below its offset, and it takes the poll away from whoever else holds it.
        inbox.held()?;
        let question = GetUpdates { offset, limit: BATCH, timeout: wait.as_secs(), allowed_updates: &ALL_KINDS };
        let asked = Instant::now();
        let answer = tokio::select! {
            biased;
            // What the poll had on its way is given again: nothing of it was confirmed.
            () = stop.cancelled() => return Ok(()),
            answer = api.post(spec.token.as_ref(), "getUpdates", &question, wait + MARGIN) => answer.map_err(closed)?,
        };
        let batch = update::read(spec.id, Timestamp::now(), &answer).ok_or_else(|| Closed::Transient {
            reason: "the Bot API answered a poll with something that is no list of updates".into(),
            after: None,
        })?;
        let was_empty = batch.events.is_empty();
        if !was_empty {
            inbox.store(batch.events, batch.next_offset).await?;
        }
        if batch.next_offset.is_none() && !was_empty {
            // Stored, but there is no way to confirm them: they would come again at once, for ever.
            return Err(Closed::Transient { reason: "updates without ids".into(), after: None });
        }
        offset = batch.next_offset.or(offset);
        if is_up {
            inbox.heard();
        } else {
            is_up = true;
            inbox.connected();
        }
        if was_empty && !wait.is_zero() && asked.elapsed() < HELD_AT_LEAST.min(wait) {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(HELD_AT_LEAST) => {}
            }
        }
        wait = poll_timeout;
    }
}
