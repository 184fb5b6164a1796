//! A session that Baileys kept.

use super::transfer::ForeignRow;

/// What another client kept.
pub struct ForeignSession {
    pub(super) rows: Vec<ForeignRow>,
}
