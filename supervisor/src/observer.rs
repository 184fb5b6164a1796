//! The one seam through which what shards report becomes what the box shows. The supervisor passes it on unread.

use serde_json::value::RawValue;

use crate::{exit_status::ExitReason, status::SlotStatus};

/// Puts together what HTTP and `status` show. Called from the primary's loop: it must not block.
pub trait Observer {
    /// A shard has checked in with this report.
    fn report(&mut self, slot: u32, incarnation: u64, report: &RawValue);

    /// A life has ended; nothing more will be reported of it.
    fn lost(&mut self, slot: u32, incarnation: u64, reason: ExitReason);

    /// The box as it is now.
    fn view(&mut self, slots: &[SlotStatus]) -> Box<RawValue>;
}
