//! The stand on which a shard is measured or mistreated: private servers around it, and a network behind it.

pub mod child;
pub mod jobs;
pub mod network;
pub mod servers;
pub mod shard;

/// Whatever stops a run.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
