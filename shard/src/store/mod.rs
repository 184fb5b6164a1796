//! The embedded store: SQLite files in the data directory, so that a fresh machine needs no server.
//!
//! A slot's process owns one file (`queue.db`, or `queue-<i>.db` with more shards) and all shards share `box.db`. What is
//! confirmed has been synced to the disk. The adapters of the ports lie beside their ports; here is what they share.

mod box_store;
mod error;
mod fence;
mod import;
mod keys;
mod open;
mod peers;
mod schema;
mod seen;
mod slot;
mod wake;
mod writer;

pub use box_store::BoxStore;
pub use error::StoreError;
pub use import::Imported;
pub use open::make_directory;
pub use peers::Peers;
pub use slot::SlotStore;

pub(crate) use error::OpError;
pub(crate) use fence::check_fence;
pub(crate) use keys::{base_number, key, lane_key, unkey};
pub(crate) use peers::Index;
pub(crate) use seen::Seen;
pub(crate) use wake::{Wake, knock, knock_all, knocked};
pub(crate) use writer::Writer;
