//! The supervisor with real processes: killed, stopped, flooding, refusing. `daemon.rs` starts one and watches it from
//! outside.

mod daemon;
mod deaths;
mod ends;
mod links;
mod rolls;
