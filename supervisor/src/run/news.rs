//! What the outside is told, in words: a line for each change.

use tracing::{error, info, warn};

use crate::{
    action::News,
    control::Response,
    exit_status::ExitReason,
    state::State,
    status::{Phase, SlotStatus},
};

/// A line in the log.
pub(super) fn log(news: &News) {
    match news {
        News::Phase { slot, phase } => phase_line(*slot, phase),
        News::Lost { slot, incarnation, reason, exit } => match reason {
            ExitReason::Roll | ExitReason::Stop => info!(shard = slot, incarnation, %exit, %reason, "shard has left"),
            _ => warn!(shard = slot, incarnation, %exit, %reason, "shard has died"),
        },
        News::GaveUp { slot, reason } => {
            error!(shard = slot, %reason, "shard dies again and again: it is retried slowly from now on");
        }
        News::Ready => info!("ready"),
        News::RollAccepted { id } => info!(roll = id, "rolling restart requested"),
        News::RollRefused => warn!("rolling restart refused: shutdown is under way"),
        News::RollStarted { id } => info!(roll = id, "rolling restart begins"),
        News::RollDone { id } => info!(roll = id, "rolling restart done"),
        News::RollFailed { id, slot, reason } => {
            error!(roll = id, shard = slot, %reason, "rolling restart stopped: the new shard did not become ready");
        }
        News::Stopping { code } => info!(code, "shutdown begins"),
    }
}

fn phase_line(slot: u32, phase: &Phase) {
    let name = phase.name();
    match phase {
        Phase::NotReady { reason } => warn!(shard = slot, phase = name, %reason, "shard does not serve"),
        Phase::Silent => warn!(shard = slot, phase = name, "shard is not heard of"),
        Phase::Config => {
            error!(shard = slot, phase = name, "shard refuses its configuration: reload when it is mended")
        }
        Phase::Starting { .. }
        | Phase::Ready
        | Phase::Draining
        | Phase::Backoff { .. }
        | Phase::Slow { .. }
        | Phase::Stopped => info!(shard = slot, phase = name, "shard"),
    }
}

/// One line for the service manager.
pub(super) fn status_line(state: &State) -> String {
    let slots = state.statuses();
    let ready = slots.iter().filter(|slot| slot.phase == Phase::Ready).count();
    let mut line = format!("{ready} of {} shards ready", slots.len());
    let other = |slot: &&SlotStatus| slot.phase != Phase::Ready;
    for slot in slots.iter().filter(other).take(8) {
        line += &format!(", {} {}", slot.index, slot.phase.name());
    }
    match (state.is_stopping(), state.is_rolling()) {
        (true, _) => line + " (stopping)",
        (_, true) => line + " (rolling restart)",
        _ => line,
    }
}

/// What is said to who waits for a roll that has failed.
pub(super) fn failure(news: &News) -> Response {
    let reason = match news {
        News::RollFailed { reason: ExitReason::Stop, .. } => "the primary is stopping".to_owned(),
        News::RollFailed { slot, reason, .. } => format!("the new shard {slot} did not become ready: {reason}"),
        _ => "not done".to_owned(),
    };
    Response::Failed { reason }
}
