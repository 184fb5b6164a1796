//! Keeps a fixed number of child processes alive; knows no queue and no chat.

pub mod action;
pub mod backoff;
pub mod exit_status;
pub mod intensity;
pub mod policy;
pub mod spec;
pub mod state;
pub mod status;
