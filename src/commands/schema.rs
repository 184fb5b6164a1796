//! `shardvisor schema`: the JSON Schema of every job, for producers and their tests.

use crate::{commands::print, exit::Failure};

/// Prints it, indented.
pub(super) fn run() -> Result<(), Failure> {
    print(format_args!("{:#}", shard::job::job_schema()))
}
