//! The `shardvisor` command: parse, choose a cryptography provider, hand over, exit. No policy.

mod announce;
mod box_view;
mod cli;
mod commands;
mod config;
mod directory;
mod exit;
mod logging;
mod primary;
mod shard_process;
mod spread;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    cli::{Cli, usage},
    exit::{Failure, INTERNAL},
};

fn main() -> ExitCode {
    logging::catch_panics();
    // A panic was reported by the hook; what is left is the status.
    let ended = std::panic::catch_unwind(begin).unwrap_or_else(|_| Ok(ExitCode::from(INTERNAL)));
    ended.unwrap_or_else(|failure| failure.report())
}

fn begin() -> Result<ExitCode, Failure> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(asked) if !asked.use_stderr() => {
            // Help and version; whoever reads them may have gone away.
            let _ = asked.print();
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(usage(&error)),
    };
    // Two providers may be compiled in; without a choice the first TLS connection would panic. Only a second call fails.
    let _ = rustls::crypto::ring::default_provider().install_default();
    commands::perform(cli)
}
