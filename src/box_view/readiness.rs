//! Whether the box is ready, and if not, why: in words that name the shard.

use super::{BoxView, PrimaryFacts, SlotFacts};

/// Everything that stands in the way; nothing means ready.
pub(super) fn reasons(view: &BoxView, slots: &[SlotFacts], primary: &PrimaryFacts) -> Vec<String> {
    let mut reasons = Vec::new();
    if primary.closing {
        reasons.push("shutting down".to_owned());
    }
    if slots.is_empty() {
        reasons.push("no shard has been started".to_owned());
    }
    reasons.extend(slots.iter().filter_map(|slot| {
        let why = if slot.up {
            match view.current(slot) {
                None => "not heard from yet".to_owned(),
                Some(report) => format!("not ready: {}", report.not_ready.as_deref()?),
            }
        } else {
            let phase = if slot.phase.is_empty() { "down".to_owned() } else { format!("down: {}", slot.phase) };
            match &slot.reason {
                Some(reason) => format!("{phase}: {reason}"),
                None => phase,
            }
        };
        Some(format!("shard {}: {why}", slot.index))
    }));
    reasons
}
