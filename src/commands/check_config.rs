//! `shardvisor check-config`: every error of the configuration, or nothing. It opens no connection and touches no data
//! directory, so that it can be run beside a daemon and before one is installed.

use crate::{
    cli::CheckConfig,
    commands::{print, print_json},
    config::Config,
    exit::{Failure, say},
};

/// The configuration was read without an error: says so, or shows it.
pub(super) fn run(config: &Config, options: &CheckConfig) -> Result<(), Failure> {
    for warning in &config.warnings {
        say(format_args!("warning: {warning}"));
    }
    if options.show {
        return print_json(config);
    }
    let from = match &config.file {
        Some(path) => path.display().to_string(),
        None => "defaults and environment".to_owned(),
    };
    print(format_args!("configuration is valid ({from}); {}", config.layout_line(config.shard_index)))
}
